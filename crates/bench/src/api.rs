//! An API server that keeps what it acknowledges: ours, beside a real kube-apiserver with its etcd. Both wait for the disk
//! before they answer a write, both are asked the same over TLS, one after the other in every measure.

mod load;
mod server;

use std::time::{Duration, Instant};

use testkit::ControlPlane;

use crate::{
    report::{Report, Samples},
    usage::{Cpu, memory_of},
};
use load::{LISTED, Load};
use server::Ours;

/// How many Jobs are created, patched and applied in one measure.
const ONE_AT_A_TIME: usize = 500;
const AT_ONCE: usize = 32;
const WRITES: usize = 4_000;
const GETS: usize = 2_000;
const LISTED_JOBS: usize = 10_000;
const LISTS: usize = 5;
const WATCHERS: usize = 100;
const WATCHED: usize = 500;

/// What one side has achieved.
struct Achieved {
    creates_one: f64,
    creates: f64,
    create_cpu: Duration,
    patches: f64,
    applies: f64,
    gets: Samples,
    deliveries: f64,
    at_rest: u64,
    for_jobs: u64,
    list: Duration,
    listed_bytes: usize,
}

pub(crate) async fn run() -> anyhow::Result<Report> {
    eprintln!("starting both");
    let started = Instant::now();
    let theirs = ControlPlane::builder().durable().start().await?;
    let their_start = started.elapsed();
    let (mut ours, our_start) = Ours::start().await?;

    let our_side = Side { name: "ours", load: Load(ours.client()), ids: ours.process_ids() };
    let their_side = Side { name: "theirs", load: Load(theirs.client()), ids: theirs.process_ids() };
    let (mine, other) = (our_side.measure().await?, their_side.measure().await?);

    eprintln!("killing both and starting them again");
    let our_restart = ours.restart().await?;
    theirs.kill();
    let started = Instant::now();
    theirs.restart().await?;
    let their_restart = started.elapsed();

    let about = format!("Jobs created, changed, read and watched; {LISTED_JOBS} of them kept");
    Ok(Report::new(
        "api",
        about,
        "ferry cluster --controllers=none --data DIR",
        "kube-apiserver v1.35.8 and etcd, which syncs",
    )
    .rate("creates, one at a time", mine.creates_one, other.creates_one)
    .rate("creates, 32 at once", mine.creates, other.creates)
    .measure("  processor time of the server, each", mine.create_cpu, other.create_cpu)
    .rate("status patches, 32 at once", mine.patches, other.patches)
    .rate("server-side applies, 32 at once", mine.applies, other.applies)
    .measure("get, median", mine.gets.percentile(50), other.gets.percentile(50))
    .measure("get, 99 of 100 within", mine.gets.percentile(99), other.gets.percentile(99))
    .measure("list of 10,000 Jobs", mine.list, other.list)
    .rate("events to 100 watchers", mine.deliveries, other.deliveries)
    .memory("memory at rest", mine.at_rest, other.at_rest)
    .memory("memory for 10,000 Jobs", mine.for_jobs, other.for_jobs)
    .measure("cold start to the first 200", our_start, their_start)
    .measure("killed, and started with all Jobs", our_restart, their_restart)
    .note(format!("a list is {} bytes of ours, {} of theirs", mine.listed_bytes, other.listed_bytes))
    .note("the client runs on the same cores, and costs both sides the same"))
}

/// A server under load.
struct Side {
    name: &'static str,
    load: Load,
    /// Of its processes.
    ids: Vec<u32>,
}

impl Side {
    async fn measure(&self) -> anyhow::Result<Achieved> {
        let Side { load, .. } = self;
        let at_rest = memory_of(&self.ids)?;
        self.say("creating");
        load.create_namespace(LISTED).await?;
        load.create_namespace("written").await?;
        load.create_namespace("watched").await?;
        load.create("written", ONE_AT_A_TIME / 5, 2).await?; // connections and caches are warm from here on
        let creates_one = load.create("written", ONE_AT_A_TIME, 1).await?;
        let before = (memory_of(&self.ids)?, Cpu::of(&self.ids)?);
        let creates = load.create(LISTED, LISTED_JOBS, AT_ONCE).await?;
        let create_cpu = (Cpu::of(&self.ids)? - before.1) / u32::try_from(LISTED_JOBS)?;
        let for_jobs = memory_of(&self.ids)?.saturating_sub(before.0);
        self.say("changing");
        let patches = load.patch_status(LISTED, WRITES, AT_ONCE).await?;
        let applies = load.apply("written", WRITES, AT_ONCE).await?;
        self.say("reading");
        let gets = Samples::new(load.get(LISTED, GETS).await?);
        let mut lists = Vec::new();
        let mut listed_bytes = 0;
        for _ in 0..LISTS {
            let (time, bytes) = load.list(LISTED).await?;
            lists.push(time);
            listed_bytes = bytes;
        }
        self.say("watching");
        let deliveries = load.fan_out("watched", WATCHERS, WATCHED).await?;
        Ok(Achieved {
            creates_one,
            creates,
            create_cpu,
            patches,
            applies,
            gets,
            deliveries,
            at_rest,
            for_jobs,
            list: Samples::new(lists).percentile(50),
            listed_bytes,
        })
    }

    fn say(&self, doing: &str) {
        eprintln!("{}: {doing}", self.name);
    }
}
