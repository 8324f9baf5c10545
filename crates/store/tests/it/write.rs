//! Writes, their conditions, and what can be read of them.

use std::collections::BTreeSet;

use futures::future::join_all;
use store::{At, Durability, Key, Options, Page, Readiness, Revision, Scope, Store, Write, error};

use crate::fixture::{content, draft, job, jobs, put, small, stored};
use crate::sim::{Sim, Syncs};

#[tokio::test]
async fn c_2_1_every_change_takes_the_next_revision_and_objects_carry_it() {
    let store = Store::open(Options::ephemeral()).expect("it opens");
    assert_eq!(store.revision(), Revision::FIRST);
    let first = put(&store, "a", "one").await;
    let second = put(&store, "b", "two").await;
    let third = put(&store, "a", "three").await;
    assert_eq!([first.0, second.0, third.0], [2, 3, 4]);
    let object = store.get(&job("a")).expect("it is there");
    assert_eq!((object.revision, object.created), (third, first));
    assert_eq!(object.value, stored("three", third));
    assert_eq!(store.list(&jobs(), At::Latest).expect("latest").revision, third);
}

#[tokio::test]
async fn conditions() {
    let store = Store::open(Options::ephemeral()).expect("it opens");
    let at = put(&store, "a", "one").await;
    let check = async |write: Write, expected: &str| {
        let outcome = match store.commit(write).await {
            Ok(_) => "committed".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(outcome, expected);
    };
    let update = || Write::put(job("a"), draft("two"));
    check(update().if_absent(), "batch/jobs default/a exists already").await;
    check(update().if_revision(Revision(1)), "batch/jobs default/a has changed, it is at revision 2").await;
    check(
        update().if_token("x").if_revision(Revision(1)),
        r#"batch/jobs default/a is another object than expected, its token is "uid of one""#,
    )
    .await;
    check(
        update().if_check(|current| match current {
            Some(current) if current.revision == Revision(2) => Err("not now".into()),
            _ => Ok(()),
        }),
        "the check of a write to batch/jobs default/a refused it",
    )
    .await;
    check(
        update().if_check(|_| panic!("on purpose")),
        "the check of a write to batch/jobs default/a refused it",
    )
    .await;
    check(Write::put(job("b"), draft("x")).if_revision(at), "batch/jobs default/b does not exist").await;
    check(Write::put(job("b"), draft("x")).if_token("t"), "batch/jobs default/b does not exist").await;
    check(Write::delete(job("b")), "batch/jobs default/b does not exist").await;
    assert_eq!(store.revision(), at, "what is refused takes no revision");
    check(update().if_revision(at).if_token("uid of one"), "committed").await;
    check(Write::delete(job("a")).if_revision(at), "batch/jobs default/a has changed, it is at revision 3")
        .await;
    check(Write::delete(job("a")), "committed").await;
    check(update().if_absent(), "committed").await;
    assert_eq!(store.metrics().writes, 4);
    assert_eq!(store.metrics().refused, 9);
}

#[tokio::test]
async fn a_deletion_answers_with_what_was_deleted() {
    let store = Store::open(Options::ephemeral()).expect("it opens");
    put(&store, "a", "one").await;
    let deleted = store.commit(Write::delete(job("a"))).await.expect("it is there");
    assert_eq!(deleted.object.value, stored("one", deleted.revision()));
    assert_eq!(deleted.previous.expect("it was there").revision, Revision(2));
    assert_eq!(store.get(&job("a")), None);
}

#[tokio::test]
async fn too_large_objects_are_refused() {
    let mut options = Options::ephemeral();
    options.largest_object = 100;
    let store = Store::open(options).expect("it opens");
    let error = store.commit(Write::put(job("a"), draft(&"x".repeat(100)))).await.expect_err("too large");
    assert!(matches!(error, error::Commit::TooLarge { limit: 100, .. }), "{error}");
}

#[tokio::test]
async fn of_concurrent_writers_with_the_same_condition_one_wins() {
    let store = Store::open(small(&Sim::default())).expect("it opens");
    let at = put(&store, "a", "one").await;
    let writes = (0..50).map(|n| store.commit(Write::put(job("a"), draft(&n.to_string())).if_revision(at)));
    let outcomes = join_all(writes).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
    for outcome in outcomes {
        match outcome {
            Ok(committed) => assert_eq!(committed.revision(), store.revision()),
            Err(error) => assert!(matches!(error, error::Commit::Conflict { .. }), "{error}"),
        }
    }
}

/// [5.3]: counted, not timed. The first write is held in its sync; all that arrive meanwhile share the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c_5_3_writes_that_arrive_during_a_sync_share_the_next() {
    let disk = Sim::default();
    let mut options = small(&disk);
    options.segment_bytes = (1 << 20, 1 << 20);
    let store = Store::open(options).expect("it opens");
    disk.set(|faults| faults.syncs = Syncs::Wait);
    let first = tokio::spawn({
        let store = store.clone();
        async move { put(&store, "first", "x").await }
    });
    disk.wait_held();
    let mut others: Vec<_> = (0..100)
        .map(|n| {
            let store = store.clone();
            Box::pin(async move { put(&store, &n.to_string(), "x").await })
        })
        .collect();
    // Polled once, each stands in the queue; none can be done.
    for other in &mut others {
        assert!(futures::poll!(other).is_pending());
    }
    assert_eq!(content(&store).len(), 0, "nothing is visible before it is durable");
    disk.set(|faults| faults.syncs = Syncs::Work);
    let mut revisions: BTreeSet<Revision> = join_all(others).await.into_iter().collect();
    revisions.insert(first.await.expect("it does not panic"));
    assert_eq!(revisions.len(), 101, "each write has a revision of its own");
    assert_eq!((disk.syncs(), store.metrics().batches), (2, 2));
}

