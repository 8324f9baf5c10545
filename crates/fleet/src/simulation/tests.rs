//! Many seeds, the same twice, and bugs that are found.

use operator::dispatch::Planted;

use super::*;

/// `SEEDS` says how many, for those who have more time.
fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(4)
}

#[test]
fn nothing_happens_that_must_never_happen() {
    let bad: Vec<String> =
        (0..seeds()).map(run).filter(|it| !it.violations.is_empty()).map(|it| it.to_string()).collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn a_seed_is_repeated_exactly() {
    for seed in [3, 14] {
        assert_eq!(run(seed), run(seed));
    }
}

/// A bug is found within so many seeds.
const LOOK: u64 = 500;

/// A bug is found: with a seed that shows nothing without it.
#[track_caller]
fn check(what: &str, settings: &Settings) {
    let found = (0..LOOK).find_map(|seed| {
        let outcome = run_with(seed, settings.clone());
        (!outcome.violations.is_empty() && run(seed).violations.is_empty()).then_some(outcome)
    });
    let found = found.unwrap_or_else(|| panic!("{what} was not found"));
    println!("{what}: {found}");
}

fn planted(bug: Planted) -> Settings {
    let mut settings = Settings::default();
    settings.dispatch.planted = Some(bug);
    settings
}

#[test]
fn cleaning_up_before_the_end_is_recorded_is_found() {
    check("cleaning up first", &planted(Planted::CleansUpFirst));
}

#[test]
#[ignore = "rare: needs many seeds, and minutes without optimisation"]
fn trusting_a_stale_watch_is_found() {
    check("trusting a stale watch", &planted(Planted::TrustsAStaleWatch));
}

#[test]
#[ignore = "rare: needs many seeds, and minutes without optimisation"]
fn ignoring_uids_is_found() {
    check("ignoring uids", &planted(Planted::IgnoresUids));
}

/// Without doubt about what was sent and not answered.
#[test]
#[ignore = "rare: needs many seeds, and minutes without optimisation"]
fn counting_a_lost_answer_as_a_failed_create_is_found() {
    let mut settings = Settings::default();
    settings.dispatch.doubt = Duration::ZERO;
    check("counting a lost answer as a failure", &settings);
}
