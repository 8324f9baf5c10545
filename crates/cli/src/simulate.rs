//! `ferry simulate`: faults by chance, and whether anything happens that must never happen.

use std::process::ExitCode;

use fleet::simulation;

use crate::arguments::Simulate;

/// Runs simulations. What is found is printed with the seed that repeats it.
pub(crate) fn run(arguments: &Simulate) -> ExitCode {
    let seeds = match arguments.seed {
        Some(seed) => seed..seed.saturating_add(1),
        None => 0..arguments.seeds,
    };
    let (mut runs, mut bad) = (0_u64, 0_u64);
    for seed in seeds {
        let outcome = simulation::run(seed);
        runs += 1;
        if !outcome.violations.is_empty() {
            bad += 1;
        }
        if !outcome.violations.is_empty() || arguments.seed.is_some() {
            println!("{outcome}");
        }
    }
    eprintln!("{runs} runs, {bad} in which something happened that must never happen");
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
