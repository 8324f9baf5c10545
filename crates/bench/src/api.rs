//! An API server that keeps what it acknowledges: ours, beside a real kube-apiserver with its etcd. Both wait for the disk
//! before they answer a write, both are asked the same over TLS, one side after the other.

mod load;
mod server;

use std::time::Duration;

use testkit::ControlPlane;

use crate::{
    report::{Report, Samples},
    usage::{Cpu, memory_of, oldest},
};
use load::{LISTED, Load};
use server::Ours;

/// How many requests are made at once where it is not one.
const AT_ONCE: usize = 32;
const WATCHERS: usize = 100;
const LISTS: usize = 5;

/// How often everything is done.
#[derive(Clone, Copy)]
struct Counts {
    one_at_a_time: usize,
    writes: usize,
    gets: usize,
    listed: usize,
    watched: usize,
}

impl Counts {
    /// All of it, or a part.
    fn divided_by(divisor: usize) -> Counts {
        let part = |count: usize| (count / divisor).max(AT_ONCE);
        Counts {
            one_at_a_time: part(500),
            writes: part(4_000),
            gets: part(2_000),
            listed: part(10_000),
            watched: part(500),
        }
    }
}

/// What one side has achieved.
struct Achieved {
    creates_one: f64,
    creates: Rate,
    patches: Rate,
    applies: Rate,
    gets: Samples,
    deliveries: Rate,
    at_rest: u64,
    for_jobs: u64,
    list: Duration,
    listed_bytes: usize,
}

/// How often in a second, and what the server took for each.
struct Rate {
    per_second: f64,
    cpu: Duration,
}

pub(crate) async fn run(divisor: usize) -> anyhow::Result<Report> {
    let counts = Counts::divided_by(divisor);
    eprintln!("starting ours");
    let (mut ours, our_start) = Ours::start().await?;
    let side = Side { name: "ours", load: Load(ours.client()), ids: ours.process_ids(), counts };
    let mine = side.measure().await?;
    let our_restart = ours.restart().await?;
    // It does nothing more, and costs the other side nothing.
    eprintln!("starting theirs");
    let theirs = ControlPlane::builder().durable().start().await?;
    let their_start = oldest(&theirs.process_ids())?;
    let side = Side { name: "theirs", load: Load(theirs.client()), ids: theirs.process_ids(), counts };
    let other = side.measure().await?;
    theirs.kill();
    theirs.restart().await?;
    let their_restart = oldest(&theirs.process_ids())?;

    let Counts { listed, .. } = counts;
    Ok(Report::new(
        "api",
        format!("Jobs created, changed, read and watched; {listed} of them kept"),
        "ferry cluster --nodes=0 --controllers=none --data DIR",
        "kube-apiserver v1.35.8 and etcd, which syncs",
    )
    .rate("creates, one at a time", mine.creates_one, other.creates_one)
    .rate("creates, 32 at once", mine.creates.per_second, other.creates.per_second)
    .measure("  processor time of the server, each", mine.creates.cpu, other.creates.cpu)
    .rate("status patches, 32 at once", mine.patches.per_second, other.patches.per_second)
    .measure("  processor time of the server, each", mine.patches.cpu, other.patches.cpu)
    .rate("server-side applies, 32 at once", mine.applies.per_second, other.applies.per_second)
    .measure("  processor time of the server, each", mine.applies.cpu, other.applies.cpu)
    .measure("get, median", mine.gets.percentile(50), other.gets.percentile(50))
    .measure("get, 99 of 100 within", mine.gets.percentile(99), other.gets.percentile(99))
    .measure("list of all Jobs", mine.list, other.list)
    .rate("events to 100 watchers", mine.deliveries.per_second, other.deliveries.per_second)
    .measure("  processor time of the server, each", mine.deliveries.cpu, other.deliveries.cpu)
    .memory("memory at rest", mine.at_rest, other.at_rest)
    .memory("memory for the Jobs", mine.for_jobs, other.for_jobs)
    .measure("cold start to the first 200", our_start, their_start)
    .measure("killed, and started with all Jobs", our_restart, their_restart)
    .note(format!("a list is {} bytes of ours, {} of theirs", mine.listed_bytes, other.listed_bytes))
    .note(
        "one side after the other; the client runs on the same cores, and costs both the same for a request",
    )
    .note("both wait for the disk before they acknowledge a write"))
}

/// A server under load.
struct Side {
    name: &'static str,
    load: Load,
    /// Of its processes.
    ids: Vec<u32>,
    counts: Counts,
}

impl Side {
    async fn measure(&self) -> anyhow::Result<Achieved> {
        let Side { load, counts, .. } = self;
        let at_rest = memory_of(&self.ids)?;
        self.say("creating");
        for namespace in [LISTED, "written", "watched"] {
            load.create_namespace(namespace).await?;
        }
        load.create("written", counts.one_at_a_time / 5, 2).await?; // connections and caches are warm from here on
        let creates_one = load.create("written", counts.one_at_a_time, 1).await?;
        let before = memory_of(&self.ids)?;
        let creates = self.rate(counts.listed, load.create(LISTED, counts.listed, AT_ONCE)).await?;
        let for_jobs = memory_of(&self.ids)?.saturating_sub(before);
        self.say("changing");
        let patches = self.rate(counts.writes, load.patch_status(LISTED, counts.writes, AT_ONCE)).await?;
        let applies = self.rate(counts.writes, load.apply("written", counts.writes, AT_ONCE)).await?;
        self.say("reading");
        let gets = Samples::new(load.get(LISTED, counts.gets).await?);
        let mut lists = Vec::new();
        let mut listed_bytes = 0;
        for _ in 0..LISTS {
            let (time, bytes) = load.list(LISTED).await?;
            lists.push(time);
            listed_bytes = bytes;
        }
        self.say("watching");
        let delivered = WATCHERS * counts.watched;
        let deliveries = self.rate(delivered, load.fan_out("watched", WATCHERS, counts.watched)).await?;
        let list = Samples::new(lists).percentile(50);
        Ok(Achieved {
            creates_one,
            creates,
            patches,
            applies,
            gets,
            deliveries,
            at_rest,
            for_jobs,
            list,
            listed_bytes,
        })
    }

    /// How fast something goes that is done so many times, and what the server takes for it.
    async fn rate(
        &self,
        count: usize,
        work: impl Future<Output = anyhow::Result<f64>>,
    ) -> anyhow::Result<Rate> {
        let before = Cpu::of(&self.ids)?;
        let per_second = work.await?;
        Ok(Rate { per_second, cpu: (Cpu::of(&self.ids)? - before) / u32::try_from(count)? })
    }

    fn say(&self, doing: &str) {
        eprintln!("{}: {doing}", self.name);
    }
}
