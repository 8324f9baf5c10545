//! Which Jobs a command is about: some by name, all with certain labels, or all of the namespace.

use std::collections::BTreeSet;

use anyhow::Context as _;
use kube::api::ListParams;

use crate::connect::Manager;
use crate::failure::{self, Hint as _};
use crate::jobs::{self, Found};
use crate::output;

/// Which Jobs a command is about.
#[derive(clap::Args)]
pub(crate) struct Which {
    /// Jobs, by name, or `kind/name` for other kinds.
    #[arg(value_name = "JOB", required_unless_present_any = ["selector", "all"])]
    names: Vec<String>,

    /// All with these labels, for example team=vision,tier!=test.
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "names")]
    selector: Option<String>,

    /// All of the namespace.
    #[arg(long, conflicts_with_all = ["names", "selector"])]
    all: bool,
}

impl Which {
    /// Those that are there. One that was named and is not there is an error.
    pub(crate) async fn find(&self, manager: &Manager) -> anyhow::Result<Vec<Found>> {
        self.find_or(manager, |_, absent| Err(absent)).await
    }

    /// Those that are there. `absent` is told the names of those that are not, and what error that would be.
    pub(crate) async fn find_or(
        &self,
        manager: &Manager,
        absent: impl Fn(&str, anyhow::Error) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<Found>> {
        let all = jobs::list(&manager.client, Some(&manager.namespace)).await?;
        if self.is_by_name() {
            let mut found = Vec::new();
            for name in &self.names {
                match jobs::named(&all, name, manager) {
                    Ok(one) => found.push(one.clone()),
                    Err(error) => absent(name, error)?,
                }
            }
            return Ok(found);
        }
        match &self.selector {
            Some(selector) => labelled(manager, all, selector).await,
            None => Ok(all),
        }
    }

    /// Whether each was named: then each is meant, also one for which there is nothing to do.
    pub(crate) fn is_by_name(&self) -> bool {
        !self.names.is_empty()
    }

    /// What to say if there are none.
    pub(crate) fn none(&self, manager: &Manager) -> String {
        let labels = self.selector.as_ref().map(|it| format!(" with labels {it}")).unwrap_or_default();
        format!("no Jobs{labels} in namespace {}", manager.namespace)
    }

    /// Says so if there are none for which there is something to do.
    pub(crate) fn note_none(&self, found: &[Found], manager: &Manager) {
        if found.is_empty() {
            output::note(self.none(manager));
        }
    }
}

/// Those that have these labels themselves; what labels their Workloads have does not count. The cluster judges the
/// selector, and is asked once for each kind and namespace.
pub(crate) async fn labelled(
    manager: &Manager,
    found: Vec<Found>,
    selector: &str,
) -> anyhow::Result<Vec<Found>> {
    let place = |found: &Found| {
        let view = &found.view;
        (view.api_version.clone(), view.kind.clone(), view.namespace.clone())
    };
    let mut asked = BTreeSet::new();
    let mut uids = BTreeSet::new();
    let params = ListParams::default().labels(selector);
    for one in &found {
        if !asked.insert(place(one)) {
            continue;
        }
        let Some(api) = jobs::api(manager, &one.view) else { continue };
        let listed = api.list_metadata(&params).await;
        let listed = listed.with_context(|| format!("failed to look for labels {selector}"));
        let listed = listed.hint_if(failure::is_bad_request, "write them like team=vision,tier!=test")?;
        uids.extend(listed.items.into_iter().filter_map(|object| object.metadata.uid));
    }
    Ok(found.into_iter().filter(|found| uids.contains(&found.view.uid)).collect())
}
