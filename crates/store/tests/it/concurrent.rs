//! Many writers and watchers at once: batches of more than one write, and readers who look into the middle of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use store::event::Kind;
use store::{At, Event, Object, Revision, Scope, Store, Write, error};

use crate::fixture::{draft, job, jobs, small};
use crate::sim::Sim;

const WRITERS: usize = 8;
const WRITES: usize = 60;

/// A few keys, so that writers meet; now and then a deletion; conditions that may fail.
async fn write(store: Store, writer: usize) -> Vec<Revision> {
    let mut revisions = Vec::new();
    for n in 0..WRITES {
        let key = job(&format!("job-{}", (writer * 7 + n * 3) % 10));
        let write = match n % 4 {
            0 => Write::delete(key),
            1 => match store.get(&key) {
                Some(current) => Write::put(key, draft("conditional")).if_revision(current.revision),
                None => Write::put(key, draft("created")).if_absent(),
            },
            _ => Write::put(key, draft(&format!("{writer}-{n}"))),
        };
        match store.commit(write).await {
            Ok(committed) => {
                // Whoever has the answer can read it.
                assert!(store.revision() >= committed.revision());
                revisions.push(committed.revision());
            }
            Err(
                error::Commit::Absent { .. } | error::Commit::Conflict { .. } | error::Commit::Exists { .. },
            ) => {}
            Err(error) => panic!("{error}"),
        }
    }
    revisions
}

/// Collects events until one of a revision comes, and breaks the connection after every few.
async fn watch(
    store: Store,
    scope: Scope,
    from: Revision,
    until: Revision,
    patience: usize,
) -> Vec<Arc<Event>> {
    let mut events: Vec<Arc<Event>> = Vec::new();
    let mut seen = from;
    while seen < until {
        let mut watch = store.watch(&scope, seen).expect("the window is wide enough");
        for _ in 0..patience {
            let event = watch.next().await.expect("open").expect("no lag");
            seen = event.revision();
            events.push(event);
            if seen >= until {
                break;
            }
        }
    }
    events
}

fn by_name<'a>(objects: impl Iterator<Item = &'a Arc<Object>>) -> BTreeMap<String, Arc<Object>> {
    objects.map(|object| (object.key.name().to_owned(), object.clone())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn c_8_6_all_watchers_see_the_same_history_and_every_state_of_it_can_be_read() {
    let store = Store::open(small(&Sim::default())).expect("it opens");
    let from = store.revision();
    let writers = join_all((0..WRITERS).map(|writer| tokio::spawn(write(store.clone(), writer))));
    let early = tokio::spawn({
        // The end is a write that comes after all others.
        let store = store.clone();
        async move {
            let mut watch = store.watch(&jobs(), from).expect("from the start");
            let mut events = Vec::new();
            while events.last().is_none_or(|event: &Arc<Event>| event.key() != &job("end")) {
                events.push(watch.next().await.expect("open").expect("no lag"));
            }
            events
        }
    });
    let mut revisions: Vec<Revision> =
        writers.await.into_iter().flat_map(|done| done.expect("no panic")).collect();
    let end = store.commit(Write::put(job("end"), draft("end"))).await.expect("taken").revision();
    revisions.push(end);
    revisions.sort();
    assert!(store.metrics().batches < store.metrics().writes, "some writes shared a batch");

    let early = early.await.expect("no panic");
    let seen: Vec<Revision> = early.iter().map(|event| event.revision()).collect();
    assert_eq!(seen, revisions, "every acknowledged write, once, in order, and nothing else");
    assert_eq!(revisions, (from.0 + 1..=end.0).map(Revision).collect::<Vec<_>>(), "no revision is left out");
    let late = join_all([1, 3, 50].map(|patience| watch(store.clone(), jobs(), from, end, patience))).await;
    for events in late {
        assert!(events.iter().zip(&early).all(|(one, other)| Arc::ptr_eq(one, other)));
        assert_eq!(events.len(), early.len());
    }

    // Each event fits the state before it, and leads to the state that an exact read finds.
    let mut objects: BTreeMap<String, Arc<Object>> = BTreeMap::new();
    for event in early {
        let name = event.key().name().to_owned();
        let before = match event.kind {
            Kind::Deleted => objects.remove(&name),
            Kind::Created | Kind::Updated => objects.insert(name, event.object.clone()),
        };
        assert_eq!(before.as_ref(), event.before());
        let list = store.list(&jobs(), At::Exactly(event.revision())).expect("all of it is recent");
        assert_eq!(list.revision, event.revision());
        assert_eq!(by_name(list.objects.iter()), objects);
    }
    assert_eq!(by_name(store.view().list(&jobs())), objects);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_that_come_together_share_syncs() {
    let mut options = small(&Sim::default());
    options.gather = Duration::from_millis(20);
    let store = Store::open(options).expect("it opens");
    let writers = join_all((0..64).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..4 {
                let write = Write::put(job(&format!("job-{writer}")), draft("x"));
                store.commit(write).await.expect("a write");
            }
        })
    }));
    assert!(writers.await.into_iter().all(|ended| ended.is_ok()));
    let metrics = store.metrics();
    assert_eq!(metrics.writes, 4 * 64);
    assert!(metrics.syncs * 4 <= metrics.writes, "{} syncs", metrics.syncs);
}
