//! Many seeds, the same twice, and bugs that are found.

use operator::dispatch::Planted;

use super::*;

/// As many as fit in about a minute without optimisation; `SEEDS` says how many, for those who have more time.
fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(40)
}

#[test]
fn nothing_happens_that_must_never_happen() {
    let bad = Mutex::new(BTreeMap::new());
    run_all(0..seeds(), &Settings::default(), |outcome| {
        if !outcome.violations.is_empty() {
            bad.lock().expect("nobody panics here").insert(outcome.seed, outcome.to_string());
        }
        false
    });
    let bad: Vec<String> = bad.into_inner().expect("nobody panics here").into_values().collect();
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn a_seed_is_repeated_exactly() {
    for seed in [3, 14] {
        assert_eq!(run(seed), run(seed));
    }
}

/// A Workload that was deleted, or that no longer fits its Job, was let go at once: the Job waited for ever for pods that
/// nobody told of any more, or ran elsewhere while they went.
#[test]
fn a_job_whose_workload_is_deleted_runs_again() {
    let climate = Climate { meddlers: 60, ..Climate::default() };
    for seed in 0..6 {
        let outcome = run_in(Some(climate), seed, Settings::default());
        assert!(outcome.violations.is_empty(), "{outcome}");
    }
}

/// Found by seeds 19 and 22: the first waited for the Workload of the earlier Job, the second for its mirror, for ever.
#[test]
fn a_job_that_is_deleted_and_submitted_again_at_once_runs() {
    let climate = Climate { deletes: 60, ..Climate::default() };
    for seed in 0..4 {
        let outcome = run_in(Some(climate), seed, Settings::default());
        assert!(outcome.violations.is_empty(), "{outcome}");
    }
}

/// Found by seeds 420, 810, 1590 and 1868: that a Workload had ended was told of the Job that now has the name of its own.
#[test]
fn what_became_of_a_job_is_not_told_of_the_next_one_of_its_name() {
    let climate = Climate { deletes: 100, naps: 60, ..Climate::default() };
    for seed in 14..18 {
        let outcome = run_in(Some(climate), seed, Settings::default());
        assert!(outcome.violations.is_empty(), "{outcome}");
    }
}

/// Slices come and go while workers do: the Job runs once at most, and comes to its end.
#[test]
fn elastic_jobs_are_resized_on_the_worker_that_runs_them() {
    let climate = Climate { meddlers: 100, elastic: 1000, evictions: 10, naps: 10, ..Climate::default() };
    for seed in 0..6 {
        let outcome = run_in(Some(climate), seed, Settings::default());
        assert!(outcome.violations.is_empty(), "{outcome}");
    }
}

/// Found by seeds 20, 91 and 97 of those that submit pods: a group ended before the ends of its pods were known, was taken back
/// with what had ended and not been recorded, or waited for ever for a pod that its worker had deleted.
#[test]
fn groups_of_pods_run_together_and_their_ends_are_kept() {
    let workers = Weather { stalled: 60, ..Weather::default() };
    let climate = Climate { workers, pods: true, evictions: 10, deactivations: 30, ..Climate::default() };
    for seed in 0..6 {
        let outcome = run_in(Some(climate), seed, Settings::default());
        assert!(outcome.violations.is_empty(), "{outcome}");
    }
}

/// Calls to its own cluster had no deadline: one that was never answered kept the operator from that object for ever.
#[test]
fn a_manager_that_falls_silent_is_asked_again() {
    let manager = Weather { lost: 40, unheard: 40, silent: 1000, ..Weather::default() };
    for seed in 0..4 {
        let outcome = run_in(Some(Climate { manager, ..Climate::default() }), seed, Settings::default());
        assert!(outcome.violations.is_empty(), "{outcome}");
    }
}

/// A bug is found within so many seeds.
const LOOK: u64 = 200;

/// A bug is found by what it does: with a seed that shows nothing without it. The climate is one in which it matters, as
/// ordinary seeds draw it now and then.
#[track_caller]
fn check(what: &str, does: &str, climate: Option<Climate>, settings: &Settings) {
    let (tried, found) = (AtomicU64::new(0), Mutex::new(None));
    run_all_in(climate, 0..LOOK, settings, |outcome| {
        tried.fetch_add(1, Ordering::Relaxed);
        let does_it = outcome.violations.iter().any(|violation| violation.contains(does));
        let is_it = does_it && run_in(climate, outcome.seed, Settings::default()).violations.is_empty();
        if is_it {
            *found.lock().expect("nobody panics here") = Some(outcome);
        }
        is_it
    });
    let found = found.into_inner().expect("nobody panics here");
    let found = found.unwrap_or_else(|| panic!("{what} was not found"));
    println!("{what}: found after {} seeds: {found}", tried.into_inner());
}

fn planted(bug: Planted) -> Settings {
    let mut settings = Settings::default();
    settings.dispatch.planted = Some(bug);
    settings
}

#[test]
fn cleaning_up_before_the_end_is_recorded_is_found() {
    let does = "was removed there before its end was recorded";
    check("cleaning up first", does, None, &planted(Planted::CleansUpFirst));
}

#[test]
fn ignoring_uids_is_found() {
    check("ignoring uids", "ended without having run", None, &planted(Planted::IgnoresUids));
}

/// New jobs of which nobody hears, and Workloads that are taken back while pods go on.
#[test]
fn trusting_a_stale_watch_is_found() {
    let workers = Weather { aimed: 900, ..Weather::default() };
    let climate = Climate { workers, naps: 40, deactivations: 80, ..Climate::default() };
    check("trusting a stale watch", "at once", Some(climate), &planted(Planted::TrustsAStaleWatch));
}

/// Without doubt about what was sent and not answered, where much arrives late.
#[test]
fn counting_a_lost_answer_as_a_failed_create_is_found() {
    let workers = Weather { aimed: 900, late: 300, silent: 900, ..Weather::default() };
    let climate = Climate { workers, naps: 20, deactivations: 80, evictions: 10, ..Climate::default() };
    let mut settings = Settings::default();
    settings.dispatch.doubt = Duration::ZERO;
    check("counting a lost answer as a failure", "at once", Some(climate), &settings);
}
