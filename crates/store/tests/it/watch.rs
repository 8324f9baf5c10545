//! Watches: from when, of what, how far behind, and how they end.

use std::time::Duration;

use futures::StreamExt as _;
use store::event::Kind;
use store::{Draft, Index, Key, Options, Revision, Scope, Store, Watch, Write, error};

use crate::fixture::{job, jobs, put, small, stored};
use crate::sim::Sim;

/// Everything that a watch has ready, as text.
fn ready(watch: &mut Watch) -> Vec<String> {
    let mut events = Vec::new();
    while let Some(event) = watch.try_next() {
        let event = event.expect("the watch keeps up");
        events.push(format!("{:?} {}", event.kind, event.key().path()));
    }
    events
}

fn pod(name: &str, node: &str) -> Write {
    let fields = [("spec.nodeName", node), ("metadata.name", name)].into_iter().collect();
    Write::put(Key::new("pods", "default", name), Draft::new("{}", Index { fields, ..Index::default() }))
}

#[tokio::test]
async fn events_carry_the_states_before_and_after() {
    let store = Store::open(Options::ephemeral()).expect("it opens");
    let mut watch = store.watch(&jobs(), store.revision()).expect("from now");
    let created = put(&store, "a", "one").await;
    let updated = put(&store, "a", "two").await;
    let deleted = store.commit(Write::delete(job("a"))).await.expect("it is there").revision();

    let mut next = async || watch.next().await.expect("open").expect("no lag");
    let event = next().await;
    assert_eq!((event.kind, event.revision()), (Kind::Created, created));
    assert!(event.before().is_none() && event.departed().is_none());
    assert_eq!(event.after().expect("it is there").value, stored("one", created));

    let event = next().await;
    assert_eq!((event.kind, event.revision()), (Kind::Updated, updated));
    assert_eq!(event.before().expect("it was there").value, stored("one", created));
    assert_eq!(event.after().expect("it is there").value, stored("two", updated));
    assert_eq!(
        event.departed().expect("it was there"),
        stored("one", updated),
        "2.20: old content, new revision"
    );

    let event = next().await;
    assert_eq!((event.kind, event.revision()), (Kind::Deleted, deleted));
    assert!(event.after().is_none());
    assert_eq!(event.object.value, stored("two", deleted), "2.2: the revision of the deletion");
    let rendered = event.rendering(1, || "row".into());
    assert_eq!(event.rendering(1, || unreachable!("made once")), rendered);
    assert_eq!(event.rendering(2, || "other".into()), "other");
}

#[tokio::test]
async fn c_5_17_a_watch_gets_what_concerns_it_and_nothing_else() {
    let store = Store::open(Options::ephemeral()).expect("it opens");
    let from = store.revision();
    let pods = Scope::resource("pods");
    let scopes = [
        pods.clone(),
        pods.clone().namespace("default"),
        pods.clone().namespace("default").name("a"),
        pods.clone().name("a"),
        pods.clone().field("spec.nodeName", "n1"),
        pods.clone().field("spec.nodeName", "n1").namespace("other"),
        pods.clone().namespace("other"),
        Scope::resource("nodes"),
    ];
    let start =
        || scopes.iter().map(|scope| store.watch(scope, from).expect("from the start")).collect::<Vec<_>>();
    let mut early = start();
    for write in [pod("a", ""), pod("b", "n1"), pod("a", "n1"), pod("a", "n2"), pod("a", "n3")] {
        store.commit(write).await.expect("taken");
    }
    store.commit(Write::delete(Key::new("pods", "default", "b"))).await.expect("it is there");
    let mut late = start();
    let all = [
        "Created default/a",
        "Created default/b",
        "Updated default/a",
        "Updated default/a",
        "Updated default/a",
        "Deleted default/b",
    ];
    let a = [all[0], all[2], all[3], all[4]];
    // Into the node, away from it, and deleted on it; not the change from one other node to another.
    let n1 = [all[1], all[2], all[3], all[5]];
    let expected: [&[&str]; 8] = [&all, &all, &a, &a, &n1, &[], &[], &[]];
    for (n, expected) in expected.into_iter().enumerate() {
        assert_eq!(ready(&mut early[n]), expected, "{:?}", scopes[n]);
        assert_eq!(ready(&mut late[n]), expected, "{:?}, started later", scopes[n]);
    }
    assert_eq!(store.metrics().watchers, 16);
    drop((early, late));
    assert_eq!(store.metrics().watchers, 0);
}

/// [5.17], [8.20]: ten thousand watchers of other objects are not woken by an event; counted by a waker of our own.
#[tokio::test]
async fn c_2_23_a_watch_by_name_or_field_costs_nothing_to_others() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    let store = Store::open(Options::ephemeral()).expect("it opens");
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    let mut watches = Vec::new();
    for n in 0..10_000 {
        for scope in [
            Scope::resource("pods").field("spec.nodeName", &format!("node-{n}")),
            Scope::object(&Key::new("pods", "default", &format!("pod-{n}"))),
        ] {
            let mut watch = store.watch(&scope, store.revision()).expect("from now");
            assert!(watch.poll_next_unpin(&mut cx).is_pending());
            watches.push(watch);
        }
    }
    store.commit(pod("pod-17", "node-4711")).await.expect("taken");
    // Watchers are woken before the commit is answered.
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn c_2_13_what_is_too_old_is_expired_and_c_2_15_what_is_not_yet_is_future() {
    let mut options = Options::ephemeral();
    options.window.events = 3;
    options.window.bytes = 0;
    let store = Store::open(options).expect("it opens");
    put(&store, "a", "0").await;
    let quiet = store.watch(&Scope::resource("pods"), Revision(1));
    for n in 1..10 {
        put(&store, "a", &n.to_string()).await;
    }
    let current = store.revision();
    let oldest = Revision(current.0 - 3);
    let requested = Revision(oldest.0 - 1);
    assert_eq!(
        store.watch(&jobs(), requested).expect_err("gone"),
        error::Read::Expired { requested, oldest }
    );
    assert_eq!(ready(&mut store.watch(&jobs(), oldest).expect("all after it are there")).len(), 3);
    let requested = Revision(current.0 + 1);
    assert_eq!(
        store.watch(&jobs(), requested).expect_err("not yet"),
        error::Read::Future { requested, current }
    );
    // The window is one per resource: a busy one takes nothing from a quiet one.
    assert!(quiet.is_ok());
    assert!(store.watch(&Scope::resource("pods"), Revision(1)).is_ok());
}

