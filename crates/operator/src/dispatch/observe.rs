//! What a decision looks at: caches and notes, no calls.

use std::{collections::BTreeMap, sync::Arc};

use kube::core::DynamicObject;
use reconcile::Key;
use rules::dispatch::{
    Adapter, CONTROLLER, Check, ClusterName, Link, Load, Observed, Owner, Plan, Remote, Step, check,
    component, decide, group, held, local,
};
use types::kueue::Workload;

use super::{
    Shared,
    clusters::{given_up_at, is_cordoned},
    connection::Connection,
    members,
};
use crate::{
    caches::{ASKED, COMPONENTS, RUNS},
    kinds::kind_of,
};

/// What is known about a Workload, and what to do about it now.
pub(super) fn decided(shared: &Shared, key: &Key) -> (Observed, Plan) {
    decided_on(shared, key, shared.workloads.get(key))
}

/// A Workload that is about to get quota, with what would be written next: to whom it is offered, or why to nobody. So one
/// write does for both.
pub(super) fn offered(shared: &Shared, next: Workload) -> Workload {
    if multikueue_check(shared, &next).is_none() {
        return next;
    }
    let (seen, plan) = decided_on(shared, &Key::of(&next), Some(Arc::new(next.clone())));
    let Some(check) = &seen.check else { return next };
    // Who is about to be reached is waited for: where few are asked, they are the first.
    let is_known =
        |name: &ClusterName| seen.remotes.get(name).is_some_and(|remote| remote.link != Link::Connecting);
    if !seen.configured.iter().all(is_known) {
        return next;
    }
    let offers = |step: &&Step| matches!(step, Step::Nominate(_) | Step::Say(_));
    let steps: Vec<&Step> = plan.on_manager().filter(offers).collect();
    local::apply(&next, &check.name, &steps, shared.clock.now())
}

fn decided_on(shared: &Shared, key: &Key, local: Option<Arc<Workload>>) -> (Observed, Plan) {
    let now = shared.clock.now();
    let seen = observe(shared, key, local);
    #[cfg(feature = "planted")]
    let seen = {
        let mut seen = seen;
        super::planted::seen(shared.settings.planted, &mut seen, now);
        seen
    };
    let plan = decide(&seen, &shared.settings.policy, now);
    #[cfg(feature = "planted")]
    let plan = {
        let mut plan = plan;
        super::planted::plan(shared.settings.planted, &seen, &mut plan);
        plan
    };
    (seen, plan)
}

/// Everything that is known about a Workload.
fn observe(shared: &Shared, key: &Key, local: Option<Arc<Workload>>) -> Observed {
    let owner = local.as_deref().and_then(Owner::of);
    let adapter = owner.as_ref().and_then(Owner::adapter);
    let check = local.as_deref().and_then(|local| multikueue_check(shared, local));
    // What runs here is nobody's to look at; what may run elsewhere is, also if its queue no longer asks for that.
    let is_delegated = check.is_some() || local.as_deref().and_then(held).is_some();
    let delegated = owner.as_ref().zip(adapter).filter(|_| is_delegated);
    let job = delegated.and_then(|(owner, adapter)| {
        if owner.is_group {
            return members::group_of(shared, key, local.as_deref()?);
        }
        let job = local_job(shared, key, adapter, &Key::new(key.namespace.as_str(), owner.name.as_str()))?;
        // One that was deleted and submitted again has nothing to do with what became of the first.
        owner.is(&job).then_some(job)
    });
    let configured = check.as_ref().map(|check| configured(shared, &check.name)).unwrap_or_default();
    let is_kind = |adapter: &Adapter, it: &&Adapter| (it.kind, it.group) == (adapter.kind, adapter.group);
    let is_enabled =
        adapter.is_some_and(|adapter| shared.settings.kinds.iter().any(|it| is_kind(adapter, it)));
    let others = Vec::new();
    let seen = Observed { local, check, job, others, is_enabled, configured, remotes: BTreeMap::new() };
    let is_current = seen.is_current();
    let is_group = owner.as_ref().is_some_and(|owner| owner.is_group);
    let of_job = owner.map(|owner| Key::new(key.namespace.as_str(), owner.name));
    let remotes = shared.clusters.all().into_iter().map(|(name, connection)| {
        let mut remote = remote(shared, &connection, key, adapter.zip(of_job.as_ref()), is_current);
        if is_group {
            let mirrors = connection.worker().map(|worker| worker.pods_of(key)).unwrap_or_default();
            let mirrors = mirrors.iter().map(|mirror| &**mirror);
            remote.job = group::mirror(seen.job.as_deref(), &key.name, mirrors).map(Arc::new);
        }
        (name, remote)
    });
    let remotes = remotes.collect();
    components(shared, key, Observed { remotes, ..seen })
}

