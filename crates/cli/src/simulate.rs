//! `ferry simulate`: faults by chance, and whether anything happens that must never happen.

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use fleet::simulation;

use crate::{arguments::Simulate, process};

/// Runs simulations on all cores. What is found is printed with the seed that repeats it; of one seed alone, `RUST_LOG` shows
/// what happens.
pub(crate) fn run(arguments: &Simulate) -> ExitCode {
    if arguments.seed.is_some() {
        process::log("off");
    }
    let seeds = match arguments.seed {
        Some(seed) => seed..seed.saturating_add(1),
        None => 0..arguments.seeds,
    };
    let (started, runs, bad) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    simulation::run_all(seeds, &operator::Settings::default(), |outcome| {
        runs.fetch_add(1, Ordering::Relaxed);
        if !outcome.violations.is_empty() {
            bad.fetch_add(1, Ordering::Relaxed);
        }
        if !outcome.violations.is_empty() || arguments.seed.is_some() {
            println!("{outcome}");
        }
        false
    });
    let (runs, bad, took) = (runs.into_inner(), bad.into_inner(), started.elapsed());
    eprintln!("{runs} runs in {took:.1?}, {bad} in which something happened that must never happen");
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