#[tokio::test]
async fn c_2_21_a_slow_watcher_is_closed_and_never_skips() {
    let mut options = Options::ephemeral();
    options.window.events = 4;
    options.window.bytes = 0;
    let store = Store::open(options).expect("it opens");
    let from = store.revision();
    let object = Scope::object(&job("a"));
    let mut watches =
        [jobs(), object, jobs().namespace("default")].map(|s| store.watch(&s, from).expect("from now"));
    let mut calm = store.watch(&Scope::object(&job("calm")), from).expect("from now");
    let first = put(&store, "a", "0").await;
    for watch in &mut watches {
        assert_eq!(ready(watch).len(), 1);
    }
    for n in 1..10 {
        put(&store, "a", &n.to_string()).await;
    }
    let lost = Revision(store.revision().0 - 4);
    for watch in &mut watches {
        let end = watch.next().await.expect("it is told");
        assert_eq!(end.expect_err("events are gone"), error::Watch::Lagged { seen: first, lost });
        assert!(watch.next().await.is_none());
    }
    // Nothing of what this one watches is gone.
    assert_eq!(calm.bookmark(), Some(store.revision()));
    put(&store, "calm", "x").await;
    assert_eq!(ready(&mut calm), ["Created default/calm"]);
}

#[tokio::test]
async fn c_5_16_the_window_is_bounded_by_age_too() {
    let mut options = Options::ephemeral();
    options.window.events = 2;
    options.window.age = Duration::ZERO;
    let store = Store::open(options).expect("it opens");
    for n in 0..10 {
        put(&store, "a", &n.to_string()).await;
    }
    assert_eq!(store.metrics().events, 2);
}

#[tokio::test]
async fn a_store_at_rest_lets_go_of_the_past() {
    let mut options = Options::ephemeral();
    options.window.events = 2;
    options.window.age = Duration::from_millis(20);
    options.history.age = Duration::from_millis(20);
    options.trim_every = Duration::from_millis(1);
    let store = Store::open(options).expect("it opens");
    for n in 0..10 {
        put(&store, "a", &n.to_string()).await;
    }
    // Nothing tells when it is done; without it this would go on for ever.
    while store.metrics().past_states > 1 || store.metrics().events > 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(store.watch(&jobs(), Revision(store.revision().0 - 3)).is_err());
    assert!(store.watch(&jobs(), Revision(store.revision().0 - 2)).is_ok());
}

#[tokio::test]
async fn c_5_21_bookmarks_move_on_with_what_others_do() {
    let store = Store::open(Options::ephemeral()).expect("it opens");
    let mut watch = store.watch(&Scope::resource("pods"), store.revision()).expect("from now");
    let elsewhere = put(&store, "a", "one").await;
    assert_eq!(watch.bookmark(), Some(elsewhere));
    store.commit(pod("p", "")).await.expect("taken");
    assert_eq!(watch.bookmark(), None, "an event waits to be read");
    assert_eq!(ready(&mut watch).len(), 1);
    assert_eq!(watch.bookmark(), Some(store.revision()));
}

#[tokio::test]
async fn watches_end_when_the_store_is_closed_after_what_was_committed() {
    let disk = Sim::default();
    let store = Store::open(small(&disk)).expect("it opens");
    let watches = [jobs(), Scope::object(&job("a")), jobs().namespace("default")];
    let watches = watches.map(|scope| store.watch(&scope, store.revision()).expect("from now"));
    put(&store, "a", "one").await;
    let collected = tokio::spawn(async move {
        let mut counts = Vec::new();
        for watch in watches {
            counts.push(watch.map(|event| event.expect("no lag")).count().await);
        }
        counts
    });
    store.close().await;
    assert_eq!(collected.await.expect("no panic"), [1, 1, 1]);
    let (view, mut watch) = store.view_and_watch(&jobs());
    assert_eq!(view.list(&jobs()).count(), 1);
    assert!(watch.next().await.is_none(), "a watch of a closed store ends at once");
}

#[tokio::test]
async fn watches_go_on_across_a_restart() {
    let disk = Sim::default();
    let store = Store::open(small(&disk)).expect("it opens");
    let first = put(&store, "a", "one").await;
    let second = put(&store, "b", "two").await;
    drop(store);
    let store = Store::open(small(&disk)).expect("it opens");
    let started = store.revision();
    assert!(started > second);
    let third = put(&store, "a", "three").await;
    let mut watch = store.watch(&jobs(), first).expect("the log has it");
    assert_eq!(ready(&mut watch), ["Created default/b", "Updated default/a"]);
    let mut watch = store.watch(&jobs(), started).expect("the start is a state too");
    assert_eq!(watch.next().await.expect("open").expect("no lag").revision(), third);
    let lost = Revision(second.0 + 1);
    let error = store.watch(&jobs(), lost).expect_err("whoever has seen this has seen what is lost");
    assert_eq!(error, error::Read::Expired { requested: lost, oldest: started });
}
