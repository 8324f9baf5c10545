//! What we compare with whom, side by side in one run: `cargo run --release -p bench -- NAME [--json]`.
//!
//! A benchmark starts everything it compares, on this machine and at the same time, and prints both sides, their ratio
//! and the machine. It asserts nothing: a number is for people to judge.

mod api;
mod cluster;
mod dispatch;
mod machine;
mod queues;
mod report;
mod usage;
mod validate;

use clap::{Parser, ValueEnum};

use crate::machine::Machine;

/// As in the program that is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compares Ferry with what it stands beside, on this machine.
#[derive(Parser)]
struct Arguments {
    /// What to compare.
    name: Name,
    /// Prints the results as JSON, for keeping.
    #[arg(long)]
    json: bool,
    /// Does only one of so many parts of the work, to see whether it can be done; of `api` only.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    divide: u16,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// Jobs from create to Complete: an embedded cluster, and a real control plane.
    Cluster,
    /// Jobs over two workers: Ferry and Kueue on real control planes, and an embedded fleet.
    Dispatch,
    /// A verdict about a Job: our rules as a library, and a dry-run create on kube-apiserver.
    Validate,
    /// An API server that keeps what it acknowledges: ours, and kube-apiserver with etcd.
    Api,
    /// Workloads through quota: the operator, and Kueue's manager; also embedded, and the cycle alone.
    Queues,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if cfg!(debug_assertions) {
        eprintln!("note: this is a debug build; `cargo run --release -p bench` gives numbers worth keeping");
    }
    let report = match arguments.name {
        Name::Cluster => cluster::run().await?,
        Name::Dispatch => Box::pin(dispatch::run()).await?,
        Name::Validate => validate::run().await?,
        Name::Api => Box::pin(api::run(arguments.divide.into())).await?,
        Name::Queues => Box::pin(queues::run()).await?,
    };
    let report = report.on(Machine::read()?);
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    Ok(())
}
