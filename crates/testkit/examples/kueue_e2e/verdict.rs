//! What is said of the outcome: each spec, how many passed, and whether that is what was expected.

use std::{collections::BTreeMap, process::ExitCode};

use crate::{
    settings::{Settings, Which},
    suite::Outcome,
};

/// Specs that cannot pass yet, with the reason. It only shrinks.
const CANNOT: &str = include_str!("cannot.txt");
/// The same on embedded clusters.
const CANNOT_EMBEDDED: &str = include_str!("cannot-embedded.txt");

/// Specs that nobody can run here, whoever is on trial, with the reason. It only shrinks.
const NOT_HERE: &str = include_str!("not-here.txt");

pub(crate) fn judge(outcome: &Outcome, settings: &Settings) -> ExitCode {
    let specs = &outcome.ran;
    let mut cannot = if settings.has_ferry() { read(CANNOT) } else { BTreeMap::new() };
    if settings.embedded {
        cannot.append(&mut read(CANNOT_EMBEDDED));
    }
    let mut surprises = 0;
    // Where only some are asked for, the others are left out for that.
    if settings.focus.is_none() {
        let not_here = if settings.suite == Which::Extended { read(NOT_HERE) } else { BTreeMap::new() };
        for name in &outcome.skipped {
            if let Some(why) = not_here.get(name.as_str()) {
                println!("not run          {name}: {why}");
            } else {
                surprises += 1;
                println!("NOT RUN          {name}, and nobody says why");
            }
        }
    }
    for spec in specs {
        let why = cannot.get(spec.name.as_str());
        println!(
            "{} {:5.1} s  {}",
            if spec.passed { "passed" } else { "FAILED" },
            spec.took.as_secs_f64(),
            spec.name
        );
        match (spec.passed, why) {
            (true, None) => {}
            (false, Some(why)) => println!("       as expected: {why}"),
            (true, Some(_)) => {
                surprises += 1;
                println!("       which is better than expected: take it off the list of what cannot pass");
            }
            (false, None) => {
                surprises += 1;
                println!("       {}", spec.failure.as_deref().unwrap_or("it does not say why"));
            }
        }
    }
    let passed = specs.iter().filter(|spec| spec.passed).count();
    println!(
        "{passed} of {} passed on {} clusters, with {:?} on the manager and {:?} on the workers; {surprises} not as expected",
        specs.len(),
        if settings.embedded { "embedded" } else { "real" },
        settings.manager,
        settings.workers,
    );
    // A suite that ran nothing proves nothing.
    if surprises == 0 && !specs.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The names of specs that nobody can run here.
pub(crate) fn not_here() -> impl Iterator<Item = &'static str> {
    read(NOT_HERE).into_keys()
}

/// Reasons by the names of specs: a line each, with the name first.
fn read(list: &'static str) -> BTreeMap<&'static str, &'static str> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" | ")).collect()
}
