use serde_json::{Value, json};
use types::kueue::TopologyAssignment;

use crate::quota::topology::{Place, Placement, encoding};

fn hosts(hosts: &[(&str, u32)]) -> Placement {
    Placement {
        levels: vec!["kubernetes.io/hostname".to_owned()],
        domains: hosts
            .iter()
            .map(|(host, count)| Place { values: vec![(*host).to_owned()], count: *count })
            .collect(),
    }
}

#[track_caller]
fn check(placement: &Placement, slices: Value) {
    let written = encoding::encode(placement);
    assert_eq!(serde_json::to_value(&written).expect("an assignment")["slices"], slices);
    assert_eq!(encoding::decode(&written).as_ref(), Some(placement));
}

#[test]
fn ta_5_what_domains_have_in_common_is_written_once() {
    check(
        &hosts(&[("x1", 2)]),
        json!([{ "domainCount": 1, "valuesPerLevel": [{ "universal": "x1" }], "podCounts": { "universal": 2 } }]),
    );
    check(
        &hosts(&[("ababa", 1), ("aba", 2)]),
        json!([{
            "domainCount": 2, "podCounts": { "individual": [1, 2] },
            "valuesPerLevel": [{ "individual": { "suffix": "aba", "roots": ["ab", ""] } }],
        }]),
    );
    let pools = hosts(&[
        ("a-long-name-of-a-pool-1", 1),
        ("a-long-name-of-a-pool-2", 1),
        ("another-quite-long-name-1", 3),
        ("another-quite-long-name-2", 3),
    ]);
    let whole = encoding::encode(&pools);
    assert_eq!(whole.slices.len(), 1, "two short slices are longer than one");
    let mut many = pools.clone();
    let numbered = |name: &'static str| (0..20).map(move |n| (format!("{name}-{n:02}"), 1));
    many.domains = numbered("a-long-name-of-a-pool")
        .chain(numbered("another-quite-long-name"))
        .map(|(host, count)| Place { values: vec![host], count })
        .collect();
    let split = encoding::encode(&many);
    assert_eq!(split.slices.len(), 2, "many of them are shorter by pool");
    assert_eq!(encoding::decode(&split), Some(many));
}

/// TA-5: whoever wrote it, and however.
#[test]
fn ta_5_every_way_to_write_it_is_read() {
    let read = |written: Value| {
        let written: TopologyAssignment = serde_json::from_value(written).expect("an assignment");
        encoding::decode(&written)
    };
    let written = json!({ "levels": ["block", "rack"], "slices": [
        { "domainCount": 2, "podCounts": { "universal": 2 }, "valuesPerLevel": [
            { "universal": "b1" }, { "individual": { "prefix": "r", "suffix": "x", "roots": ["1", "2"] } },
        ] },
        { "domainCount": 1, "podCounts": { "individual": [1] }, "valuesPerLevel": [
            { "individual": { "roots": ["b2"] } }, { "universal": "r3" },
        ] },
    ] });
    let placement = read(written.clone()).expect("a placement");
    assert_eq!(placement.to_string(), "b1/r1xx2, b1/r2xx2, b2/r3x1");
    assert_eq!(placement.count(), 5);
    let mut broken = written;
    broken["slices"][1]["valuesPerLevel"] = json!([]);
    assert_eq!(read(broken), None);
}
