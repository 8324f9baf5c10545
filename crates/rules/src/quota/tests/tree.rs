use types::Amount;

use super::scenario::{amount, check, cohort, queue, quota, scenario, workload};
use crate::quota::{
    config::{ClusterQueue, Cohort},
    names::FlavorResource,
    tree::{CellId, NodeId, Tree},
};

/// One account book, of `cpu` in `default`.
struct Book(Tree);

impl Book {
    fn new(cohorts: &[Cohort], queues: &[ClusterQueue]) -> Book {
        Book(Tree::new(cohorts, queues))
    }

    fn node(&self, name: &str) -> NodeId {
        self.0
            .queue(&name.into())
            .or_else(|| self.0.cohort(&name.into()))
            .expect("the test names what it set up")
    }

    fn cell(&mut self, name: &str) -> CellId {
        let node = self.node(name);
        self.0.open(node, &FlavorResource::new("default", "cpu")).1
    }

    fn add(&mut self, name: &str, cores: i64) {
        let cell = self.cell(name);
        self.0.add(cell, amount("cpu", cores));
    }

    fn remove(&mut self, name: &str, cores: i64) {
        let cell = self.cell(name);
        self.0.remove(cell, amount("cpu", cores));
    }

    #[track_caller]
    fn check(&mut self, what: &str, of: fn(&Tree, CellId) -> Amount, want: &[(&str, i64)]) {
        for &(name, cores) in want {
            let cell = self.cell(name);
            assert_eq!(of(&self.0, cell), amount("cpu", cores), "{what} of {name}");
        }
    }
}

fn available(tree: &Tree, cell: CellId) -> Amount {
    tree.available(cell).or_zero()
}

fn qm_v1() -> Book {
    Book::new(
        &[],
        &[
            queue("a", quota(10).borrow(5)).part_of("root"),
            queue("b", quota(10).lend(4)).part_of("root"),
            queue("c", quota(0)).part_of("root"),
        ],
    )
}

#[test]
fn qm_v1_limits_in_a_flat_cohort() {
    let mut book = qm_v1();
    book.check("subtree", Tree::subtree, &[("root", 14)]);
    book.check("local", Tree::local, &[("b", 6), ("a", 0)]);
    book.check("potential", Tree::potential, &[("a", 14), ("b", 20), ("c", 14)]);
    book.check("available", available, &[("a", 14), ("b", 20), ("c", 14)]);
    book.add("a", 12);
    book.check("usage", Tree::usage, &[("root", 12)]);
    book.check("available", available, &[("a", 2), ("b", 8), ("c", 2)]);
    book.add("b", 8);
    book.check("usage", Tree::usage, &[("root", 14)]);
    book.check("available", available, &[("a", 0), ("b", 0), ("c", 0)]);
    book.remove("b", 3);
    book.check("usage", Tree::usage, &[("b", 5), ("root", 12)]);
    book.check("available", available, &[("a", 2), ("b", 3), ("c", 2)]);
}

pub(super) fn qm_v2_parts() -> (Vec<Cohort>, Vec<ClusterQueue>) {
    let mut org1 = cohort("org1", Some("root"), quota(0).borrow(2).lend(3));
    org1.weight = 1.0;
    let cohorts = vec![cohort("root", None, quota(4)), org1, cohort("org2", Some("root"), quota(6))];
    let queues = vec![
        queue("t1", quota(5)).part_of("org1"),
        queue("t2", quota(5)).part_of("org1"),
        queue("t3", quota(2)).part_of("org2"),
    ];
    (cohorts, queues)
}

#[test]
fn qm_v2_limits_in_a_hierarchy() {
    let (cohorts, queues) = qm_v2_parts();
    let mut book = Book::new(&cohorts, &queues);
    book.check("subtree", Tree::subtree, &[("org1", 10), ("root", 15)]);
    book.check("local", Tree::local, &[("org1", 7)]);
    book.check("potential", Tree::potential, &[("t1", 12), ("t3", 15)]);
    book.add("t1", 9);
    book.check("usage", Tree::usage, &[("org1", 9), ("root", 2)]);
    book.check("available", available, &[("t2", 3), ("t3", 13)]);
    book.add("t1", 3);
    book.check("usage", Tree::usage, &[("root", 5)]);
    book.check("available", available, &[("t1", 0), ("t2", 0), ("t3", 10)]);
}

