//! Writing to a cluster so that it can be repeated: by server-side apply, under one name, with a word about each object.

use std::collections::BTreeMap;

use anyhow::Context as _;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::output;

/// Who writes what `ferry` installs.
const MANAGER: &str = "ferry";
/// The label of what was made here, so that nothing else is taken away.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// A cluster that is written to, or would be.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) client: Client,
    /// How the cluster is called in what is said.
    pub(crate) name: String,
    pub(crate) is_dry_run: bool,
}

impl Target {
    /// Makes an object what it is to be, and says what that took.
    pub(crate) async fn apply(&self, object: &Value) -> anyhow::Result<()> {
        let mut object = object.clone();
        object["metadata"]["labels"][MANAGED_BY] = json!(MANAGER);
        self.apply_as(MANAGER, &object).await.map(drop)
    }

    /// The same for a part of an object that is somebody else's: under a name of its own, so that it can be taken back
    /// without touching the rest. Returns what the object is then, or would be.
    pub(crate) async fn apply_as(
        &self,
        manager: &str,
        object: &Value,
    ) -> anyhow::Result<Option<DynamicObject>> {
        let (done, after) = self.made(manager, object).await?;
        self.say(done, &title(object))?;
        Ok(after)
    }

    /// The same for an object that others may have made: it is not taken for our own because of it.
    pub(crate) async fn amend(&self, object: &Value) -> anyhow::Result<()> {
        let there = self.api(object)?.get_opt(name_of(object)?).await;
        let there = there.with_context(|| format!("failed to read {} on {}", title(object), self.name))?;
        if there.is_some_and(|there| is_ours(&there)) {
            return self.apply(object).await;
        }
        self.apply_as(MANAGER, object).await.map(drop)
    }

    /// Makes many objects what they are to be, with a word about all of them.
    pub(crate) async fn apply_all(&self, what: &str, objects: &[Value]) -> anyhow::Result<()> {
        let mut done: BTreeMap<&str, usize> = BTreeMap::new();
        for object in objects {
            let mut object = object.clone();
            object["metadata"]["labels"][MANAGED_BY] = json!(MANAGER);
            *done.entry(self.made(MANAGER, &object).await?.0).or_default() += 1;
        }
        for (done, number) in done {
            let number = if done == "unchanged" { String::new() } else { format!(" ({number})") };
            self.say(&format!("{done}{number}"), what)?;
        }
        Ok(())
    }

    /// Makes an object what it is to be. Returns what that took, and the object if there is one then.
    async fn made(
        &self,
        manager: &str,
        object: &Value,
    ) -> anyhow::Result<(&'static str, Option<DynamicObject>)> {
        let what = title(object);
        let failed = || format!("failed to apply {what} on {}", self.name);
        let (api, name) = (self.api(object)?, name_of(object)?);
        let before = api.get_opt(name).await.with_context(failed)?;
        if self.is_dry_run && before.is_none() {
            return Ok(("would be created", None));
        }
        let mut params = PatchParams::apply(manager).force();
        params.dry_run = self.is_dry_run;
        let after = api.patch(name, &params, &Patch::Apply(object)).await.with_context(failed)?;
        let done = match &before {
            None => "created",
            Some(before) if content(before) == content(&after) => "unchanged",
            Some(_) if self.is_dry_run => "would be changed",
            Some(_) => "changed",
        };
        Ok((done, Some(after)))
    }

    /// Makes an object if there is none of its name; one that is there is kept as it is.
    pub(crate) async fn keep_or_create(&self, object: &Value) -> anyhow::Result<()> {
        let what = title(object);
        let api = self.api(object)?;
        let there = api.get_opt(name_of(object)?).await;
        match there.with_context(|| format!("failed to read {what} on {}", self.name))? {
            Some(_) => self.say("kept", &what),
            None => self.apply(object).await,
        }
    }

    /// Makes an object what it is to be, unless somebody else made the one that is there: that is kept as it is.
    pub(crate) async fn apply_unless_others(&self, object: &Value) -> anyhow::Result<()> {
        let what = title(object);
        let there = self.api(object)?.get_opt(name_of(object)?).await;
        let there = there.with_context(|| format!("failed to read {what} on {}", self.name))?;
        if there.is_none_or(|there| is_ours(&there)) {
            self.apply(object).await
        } else {
            self.say("kept", &what)
        }
    }

    /// Takes an object away, if it is there and was made by [`Target::apply`].
    pub(crate) async fn remove(&self, object: &Value) -> anyhow::Result<()> {
        let what = title(object);
        let failed = || format!("failed to delete {what} on {}", self.name);
        let (api, name) = (self.api(object)?, name_of(object)?);
        let Some(there) = api.get_opt(name).await.with_context(failed)? else {
            return self.say("already gone", &what);
        };
        if !is_ours(&there) {
            return self.say("kept, since it is not ferry's", &what);
        }
        if self.is_dry_run {
            return self.say("would be deleted", &what);
        }
        api.delete(name, &DeleteParams::background()).await.with_context(failed)?;
        self.say("deleted", &what)
    }

    pub(crate) fn say(&self, done: &str, what: &str) -> anyhow::Result<()> {
        output::line(format!("{}: {what} {done}", self.name))
    }

    fn api(&self, object: &Value) -> anyhow::Result<Api<DynamicObject>> {
        let text = |field: &str| object[field].as_str().with_context(|| format!("an object without {field}"));
        let (version, kind) = (text("apiVersion")?, text("kind")?);
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Ok(match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        })
    }
}

/// Whether an object was made by [`Target::apply`].
fn is_ours(object: &DynamicObject) -> bool {
    let label = object.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY));
    label.is_some_and(|label| label == MANAGER)
}

fn name_of(object: &Value) -> anyhow::Result<&str> {
    object["metadata"]["name"].as_str().context("an object without a name")
}

/// `Secret kueue-system/east`.
fn title(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (kind, name) = (text("/kind").unwrap_or("?"), text("/metadata/name").unwrap_or("?"));
    match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// What an object says, without who wrote it and when.
fn content(object: &DynamicObject) -> Value {
    let mut object = serde_json::to_value(object).unwrap_or_default();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles() {
        let secret = json!({ "kind": "Secret", "metadata": { "name": "east", "namespace": "kueue-system" } });
        assert_eq!(title(&secret), "Secret kueue-system/east");
        assert_eq!(title(&json!({ "kind": "Cohort", "metadata": { "name": "all" } })), "Cohort all");
    }

    #[test]
    fn who_wrote_it_is_no_content() {
        let object = |version: &str, name: &str| {
            let object = json!({ "metadata": { "name": name, "resourceVersion": version } });
            content(&serde_json::from_value(object).expect("an object"))
        };
        assert_eq!(object("1", "a"), object("2", "a"));
        assert_ne!(object("1", "a"), object("1", "b"));
    }
}
