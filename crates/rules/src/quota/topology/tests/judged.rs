//! Places that Kueue v0.19.2 found for random pods on random nodes, and its words where it found none.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use types::{
    Amount,
    kueue::{self, TopologyAssignment},
};

use crate::quota::{
    config::{Flavor, Topology},
    names::FlavorName,
    placing::{self, ToPlace},
    tests::scenario::workload,
    topology::{Ground, Node, Resources, Taken, encoding, ground::Spot},
    wire,
    workload::{PodSet, Workload},
};

/// One answer in a line.
const ANSWERS: &str = include_str!("../../../../tests/data/topology-kueue-v0.19.2.jsonl");

type Numbers = BTreeMap<String, i64>;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Case {
    pub(super) levels: Vec<String>,
    pub(super) nodes: Vec<Machine>,
    #[serde(default)]
    others: BTreeMap<String, Numbers>,
    #[serde(default)]
    taken: Vec<TakenOf>,
    pub(super) pod_sets: Vec<Pods>,
    #[serde(default)]
    pub(super) empty: bool,
    #[serde(default)]
    found: BTreeMap<String, TopologyAssignment>,
    #[serde(default)]
    why: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Machine {
    name: String,
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taint: String,
    cap: Numbers,
}

#[derive(Debug, Deserialize)]
struct TakenOf {
    values: Vec<String>,
    amount: Numbers,
}

#[derive(Debug, Deserialize)]
pub(super) struct Pods {
    name: String,
    count: u32,
    requests: Numbers,
    request: Option<kueue::PodSetTopologyRequest>,
    #[serde(default)]
    selector: BTreeMap<String, String>,
    #[serde(default)]
    tolerate: bool,
}

fn resources(numbers: &Numbers) -> Resources {
    numbers.iter().map(|(name, units)| (name.as_str().into(), Amount::new(*units))).collect()
}

impl Machine {
    fn node(&self) -> Arc<Node> {
        let taint = |(key, effect): (&str, &str)| {
            let (key, value) = key.split_once('=')?;
            let (key, effect) = (key.to_owned(), effect.to_owned());
            let value = Some(value.to_owned()).filter(|value| !value.is_empty());
            Some(k8s_openapi::api::core::v1::Taint { key, value, effect, time_added: None })
        };
        Arc::new(Node {
            name: self.name.clone(),
            labels: self.labels.clone(),
            taints: self.taint.split_once(':').and_then(taint).into_iter().collect(),
            capacity: resources(&self.cap),
        })
    }
}

impl Case {
    pub(super) fn all() -> impl Iterator<Item = Case> {
        ANSWERS.lines().map(|line| serde_json::from_str(line).expect("a recorded answer"))
    }

    pub(super) fn ground(&self) -> Ground {
        let topology = Topology { name: "default".to_owned(), levels: self.levels.clone() };
        let flavor = Flavor { topology: Some(topology), ..Flavor::new("f") };
        let mut ground = Ground::default().arranged([flavor].iter());
        let others = self.others.iter().map(|(node, amount)| (node.clone(), resources(amount))).collect();
        ground.settle(self.nodes.iter().map(Machine::node).collect(), others);
        let name = FlavorName::from("f");
        let taken = |it: &TakenOf| Taken {
            spot: Spot::of(&name, &self.levels, &it.values),
            amount: resources(&it.amount),
        };
        ground.take(&self.taken.iter().map(taken).collect::<Vec<_>>());
        ground
    }

    pub(super) fn workload(&self) -> Workload {
        let pod_set = |pods: &Pods| PodSet {
            name: pods.name.as_str().into(),
            count: pods.count,
            requests: resources(&pods.requests),
            group: pods.request.as_ref().and_then(|request| request.pod_set_group_name.clone()),
            node_selector: pods.selector.clone(),
            tolerations: if pods.tolerate {
                vec![k8s_openapi::api::core::v1::Toleration {
                    key: Some("k".to_owned()),
                    operator: Some("Exists".to_owned()),
                    ..Default::default()
                }]
            } else {
                Vec::new()
            },
            topology: pods.request.as_ref().map(wire::topology),
            ..PodSet::default()
        };
        workload("w", 0).asking(self.pod_sets.iter().map(pod_set).collect())
    }

    pub(super) fn to_place(&self) -> Vec<ToPlace> {
        let of = |(pod_set, pods): (usize, &Pods)| ToPlace {
            pod_set,
            flavor: "f".into(),
            count: pods.count,
            placed: None,
        };
        self.pod_sets.iter().enumerate().map(of).collect()
    }
}

/// TA-1, TA-3, TA-4, TA-5: the same domains, in the same words.
#[test]
fn ta_4_kueue_finds_the_same_places() {
    let (mut found, mut refused, mut wrong) = (0, 0, Vec::new());
    for (number, case) in Case::all().enumerate() {
        let ours = placing::find(&case.ground(), &case.workload(), &case.to_place(), case.empty);
        match ours {
            Ok(placements) => {
                found += 1;
                let ours: BTreeMap<String, TopologyAssignment> = placements
                    .iter()
                    .map(|(&index, placement)| {
                        (case.pod_sets[index].name.clone(), encoding::encode(placement))
                    })
                    .collect();
                if ours != case.found || !case.why.is_empty() {
                    wrong.push(format!("{number}: ours {ours:?}\n  Kueue {:?} {}", case.found, case.why));
                }
            }
            Err(misfit) => {
                refused += 1;
                if misfit.why != case.why {
                    wrong.push(format!(
                        "{number}: ours {}\n  Kueue {} {:?}",
                        misfit.why, case.why, case.found
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
    assert!(found > 100 && refused > 100, "{found} found, {refused} refused");
}