#[test]
fn qm_8_available_is_negative_after_a_quota_cut() {
    let mut book = Book::new(&[], &[queue("a", quota(2))]);
    book.add("a", 5);
    book.check("available", Tree::available, &[("a", -3)]);
    book.remove("a", 4);
    book.check("available", Tree::available, &[("a", 1)]);
}

#[test]
fn qm_11_borrow_levels() {
    let (cohorts, queues) = qm_v2_parts();
    let mut book = Book::new(&cohorts, &queues);
    let mut check = |cores: i64, level: usize, below_root: bool| {
        let cell = book.cell("t1");
        let borrowing = book.0.borrowing(cell, amount("cpu", cores));
        assert_eq!((borrowing.level, borrowing.below_root), (level, below_root), "{cores} cores");
    };
    check(5, 0, true);
    check(10, 1, true);
    check(11, 2, false);
    check(100, 2, false);
    let mut alone = Book::new(&[], &[queue("alone", quota(1))]);
    let cell = alone.cell("alone");
    assert_eq!(alone.0.borrowing(cell, amount("cpu", 7)).level, 0);
}

#[test]
fn co_3_a_named_cohort_exists_without_object() {
    let mut book =
        Book::new(&[], &[queue("a", quota(1)).part_of("implicit"), queue("b", quota(2)).part_of("implicit")]);
    book.check("subtree", Tree::subtree, &[("implicit", 3)]);
    book.check("available", available, &[("a", 3)]);
}

#[test]
fn co_4_cyclic_cohorts_stand_alone() {
    let cohorts = [
        cohort("x", Some("y"), quota(1)),
        cohort("y", Some("x"), quota(1)),
        cohort("below", Some("x"), quota(1)),
    ];
    let book =
        Book::new(&cohorts, &[queue("a", quota(1)).part_of("below"), queue("b", quota(1)).part_of("fine")]);
    for name in ["x", "y", "below", "a"] {
        assert!(book.0.is_cyclic(book.node(name)), "{name}");
    }
    assert!(!book.0.is_cyclic(book.node("b")));
}

#[test]
fn api_5_unlimited_quota_never_runs_out() {
    let unlimited = crate::quota::config::Quota { nominal: Amount::UNLIMITED, ..quota(0) };
    let mut book =
        Book::new(&[], &[queue("a", unlimited).part_of("root"), queue("b", unlimited).part_of("root")]);
    book.add("a", 1 << 40);
    let cell = book.cell("b");
    assert!(book.0.available(cell).is_unlimited());
    let root = book.cell("root");
    assert!(book.0.subtree(root).is_unlimited());
}

#[test]
fn a_flavor_that_was_taken_away_still_counts_above() {
    let mut book =
        Book::new(&[], &[queue("a", quota(0)).part_of("root"), queue("b", quota(4)).part_of("root")]);
    let gone = FlavorResource::new("gone", "cpu");
    let node = book.node("a");
    let (fr, cell) = book.0.open(node, &gone);
    book.0.add(cell, amount("cpu", 3));
    let root = book.0.cell(book.node("root"), fr).expect("opened with the account below");
    assert_eq!(book.0.usage(root), amount("cpu", 3));
    assert!(book.0.listed(node).all(|(listed, _)| listed != fr));
}

#[test]
fn the_bottleneck_is_who_has_nothing_left() {
    let (cohorts, queues) = qm_v2_parts();
    let mut book = Book::new(&cohorts, &queues);
    book.add("t1", 12);
    let cell = book.cell("t1");
    assert_eq!(book.0.name(book.0.bottleneck(cell)).to_string(), "Cohort org1");
    let cell = book.cell("t3");
    assert_eq!(book.0.name(book.0.bottleneck(cell)).to_string(), "Cohort root");
    assert_eq!(book.0.path(book.node("t3")), "/root/org2/t3");
}

