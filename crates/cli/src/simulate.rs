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
    let seeds = arguments.range();
    let is_alone = seeds.end.saturating_sub(seeds.start) == 1;
    if is_alone {
        process::log("off");
    }
    let (started, runs, bad) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    simulation::run_all(seeds, &operator::Settings::default(), |outcome| {
        runs.fetch_add(1, Ordering::Relaxed);
        if !outcome.violations.is_empty() {
            bad.fetch_add(1, Ordering::Relaxed);
        }
        if !outcome.violations.is_empty() || is_alone {
            println!("{outcome}");
        }
        false
    });
    let (runs, bad, took) = (runs.into_inner(), bad.into_inner(), started.elapsed());
    eprintln!("{runs} runs in {took:.1?}, {bad} in which something happened that must never happen");
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_counted_from_the_first() {
        let range = |seeds, seed| Simulate { seeds, seed }.range();
        assert_eq!(range(None, None), 0..100);
        assert_eq!(range(Some(7), None), 0..7);
        assert_eq!(range(None, Some(42)), 42..43);
        assert_eq!(range(Some(7), Some(42)), 42..49);
        assert_eq!(range(Some(2), Some(u64::MAX)), u64::MAX..u64::MAX);
    }
}