/// A Workload that is one of several of its job sees the others, and of each cluster what is left for it. One that is gone is
/// known by what is left of it.
fn components(shared: &Shared, key: &Key, seen: Observed) -> Observed {
    let whole = if let Some(local) = seen.local.as_deref() {
        component::whole(local).map(str::to_owned)
    } else {
        let clusters = shared.clusters.all();
        clusters.iter().find_map(|(_, connection)| connection.worker()?.whole_of(key))
    };
    let Some(whole) = whole else { return seen };
    let all = shared.workloads.by(COMPONENTS, &whole);
    let others: Vec<_> = all.into_iter().filter(|other| Key::of(&**other) != *key).collect();
    let local = seen.local.as_deref();
    let remotes = seen.remotes.into_iter().map(|(cluster, remote)| {
        let remote = component::seen(remote, &cluster, local, &key.name, &whole, &others);
        (cluster, remote)
    });
    let remotes = remotes.collect();
    Observed { remotes, others, ..seen }
}

/// The job of a Workload on the manager.
fn local_job(shared: &Shared, workload: &Key, adapter: &Adapter, key: &Key) -> Option<Arc<DynamicObject>> {
    if adapter.kind == "Pod" {
        return members::pod(shared, key);
    }
    if adapter.kind == "StatefulSet" {
        return members::stateful_set(shared, key);
    }
    if adapter.kind != "Job" {
        return shared.kinds.seen(&kind_of(adapter))?.get(key);
    }
    Some(shared.forms.of(workload, &shared.jobs.get(key)?))
}

/// The first of its checks that is MultiKueue's (MK-FLOW-02).
fn multikueue_check(shared: &Shared, local: &Workload) -> Option<Check> {
    let states = local.status.iter().flat_map(|status| &status.admission_checks);
    let ours = states.into_iter().find(|state| {
        let object = shared.checks.get(&Key::new("", state.name.as_str()));
        object.is_some_and(|object| object.spec.controller_name == CONTROLLER)
    })?;
    Some(Check { name: ours.name.clone(), state: ours.state })
}

/// The clusters behind a check; none while its settings are not there.
fn configured(shared: &Shared, check: &str) -> Vec<ClusterName> {
    let object = shared.checks.get(&Key::new("", check));
    let name = object.as_deref().and_then(|object| check::config_name(object).ok().map(str::to_owned));
    let config = name.and_then(|name| shared.configs.get(&Key::new("", name)));
    let clusters = config.iter().flat_map(|config| &config.spec.clusters);
    clusters.map(|name| ClusterName::from(name.as_str())).collect()
}

fn remote(
    shared: &Shared,
    connection: &Connection,
    key: &Key,
    job: Option<(&'static Adapter, &Key)>,
    is_current: bool,
) -> Remote {
    let mut link = connection.link();
    let object = shared.objects.get(&Key::new("", connection.name.as_str()));
    if let Link::Lost { since, given_up } = &mut link {
        // Whoever came back in between may run something again.
        *given_up = object.as_deref().and_then(given_up_at).is_some_and(|at| at >= *since);
    }
    let worker = connection.worker();
    let knows_kind =
        worker.as_ref().zip(job).map_or(Some(true), |(worker, (adapter, _))| worker.knows(adapter));
    let hides = worker.as_ref().zip(job).and_then(|(worker, (adapter, _))| worker.hides(adapter));
    if link == Link::Connected && (knows_kind.is_none() || hides.is_some()) {
        // That nothing was seen of its job does not say that there is nothing.
        link = Link::Connecting;
    }
    Remote {
        link,
        hides,
        workload: worker.as_ref().and_then(|worker| worker.workloads.get(key)),
        job: worker.as_ref().and_then(|worker| worker.job(key, job, is_current)),
        is_shared: false,
        read_at: connection.book.read_at(key),
        doubt_until: connection.book.doubt_until(key),
        left: connection.book.left(key),
        lacks_kind: knows_kind == Some(false),
        refusal: connection.book.refusal(key),
        is_cordoned: object.as_deref().is_some_and(is_cordoned),
        load: load(shared, &connection.name),
        identity: connection.identity(),
        same_as: None,
    }
}

/// What a cluster has to do for this manager.
fn load(shared: &Shared, cluster: &ClusterName) -> Load {
    let count = |index| shared.workloads.count(index, cluster.as_str());
    Load { asked: count(ASKED), runs: count(RUNS) }
}
