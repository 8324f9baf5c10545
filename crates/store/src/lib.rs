//! Versioned objects, their log on disk and their watch events.
//!
//! A [`Store`] holds objects under [`Key`]s. Every change has a [`Revision`] from one counter, is durable before anybody
//! sees it, and reaches every [`Watch`] whose [`Scope`] it concerns, in order, once, with the states before and after.
//! Past states can be read for a while, and watches can start in the past, also across a restart.
//!
//! ```text
//! commit ─> queue ─> writer ─> log ─> present ─┬─> get, list   (state.rs, history.rs)
//!             one thread: conditions,          └─> watch       (hub.rs, ring.rs)
//!             revisions, one sync for all
//! ```
//!
//! ```
//! # use store::{At, Draft, Index, Key, Options, Scope, Store, Write};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::open(Options::ephemeral())?; // or Options::disk(dir)
//! let (key, jobs) = (Key::new("batch/jobs", "default", "pi"), Scope::resource("batch/jobs"));
//! let mut watch = store.watch(&jobs, store.revision())?;
//!
//! // The revision goes between the quotes.
//! let draft = Draft::new(r#"{"metadata":{"resourceVersion":""}}"#, Index::default()).revision_at(32);
//! let created = store.commit(Write::put(key.clone(), draft.clone()).if_absent()).await?;
//! assert_eq!(created.object.value, r#"{"metadata":{"resourceVersion":"2"}}"#);
//! store.commit(Write::put(key, draft).if_revision(created.revision())).await?;
//!
//! assert_eq!(watch.next().await.expect("the store is open")?.object, created.object);
//! assert_eq!(store.list(&jobs, At::Exactly(created.revision()))?.objects, [created.object]);
//! # Ok(()) }
//! ```
//!
//! The store knows no HTTP and no kinds: values are bytes, and what it needs to know about them it is told in an
//! [`Index`]. There is no global state; a process can have many stores.

mod compact;
pub mod disk;
pub mod error;
pub mod event;
pub mod history;
mod hub;
mod key;
mod log;
mod map;
mod metrics;
mod object;
mod options;
mod preamble;
mod present;
mod queue;
mod record;
mod recover;
mod revision;
mod ring;
mod segment;
mod snapshot;
mod spare;
mod state;
mod store;
mod watch;
mod write;
mod writer;

pub use event::Event;
pub use hub::Window;
pub use key::{Key, Scope};
pub use metrics::Metrics;
pub use object::{Index, Object, Pairs};
pub use options::{Durability, Options};
pub use recover::Recovery;
pub use revision::Revision;
pub use state::View;
pub use store::{At, List, Page, Store};
pub use watch::Watch;
pub use write::{Committed, Draft, Refusal, Write};
pub use writer::Readiness;