#[tokio::test]
async fn c_5_9_a_relaxed_write_is_answered_before_its_sync_which_follows() {
    let disk = Sim::default();
    let store = Store::open(small(&disk)).expect("it opens");
    disk.set(|faults| faults.syncs = Syncs::Wait);
    let write = Write::put(job("lease"), draft("renewed")).relaxed();
    let revision = store.commit(write).await.expect("it does not wait for the sync").revision();
    assert_eq!(content(&store)["lease"].0, revision);
    disk.wait_held(); // the sync comes by itself
    disk.set(|faults| faults.syncs = Syncs::Work);
    put(&store, "a", "one").await;
    disk.die();
    drop(store);
    let store = Store::open(small(&disk.after_power_loss(|_| 0))).expect("it opens");
    assert_eq!(content(&store).len(), 2, "a strict write takes the relaxed ones before it along");
}

#[tokio::test]
async fn c_2_8_pages_are_all_of_one_state_however_much_is_written_meanwhile() {
    let mut options = Options::ephemeral();
    options.history.bytes = 0; // no past is kept but what an unfinished list holds
    let store = Store::open(options).expect("it opens");
    let scope = jobs();
    for namespace in ["a", "a-b", "b"] {
        for n in 0..5 {
            let key = Key::new("batch/jobs", namespace, &format!("j{n}"));
            store.commit(Write::put(key, draft("x"))).await.expect("taken");
        }
    }
    put(&store, "other", "x").await;
    let whole = store.list(&scope, At::Latest).expect("latest");
    let paths: Vec<_> = whole.objects.iter().map(|object| object.key.path().to_owned()).collect();
    assert_eq!(paths[..2], ["a-b/j0", "a-b/j1"], "in the order of Kubernetes");

    let mut seen = Vec::new();
    let mut after: Option<String> = None;
    let mut at = At::Latest;
    loop {
        let page = Page { after: after.as_deref(), limit: Some(3) };
        let list = store.page(&scope, at, page).expect("the state is held");
        seen.extend(list.objects.iter().map(|object| object.key.path().to_owned()));
        assert_eq!(list.revision, whole.revision);
        assert_eq!(list.remaining, paths.len() - seen.len());
        if list.remaining == 0 {
            break;
        }
        after = seen.last().cloned();
        at = At::Exactly(list.revision);
        // Others go on writing.
        store.commit(Write::delete(whole.objects[seen.len()].key.clone())).await.expect("it is there");
        put(&store, "another", "x").await;
    }
    assert_eq!(seen, paths);

    let namespaced = scope.clone().namespace("a-b");
    assert_eq!(store.view().count(&namespaced, None), store.view().list(&namespaced).count());
    assert_eq!(store.view().count(&Scope::resource("pods"), None), 0);
}

#[tokio::test]
async fn revisions_out_of_reach_say_so() {
    let mut options = Options::ephemeral();
    options.history.bytes = 4096;
    let store = Store::open(options).expect("it opens");
    for n in 0..20 {
        put(&store, "a", &n.to_string()).await;
    }
    let current = store.revision();
    let future = Revision(current.0 + 1);
    assert_eq!(
        store.list(&jobs(), At::Exactly(future)).expect_err("not yet"),
        error::Read::Future { requested: future, current }
    );
    let expired = store.list(&jobs(), At::Exactly(Revision(3))).expect_err("no longer");
    let error::Read::Expired { requested: Revision(3), oldest } = expired else { panic!("{expired}") };
    assert!(store.list(&jobs(), At::Exactly(oldest)).is_ok());
    assert!(store.list(&jobs(), At::Exactly(Revision(oldest.0 - 1))).is_err());

    let waiting = store.reached(future);
    let ((), revision) = futures::join!(waiting, put(&store, "a", "last"));
    assert_eq!(revision, future);
}

#[tokio::test]
async fn several_stores_in_a_process_know_nothing_of_each_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = |name: &str| Store::open(Options::disk(dir.path().join(name))).expect("it opens");
    let (east, west) = (open("east"), open("west"));
    let mut watch = west.watch(&jobs(), west.revision()).expect("from now");
    put(&east, "a", "one").await;
    assert_eq!(west.revision(), Revision::FIRST);
    east.close().await;
    assert!(watch.try_next().is_none());
    let revision = put(&west, "b", "two").await;
    assert_eq!(watch.next().await.expect("open").expect("not lagging").revision(), revision);
}

#[tokio::test]
async fn a_directory_has_one_store_and_a_closed_one_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(Options::disk(dir.path())).expect("it opens");
    let error = Store::open(Options::disk(dir.path())).expect_err("it is taken");
    let expected =
        format!("data directory {} is in use by process {}", dir.path().display(), std::process::id());
    assert_eq!(error.to_string(), expected);
    put(&store, "a", "one").await;
    let other = store.clone();
    store.close().await;
    assert_eq!(other.readiness(), Readiness::Closed);
    let error = other.commit(Write::put(job("b"), draft("two"))).await.expect_err("closed");
    assert!(matches!(error, error::Commit::Closed), "{error}");
    assert_eq!(content(&other).len(), 1, "reading goes on");
    let again = Store::open(Options::new(Durability::Disk(dir.path().to_owned()))).expect("it is free");
    assert_eq!(content(&again), content(&other));
}

#[tokio::test]
async fn c_5_7_files_are_their_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let store = Store::open(Options::disk(&data)).expect("it opens");
    put(&store, "a", "one").await;
    let mode = |path| std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(data.clone()), 0o700);
    let files: Vec<_> = std::fs::read_dir(&data).expect("it is there").collect();
    assert!(files.len() >= 2);
    for file in files {
        assert_eq!(mode(file.expect("readable").path()), 0o600);
    }
}
