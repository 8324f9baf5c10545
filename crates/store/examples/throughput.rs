//! Prints what a store does per second: `cargo run --release -p store --example throughput [DIR]`.
//!
//! Writes are durable, of 2 KiB each, over 100 000 keys, from 1, 8, 32 and 128 writers at a time; then the same with
//! 100 watchers, a recovery, reads, and a watcher per object. DIR must be on the disk in question; without it a temporary
//! directory is taken, which may be in memory. On a busy machine compare with the bare disk, and trust the CPU time.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::future::join_all;
use store::{At, Draft, Index, Key, Options, Scope, Store, Write};

const KEYS: u64 = 100_000;
const VALUE: usize = 2048;
const PER_ROUND: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let temporary = tempfile::tempdir()?;
    let dir = std::env::args_os().nth(1).map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let dir = dir.join(format!("throughput-{}", std::process::id()));
    let result = measure(dir.clone()).await;
    std::fs::remove_dir_all(&dir)?;
    result
}

async fn measure(dir: PathBuf) -> anyhow::Result<()> {
    println!("bare disk: {:.0} syncs/s of 2 KiB", bare_syncs(&dir)?);
    let start = Instant::now();
    let store = Store::open(Options::disk(&dir))?;
    println!("an empty store opens in {:?}", start.elapsed());
    for writers in [1, 8, 32, 128] {
        println!("{writers:>3} writers: {}", write(&store, writers).await);
    }

    let scope = Scope::resource("batch/jobs");
    let watchers: Vec<_> = (0..100)
        .map(|_| {
            let mut watch = store.watch(&scope, store.revision()).expect("from now");
            tokio::spawn(async move {
                let mut seen = 0_u64;
                while let Some(Ok(_)) = watch.next().await {
                    seen += 1;
                }
                seen
            })
        })
        .collect();
    for writers in [1, 32] {
        println!("{writers:>3} writers, 100 watchers: {}", write(&store, writers).await);
    }

    let metrics = store.metrics();
    println!("{metrics:?}");
    store.close().await;
    let seen: u64 = join_all(watchers).await.into_iter().map(|seen| seen.unwrap_or(0)).sum();
    println!("the 100 watchers have seen {seen} events");
    drop(store);

    let start = Instant::now();
    let store = Store::open(Options::disk(&dir))?;
    let took = start.elapsed();
    println!("recovery of {} objects in {took:?}: {:?}", store.metrics().objects, store.recovery());
    read(&store, &scope)?;
    by_name(&store).await;
    Ok(())
}

/// What the disk gives without us.
fn bare_syncs(dir: &PathBuf) -> anyhow::Result<f64> {
    use std::os::unix::fs::FileExt as _;
    std::fs::create_dir_all(dir)?;
    let path = dir.join("bare");
    let file = std::fs::File::create(&path)?;
    file.write_all_at(&vec![0; 8 << 20], 0)?;
    file.sync_all()?;
    let (start, mut count) = (Instant::now(), 0_u32);
    while start.elapsed() < PER_ROUND / 3 {
        file.write_all_at(&[1; VALUE], u64::from(count % 4096) * VALUE as u64)?;
        file.sync_data()?;
        count += 1;
    }
    let rate = f64::from(count) / start.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

struct Round {
    writes: u64,
    syncs: u64,
    wall: Duration,
    cpu: Duration,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 writes")]
        let (writes, syncs) = (self.writes as f64, self.syncs.max(1) as f64);
        let rate = writes / self.wall.as_secs_f64();
        let cpu = self.cpu.as_secs_f64() * 1e6 / writes;
        write!(f, "{rate:>7.0} writes/s, {:>5.1} per sync, {cpu:>5.1} µs of CPU each", writes / syncs)
    }
}

/// The CPU time of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    Duration::from_millis(ticks * 10)
}

async fn write(store: &Store, writers: u64) -> Round {
    let before = store.metrics();
    let (start, cpu_before) = (Instant::now(), cpu());
    let tasks = (0..writers).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut number = writer;
            while start.elapsed() < PER_ROUND {
                number =
                    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                store.commit(put((number >> 33) % KEYS)).await.expect("the write is taken");
            }
        })
    });
    join_all(tasks).await;
    let after = store.metrics();
    Round {
        writes: after.writes - before.writes,
        syncs: after.syncs - before.syncs,
        wall: start.elapsed(),
        cpu: cpu().saturating_sub(cpu_before),
    }
}

fn put(number: u64) -> Write {
    let mut value = br#"{"metadata":{"resourceVersion":""},"data":""#.to_vec();
    value.resize(VALUE - 2, b'x');
    value.extend(br#""}"#);
    let index = Index {
        token: "6f3c7f0e-58a7-4f0c-9d3e-0a4a2e6f1b7c".into(),
        labels: [("batch.kubernetes.io/job-name", "some-job")].into_iter().collect(),
        ..Index::default()
    };
    let key = Key::new("batch/jobs", &format!("ns-{}", number % 10), &format!("job-{number}"));
    Write::put(key, Draft::new(value, index).revision_at(32))
}

fn read(store: &Store, scope: &Scope) -> anyhow::Result<()> {
    let start = Instant::now();
    let list = store.list(scope, At::Latest)?;
    println!("list of {} objects in {:?}", list.objects.len(), start.elapsed());
    let start = Instant::now();
    let found = list.objects.iter().filter(|object| store.get(&object.key).is_some()).count();
    println!("{found} gets in {:?}", start.elapsed());
    Ok(())
}

/// An event concerns one of ten thousand watchers.
async fn by_name(store: &Store) {
    let revision = store.revision();
    let watches: Vec<_> = (0..10_000)
        .map(|number| {
            let key = Key::new("batch/jobs", &format!("ns-{}", number % 10), &format!("job-{number}"));
            let mut watch = store.watch(&Scope::object(&key), revision).expect("from now");
            tokio::spawn(async move { while watch.next().await.is_some() {} })
        })
        .collect();
    println!(" 32 writers, a watcher for each of 10000 objects: {}", write(store, 32).await);
    store.close().await;
    join_all(watches).await;
}
