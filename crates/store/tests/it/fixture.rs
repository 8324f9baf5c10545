//! What most tests start from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::ProptestConfig;
use store::{At, Draft, Index, Key, Options, Revision, Scope, Store, Write};

use crate::sim::Sim;

/// A short run by default; PROPTEST_CASES makes it as long as wanted.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let config = ProptestConfig { max_shrink_iters: 2000, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}

/// Where a store on a simulated disk lives.
pub(crate) const DIR: &str = "/data";

/// A store on a simulated disk with everything small, so that little data goes a long way.
pub(crate) fn small(disk: &Sim) -> Options {
    let mut options = Options::disk(DIR);
    options.disk = Arc::new(disk.clone());
    options.segment_bytes = (4 << 10, 16 << 10);
    options.retry = Duration::from_millis(1);
    options
}

pub(crate) fn job(name: &str) -> Key {
    Key::new("batch/jobs", "default", name)
}

pub(crate) fn jobs() -> Scope {
    Scope::resource("batch/jobs")
}

/// A value with a place for the revision, as the API server makes them.
pub(crate) fn draft(text: &str) -> Draft {
    let value = format!(r#"{{"text":"{text}","rv":""}}"#);
    let at = value.len() - 2;
    Draft::new(value, Index { token: format!("uid of {text}").into(), ..Index::default() }).revision_at(at)
}

/// Puts a value under a name.
pub(crate) async fn put(store: &Store, name: &str, text: &str) -> Revision {
    store.commit(Write::put(job(name), draft(text))).await.expect("the write is taken").revision()
}

/// What is there, by name.
pub(crate) fn content(store: &Store) -> BTreeMap<String, (Revision, String)> {
    let list = store.list(&jobs(), At::Latest).expect("the latest state is always there");
    list.objects
        .iter()
        .map(|object| {
            let text = String::from_utf8(object.value.to_vec()).expect("values are text");
            (object.key.name().to_owned(), (object.revision, text))
        })
        .collect()
}

/// The bytes that `draft` ends up as.
pub(crate) fn stored(text: &str, revision: Revision) -> String {
    format!(r#"{{"text":"{text}","rv":"{revision}"}}"#)
}
