//! The condition `Active` of MultiKueue checks: whether there are clusters behind them.

use std::sync::Arc;

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use reconcile::{Key, Next, Tasks};
use rules::dispatch::{CONTROLLER, check};
use serde_json::json;
use types::kueue::AdmissionCheck;

use super::{
    Error, Shared,
    call::{MANAGER, within},
    clusters::is_active,
};

pub(super) fn start(shared: &Arc<Shared>, tasks: &mut Tasks) {
    let shared = Arc::clone(shared);
    tasks.spawn("checks", async move {
        shared.ready().await;
        shared.checks.all().iter().for_each(|check| shared.wake.check(Key::of(&**check)));
        let queue = shared.wake.checks.clone();
        queue.run(1, |key| reconcile(&shared, key)).await;
    });
}

async fn reconcile(shared: &Shared, key: Key) -> Result<Next, Error> {
    let Some(object) = shared.checks.get(&key) else { return Ok(Next::Done) };
    if object.spec.controller_name != CONTROLLER {
        return Ok(Next::Done);
    }
    let config = check::config_name(&object).and_then(|name| {
        let found = shared.configs.get(&Key::new("", name));
        found.ok_or_else(|| check::config_not_found(name))
    });
    let state = |name: &str| is_active(shared.objects.get(&Key::new("", name)).as_deref());
    let active = check::active(config.as_deref().map_err(Clone::clone), state);
    let Some(conditions) = active.among(&object, shared.clock.now()) else { return Ok(Next::Done) };
    let body = json!({
        "metadata": {"resourceVersion": object.metadata.resource_version}, "status": {"conditions": conditions},
    });
    let api: Api<AdmissionCheck> = Api::all(shared.client.clone());
    let params = PatchParams { field_manager: Some("kueue".to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(body);
    let call = api.patch_status(&key.name, &params, &patch);
    match within(shared.settings.deadline, "write a check's condition", MANAGER, call).await {
        Ok(answer) => {
            shared.checks.put(answer);
            Ok(Next::Done)
        }
        Err(error) if error.is_conflict() => Ok(Next::After(std::time::Duration::from_millis(50))),
        Err(error) if error.is_not_found() => Ok(Next::Done),
        Err(error) => Err(error),
    }
}