#[test]
fn qm_1_co_2_a_cohort_adds_its_own_quota_to_what_its_children_lend() {
    let cohorts = [cohort("root", None, quota(4))];
    let queues = [queue("a", quota(10).lend(3)).part_of("root"), queue("b", quota(5)).part_of("root")];
    let mut book = Book::new(&cohorts, &queues);
    book.check("subtree", Tree::subtree, &[("a", 10), ("b", 5), ("root", 12)]);
}

#[test]
fn qm_2_qm_3_what_is_not_lent_is_used_first_and_seen_by_nobody_else() {
    let queues = [queue("a", quota(10).lend(3)).part_of("root"), queue("b", quota(5)).part_of("root")];
    let mut book = Book::new(&[], &queues);
    book.check("local", Tree::local, &[("a", 7), ("b", 0), ("root", 0)]);
    book.check("available", available, &[("a", 15), ("b", 8)]);
    book.add("a", 5);
    book.check("available", available, &[("a", 10), ("b", 8)]);
    book.add("a", 4);
    book.check("available", available, &[("a", 6), ("b", 6)]);
}

#[test]
fn qm_4_qm_5_nobody_borrows_more_than_he_may() {
    let queues = [queue("a", quota(2).borrow(3)).part_of("root"), queue("b", quota(10)).part_of("root")];
    let mut book = Book::new(&[], &queues);
    book.check("potential", Tree::potential, &[("a", 5), ("b", 12), ("root", 12)]);
    book.check("available", available, &[("a", 5), ("b", 12)]);
    book.add("b", 9);
    book.check("available", available, &[("a", 3), ("b", 3)]);
    book.remove("b", 9);
    book.add("a", 4);
    book.check("available", available, &[("a", 1), ("b", 8)]);
    book.check("potential", Tree::potential, &[("a", 5), ("b", 12)]);
}

#[test]
fn qm_6_what_was_borrowed_is_given_back_first() {
    let mut book = Book::new(&[], &[queue("a", quota(10).lend(4)).part_of("root")]);
    book.add("a", 8);
    book.check("usage", Tree::usage, &[("a", 8), ("root", 2)]);
    book.remove("a", 1);
    book.check("usage", Tree::usage, &[("a", 7), ("root", 1)]);
    book.remove("a", 3);
    book.check("usage", Tree::usage, &[("a", 4), ("root", 0)]);
}

#[test]
fn qm_7_a_cohort_uses_what_its_children_do_not_have_to_themselves() {
    let of_a = |quota| {
        vec![queue("a", quota).part_of("root"), queue("b", super::scenario::quota(5)).part_of("root")]
    };
    let mut book = Book::new(&[], &of_a(quota(10).lend(4)));
    book.add("a", 8);
    book.add("b", 3);
    book.check("usage", Tree::usage, &[("root", 5)]);

    let mut scenario = scenario().running("a", &workload("w", 8), 8).running("b", &workload("v", 3), 3);
    scenario.config.cluster_queues = of_a(quota(10).lend(4));
    let mut snapshot = scenario.snapshot();
    scenario.config.cluster_queues = of_a(quota(10));
    snapshot.configure(scenario.config.clone());
    let mut rebuilt = Book(snapshot.tree().clone());
    rebuilt.check("usage after quota was edited", Tree::usage, &[("a", 8), ("b", 3), ("root", 11)]);
}

#[test]
fn qm_9_a_queue_borrows_beyond_its_nominal_quota_and_up_to_its_limit() {
    let asking = |cores| {
        scenario()
            .queue(queue("a", quota(2).borrow(3)).part_of("root"))
            .queue(queue("b", quota(10)).part_of("root"))
            .head("a", workload("w", cores))
    };
    check("QM-9 nominal", &asking(2), &["admit ns/w to a with mainx1 cpu=2@default"]);
    check("QM-9 limit", &asking(5), &["admit ns/w to a with mainx1 cpu=5@default, borrowing"]);
    check("QM-9 beyond", &asking(6), &["keep ns/w out of a, because couldn't assign…"]);
}
