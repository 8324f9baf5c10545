//! Disks that are full and disks that fail: nothing acknowledged is lost, and reading goes on.

use std::pin::pin;
use std::time::Duration;

use store::{Options, Readiness, Store, Write, error};
use tokio::time::timeout;

use crate::fixture::{content, draft, job, jobs, put, small};
use crate::sim::{Sim, Syncs};

/// Puts objects until the store says that its disk is full. Returns how many it took.
async fn fill(store: &Store) -> usize {
    for n in 0.. {
        match store.commit(Write::put(job(&format!("filler-{n}")), draft(&noise(n)))).await {
            Ok(_) => {}
            Err(error::Commit::Full { .. }) => return n,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a disk has an end")
}

/// Text that does not compress well, long enough for a few to fill a segment.
fn noise(seed: usize) -> String {
    let mut number = seed as u64;
    let words = std::iter::repeat_with(|| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{number:016x}")
    });
    words.take(240).collect()
}

async fn ready(store: &Store) {
    let mut readiness = store.readiness_changes();
    readiness.wait_for(|readiness| *readiness == Readiness::Ready).await.expect("the writer lives");
}

#[tokio::test]
async fn c_5_6_a_full_disk_takes_deletions_and_is_ready_again_when_there_is_room() {
    let disk = Sim::default();
    disk.set(|faults| faults.capacity = Some(100 << 10));
    let store = Store::open(small(&disk)).expect("it opens");
    let mut watch = store.watch(&jobs(), store.revision()).expect("from now");
    let filled = fill(&store).await;
    assert!(filled > 10, "{filled}");
    let before = content(&store);
    assert_eq!(before.len(), filled);
    assert!(matches!(store.readiness(), Readiness::Full { .. }));

    let deleted = store.commit(Write::delete(job("filler-0"))).await.expect("the reserve is for this");
    for _ in 0..filled {
        watch.next().await.expect("watches go on").expect("no lag");
    }
    assert_eq!(watch.next().await.expect("open").expect("no lag").revision(), deleted.revision());
    let error = store.commit(Write::put(job("filler-1"), draft("y"))).await.expect_err("still full");
    assert!(matches!(error, error::Commit::Full { .. }), "{error}");

    disk.set(|faults| faults.capacity = Some(300 << 10));
    ready(&store).await;
    put(&store, "late", "value").await;
    let whole = content(&store);
    assert_eq!(whole.len(), before.len());
    drop(store);
    let store = Store::open(small(&disk)).expect("it opens");
    assert_eq!(content(&store), whole);
}

#[tokio::test]
async fn deleting_frees_a_full_disk_without_help() {
    let disk = Sim::default();
    disk.set(|faults| faults.capacity = Some(100 << 10));
    let store = Store::open(small(&disk)).expect("it opens");
    let filled = fill(&store).await;
    for n in 0..filled - 1 {
        store.commit(Write::delete(job(&format!("filler-{n}")))).await.expect("the reserve lasts for this");
    }
    // What is left fits in a small snapshot, which replaces the long log.
    ready(&store).await;
    assert!(fill(&store).await > 0);
    let whole = content(&store);
    drop(store);
    let store = Store::open(small(&disk)).expect("it opens, for reading if for nothing else");
    assert_eq!(content(&store), whole);
}

#[tokio::test]
async fn half_a_segment_is_kept_for_deletions_however_late_it_is_known_that_there_is_no_other() {
    let disk = Sim::default();
    disk.set(|faults| faults.spare_syncs = Syncs::Wait);
    let store = Store::open(small(&disk)).expect("it opens");
    put(&store, "a", "one").await;
    disk.wait_held();
    let mut large = pin!(store.commit(Write::put(job("b"), draft(&noise(0)[..1200]))));
    let early = timeout(Duration::from_millis(200), &mut large).await;
    disk.set(|faults| faults.spare_syncs = Syncs::Fail);
    assert!(early.is_err(), "it has to wait until it is known: {early:?}");
    let error = large.await.expect_err("there is no other segment");
    assert!(matches!(error, error::Commit::Full { .. }), "{error}");
    store.commit(Write::delete(job("a"))).await.expect("the reserve is for this");

    disk.set(|faults| faults.spare_syncs = Syncs::Work);
    ready(&store).await;
    put(&store, "b", &noise(0)[..1200]).await;
}

#[tokio::test]
async fn a_full_disk_can_be_opened_and_read() {
    let disk = Sim::default();
    let store = Store::open(small(&disk)).expect("it opens");
    put(&store, "a", "one").await;
    put(&store, "b", "two").await;
    let whole = content(&store);
    let last = store.revision();
    drop(store);
    let used = disk.used();
    disk.set(|faults| faults.capacity = Some(used));
    for _ in 0..2 {
        let store = Store::open(small(&disk)).expect("it opens");
        assert_eq!(content(&store), whole);
        assert!(matches!(store.readiness(), Readiness::Full { .. }));
        let error = store.commit(Write::delete(job("a"))).await.expect_err("there is no reserve");
        assert!(matches!(error, error::Commit::Full { .. }), "{error}");
        drop(store);
        assert_eq!(disk.used(), used, "nothing is left lying about");
    }
    let store = Store::open(small(&disk)).expect("it opens");
    disk.set(|faults| faults.capacity = None);
    ready(&store).await;
    assert!(put(&store, "c", "three").await > last);
    let whole = content(&store);
    assert_eq!(whole.len(), 3);
    drop(store);
    assert_eq!(content(&Store::open(small(&disk)).expect("it opens")), whole);
}

#[tokio::test]
async fn a_write_that_finds_no_space_in_its_segment_is_refused_and_leaves_no_trace() {
    let disk = Sim::default();
    let store = Store::open(small(&disk)).expect("it opens");
    put(&store, "a", "one").await;
    disk.set(|faults| faults.no_overwrite = true);
    let error = store.commit(Write::put(job("b"), draft("two"))).await.expect_err("no space");
    assert!(matches!(error, error::Commit::Full { .. }), "{error}");
    disk.set(|faults| faults.no_overwrite = false);
    ready(&store).await;
    put(&store, "c", "three").await;
    let whole = content(&store);
    assert_eq!(whole.keys().collect::<Vec<_>>(), ["a", "c"]);
    drop(store);
    assert_eq!(content(&Store::open(small(&disk)).expect("it opens")), whole);
}

#[tokio::test]
async fn c_5_6_a_failed_sync_ends_all_writing_and_loses_nothing_acknowledged() {
    let disk = Sim::default();
    let store = Store::open(small(&disk)).expect("it opens");
    let mut watch = store.watch(&jobs(), store.revision()).expect("from now");
    let acknowledged = put(&store, "a", "one").await;
    let whole = content(&store);
    disk.set(|faults| faults.syncs = Syncs::Fail);
    let error = store.commit(Write::put(job("b"), draft("two"))).await.expect_err("it is not durable");
    assert!(matches!(error, error::Commit::Failed { .. }), "{error}");
    assert!(matches!(store.readiness(), Readiness::Failed { .. }));
    disk.set(|faults| faults.syncs = Syncs::Work);
    let error = store.commit(Write::delete(job("a"))).await.expect_err("a failed sync is never tried again");
    assert!(matches!(error, error::Commit::Failed { .. }), "{error}");
    assert_eq!(content(&store), whole, "reading goes on");
    assert_eq!(watch.next().await.expect("watching too").expect("no lag").revision(), acknowledged);
    assert!(watch.try_next().is_none(), "what is not durable is not shown");

    disk.die();
    drop(store);
    let after = disk.after_power_loss(|_| 0);
    let store = Store::open(small(&after)).expect("it opens");
    assert_eq!(content(&store), whole);
    assert!(store.revision().0 > acknowledged.0 + 1000);
    assert_eq!(store.readiness(), Readiness::Ready);
}

#[tokio::test]
async fn a_panic_of_the_writer_is_a_failure_for_all_and_hangs_nobody() {
    let disk = Sim::default();
    let store = Store::open(small(&disk)).expect("it opens");
    put(&store, "a", "one").await;
    let whole = content(&store);
    disk.set(|faults| faults.syncs = Syncs::Panic);
    for _ in 0..2 {
        let writes = (0..10).map(|n| store.commit(Write::put(job(&n.to_string()), draft("two"))));
        for outcome in futures::future::join_all(writes).await {
            let error = outcome.expect_err("nobody writes any more");
            assert!(matches!(error, error::Commit::Failed { .. }), "{error}");
        }
    }
    assert!(matches!(store.readiness(), Readiness::Failed { .. }));
    assert_eq!(content(&store), whole, "reading goes on");
    store.close().await;
    drop(store);
    disk.set(|faults| faults.syncs = Syncs::Work);
    let store = Store::open(small(&disk)).expect("the directory is free again");
    assert_eq!(content(&store)["a"], whole["a"]);
}

/// On a real file system: `mount -t tmpfs -o size=6m tmpfs DIR`, or a small ext4 image, and run with `--ignored`.
#[tokio::test]
#[ignore = "needs FERRY_STORE_TINY_DIR, a directory on a file system of a few MiB"]
async fn a_really_full_disk_takes_deletions_and_is_ready_again_when_there_is_room() {
    let tiny = std::env::var("FERRY_STORE_TINY_DIR").expect("FERRY_STORE_TINY_DIR is set");
    let dir = std::path::Path::new(&tiny).join("data");
    let options = || {
        let mut options = Options::disk(&dir);
        options.segment_bytes = (64 << 10, 1 << 20);
        options.retry = std::time::Duration::from_millis(10);
        options
    };
    let store = Store::open(options()).expect("it opens");
    let filled = fill(&store).await;
    assert_eq!(content(&store).len(), filled);
    for n in 0..filled / 2 {
        store.commit(Write::delete(job(&format!("filler-{n}")))).await.expect("the reserve is for this");
    }
    let whole = content(&store);
    drop(store);
    let store = Store::open(options()).expect("it opens, for reading if for nothing else");
    assert_eq!(content(&store), whole);
    ready(&store).await; // half of the objects are gone, and with a snapshot most of the log
    put(&store, "late", "value").await;
    drop(store);
    let store = Store::open(options()).expect("it opens");
    assert_eq!(content(&store).len(), whole.len() + 1);
    drop(store);
    std::fs::remove_dir_all(dir).expect("it is ours");
}
