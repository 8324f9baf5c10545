//! Which pods of a Workload that was placed by topology may be scheduled now, and where (TA-6).
//!
//! A pod with a number has its place: the domains are filled in order. Where numbers are missing or contradict what runs
//! already, any pod takes any place that is free.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use types::kueue::{PodSetAssignment, PodSetTopologyRequest, Workload};

use super::{POD_SET_LABEL, TOPOLOGY_GATE};
use crate::{
    quota::topology::{Placement, encoding, read},
    workload::{slice, state},
};

/// From which number on the pods of a pod set are counted.
pub const INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";

/// A pod that may be scheduled now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ungated {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The labels that its node must have.
    pub node_selector: BTreeMap<String, String>,
}

/// The name by which pods know their Workload: that of the first slice, where there are several.
pub fn known_as(workload: &Workload) -> &str {
    slice::name(workload).or(workload.metadata.name.as_deref()).unwrap_or_default()
}

/// The same, as a pod says it.
pub fn belongs_to(pod: &Pod) -> Option<&str> {
    let annotations = pod.metadata.annotations.as_ref()?;
    let name = annotations.get(slice::SLICE_NAME).or_else(|| annotations.get(super::WORKLOAD_ANNOTATION));
    name.map(String::as_str)
}

/// Whether a Workload was admitted with places for its pods.
pub fn is_placed(workload: &Workload) -> bool {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let placed = |it: &PodSetAssignment| it.topology_assignment.is_some();
    admission.is_some_and(|admission| admission.pod_set_assignments.iter().any(placed))
        && state::is_admitted(workload)
        && !state::is_evicted(workload)
        && !state::is_finished(workload)
}

/// Which of its pods may be scheduled now.
pub fn ungated(workload: &Workload, pods: &[Arc<Pod>]) -> Vec<Ungated> {
    if !is_placed(workload) {
        return Vec::new();
    }
    let Some(admission) = workload.status.as_ref().and_then(|status| status.admission.as_ref()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for assigned in &admission.pod_set_assignments {
        let Some(placement) = assigned.topology_assignment.as_ref().and_then(encoding::decode) else {
            continue;
        };
        let is_of =
            |pod: &&Arc<Pod>| label(pod, POD_SET_LABEL) == Some(&assigned.name) && !read::has_ended(pod);
        let pods: Vec<&Pod> = pods.iter().filter(is_of).map(|pod| &**pod).collect();
        let numbers = Numbers::of(workload, assigned, &admission.pod_set_assignments);
        let places = Places::of(&placement);
        let found = numbers.and_then(|numbers| places.by_number(&pods, &numbers));
        for (pod, place) in found.unwrap_or_else(|| places.any(&pods)) {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            all.push(Ungated {
                name: text(&pod.metadata.name),
                uid: text(&pod.metadata.uid),
                node_selector: placement.levels.iter().cloned().zip(place.iter().cloned()).collect(),
            });
        }
    }
    all
}

fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a String> {
    pod.metadata.labels.as_ref()?.get(key)
}

fn is_gated(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| gates.iter().any(|gate| gate.name == TOPOLOGY_GATE))
}

/// How the pods of a pod set are numbered.
struct Numbers<'a> {
    request: &'a PodSetTopologyRequest,
    index_label: &'a str,
    /// How many pods there are.
    count: i64,
    /// The number of the first, where others of its group come before.
    first: i64,
}

impl<'a> Numbers<'a> {
    fn of(
        workload: &'a Workload,
        assigned: &PodSetAssignment,
        all: &[PodSetAssignment],
    ) -> Option<Numbers<'a>> {
        let request = |name: &str| {
            let pod_set = workload.spec.pod_sets.iter().find(|it| it.name() == name);
            pod_set.and_then(|pod_set| pod_set.topology_request.as_ref())
        };
        let asked = request(&assigned.name)?;
        let count = |it: &PodSetAssignment| i64::from(it.count.unwrap_or_default());
        // Of two that belong together the smaller leads, and has the first numbers.
        let together = |it: &&PodSetAssignment| {
            asked.pod_set_group_name.is_some()
                && request(&it.name).is_some_and(|other| other.pod_set_group_name == asked.pod_set_group_name)
        };
        let group: Vec<&PodSetAssignment> = all.iter().filter(together).collect();
        let first = match group[..] {
            [one, other, ..] => {
                let (leader, others) = if count(one) > count(other) { (other, one) } else { (one, other) };
                if others.name == assigned.name { count(leader) } else { 0 }
            }
            _ => 0,
        };
        let index_label = asked.pod_index_label.as_deref()?;
        Some(Numbers { request: asked, index_label, count: count(assigned), first })
    }

    /// The numbers of pods; `None` if one of them has none, or they cannot be.
    fn read<'p>(&self, pods: &[&'p Pod]) -> Option<HashMap<usize, &'p Pod>> {
        let annotations = pods.first().and_then(|pod| pod.metadata.annotations.as_ref());
        let offset = annotations.and_then(|annotations| annotations.get(INDEX_OFFSET));
        let offset: i64 = offset.map_or(Some(0), |offset| offset.parse().ok())?;
        let (first, groups) =
            (self.first + offset, i64::from(self.request.sub_group_count.unwrap_or_default()));
        let group_size = match self.request.sub_group_index_label {
            Some(_) if groups <= 0 => return None,
            Some(_) => self.count / groups,
            None => self.count,
        };
        let mut found = HashMap::new();
        for &pod in pods {
            let number = |key: &str, below: i64| {
                let number = label(pod, key)?.parse::<u32>().ok().map(i64::from)?;
                (number < below).then_some(number)
            };
            let index = number(self.index_label, self.count + first)?;
            let number = match &self.request.sub_group_index_label {
                Some(label) if index < group_size => index + number(label, groups)? * group_size - first,
                Some(_) => return None,
                None => index - first,
            };
            let number = usize::try_from(number).ok().filter(|_| number < self.count)?;
            if found.insert(number, pod).is_some() {
                return None;
            }
        }
        Some(found)
    }
}

/// The places of a placement, one after the other, for as many pods as there are places.
struct Places<'a>(Vec<&'a [String]>, &'a Placement);

impl<'a> Places<'a> {
    fn of(placement: &'a Placement) -> Self {
        let places = placement.domains.iter();
        let places = places.flat_map(|place| (0..place.count).map(|_| place.values.as_slice()));
        Places(places.collect(), placement)
    }

    /// Where a pod is that waits no more, by what it was told.
    fn told<'p>(&self, pod: &'p Pod) -> Vec<&'p str> {
        let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
        let value = |level: &String| selector.and_then(|it| it.get(level)).map_or("", String::as_str);
        self.1.levels.iter().map(value).collect()
    }

    /// Pods that wait, each with the place of its number; `None` unless all who wait no more are where theirs is.
    fn by_number<'p>(&self, pods: &[&'p Pod], numbers: &Numbers<'_>) -> Option<Vec<(&'p Pod, &'a [String])>> {
        let mut waiting = Vec::new();
        for (number, pod) in numbers.read(pods)? {
            let place: &[String] = self.0.get(number)?;
            if !is_gated(pod) {
                if self.told(pod) != place {
                    return None;
                }
            } else if pod.metadata.deletion_timestamp.is_none() {
                waiting.push((number, pod, place));
            }
        }
        waiting.sort_by_key(|(number, ..)| *number);
        Some(waiting.into_iter().map(|(_, pod, place)| (pod, place)).collect())
    }

    /// Pods that wait, by name, each with a place that nobody has.
    fn any<'p>(&self, pods: &[&'p Pod]) -> Vec<(&'p Pod, &'a [String])> {
        let (mut waiting, free): (Vec<&Pod>, Vec<&Pod>) = pods.iter().partition(|pod| is_gated(pod));
        let mut occupied: HashMap<Vec<&str>, usize> = HashMap::new();
        for pod in free {
            *occupied.entry(self.told(pod)).or_default() += 1;
        }
        let mut places = self.0.clone();
        places.retain(|place| {
            let place: Vec<&str> = place.iter().map(String::as_str).collect();
            let count = occupied.get_mut(&place).filter(|count| **count > 0);
            count.map(|count| *count -= 1).is_none()
        });
        waiting.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        waiting.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        waiting.into_iter().zip(places).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Four pods, two on each of two hosts.
    fn workload(request: &Value) -> Workload {
        let roots = json!({ "prefix": "x", "roots": ["1", "2"] });
        let slice = json!({
            "domainCount": 2, "valuesPerLevel": [{ "individual": roots }], "podCounts": { "universal": 2 },
        });
        let at = "2026-01-01T00:00:00Z";
        serde_json::from_value(json!({
            "metadata": { "name": "w", "namespace": "ns" },
            "spec": { "podSets": [{ "name": "main", "count": 4, "topologyRequest": request }] },
            "status": {
                "conditions": [{
                    "type": "Admitted", "status": "True", "reason": "Admitted", "message": "", "lastTransitionTime": at,
                }],
                "admission": { "clusterQueue": "q", "podSetAssignments": [{
                    "name": "main", "count": 4,
                    "topologyAssignment": { "levels": ["kubernetes.io/hostname"], "slices": [slice] },
                }] },
            },
        }))
        .expect("a workload")
    }

    /// A pod by its number; with a host if it waits no more.
    fn pod(name: &str, index: Option<u32>, host: Option<&str>) -> Value {
        let mut labels = json!({ "kueue.x-k8s.io/podset": "main" });
        if let Some(index) = index {
            labels["index"] = json!(index.to_string());
        }
        let spec = match host {
            Some(host) => json!({ "nodeSelector": { "kubernetes.io/hostname": host } }),
            None => json!({ "schedulingGates": [{ "name": "kueue.x-k8s.io/topology" }] }),
        };
        let mut pod = json!({ "metadata": { "name": name, "uid": name, "labels": labels }, "spec": spec });
        pod["spec"]["containers"] = json!([]);
        pod
    }

    #[track_caller]
    fn check(workload: &Workload, pods: &[Value], want: &[&str]) {
        let pods: Vec<Arc<Pod>> =
            pods.iter().map(|pod| Arc::new(serde_json::from_value(pod.clone()).expect("a pod"))).collect();
        let all: Vec<String> = ungated(workload, &pods)
            .iter()
            .map(|it| format!("{} on {}", it.name, it.node_selector["kubernetes.io/hostname"]))
            .collect();
        assert_eq!(all, want);
    }

    #[test]
    fn ta_6_pods_with_numbers_have_their_places() {
        let numbered = workload(&json!({ "podIndexLabel": "index" }));
        let wait = |index: u32| pod(&format!("p{index}"), Some(index), None);
        check(&numbered, &[wait(3), wait(0), wait(2)], &["p0 on x1", "p2 on x2", "p3 on x2"]);
        // Another one of the same number, after the first ended.
        let mut ended = pod("old", Some(1), Some("x1"));
        ended["status"] = json!({ "phase": "Failed" });
        check(&numbered, &[ended, wait(1)], &["p1 on x1"]);
        // One that runs elsewhere, two of the same number, one without: whatever is free.
        check(&numbered, &[pod("p0", Some(0), Some("x2")), wait(1)], &["p1 on x1"]);
        check(&numbered, &[wait(2), pod("again", Some(2), None)], &["again on x1", "p2 on x1"]);
        check(&numbered, &[wait(3), pod("a", None, None)], &["a on x1", "p3 on x1"]);
        check(&numbered, &[pod("far", Some(4), None)], &["far on x1"]);
        let grouped = workload(&json!({
            "podIndexLabel": "index", "subGroupIndexLabel": "group", "subGroupCount": 2,
        }));
        let of_group = |group: u32, index: u32| {
            let mut pod = pod(&format!("g{group}-{index}"), Some(index), None);
            pod["metadata"]["labels"]["group"] = json!(group.to_string());
            pod
        };
        check(&grouped, &[of_group(1, 0), of_group(0, 1)], &["g0-1 on x1", "g1-0 on x2"]);
        let mut shifted = pod("shifted", Some(3), None);
        shifted["metadata"]["annotations"] = json!({ INDEX_OFFSET: "1" });
        check(&numbered, &[shifted], &["shifted on x2"]);
    }

    #[test]
    fn ta_6_others_take_what_is_free() {
        let plain = workload(&json!(null));
        let wait = |name: &str| pod(name, None, None);
        let all = [wait("a"), wait("b"), wait("c"), pod("d", None, Some("x1")), wait("e")];
        check(&plain, &all, &["a on x1", "b on x2", "c on x2"]);
        let mut other = wait("other");
        other["metadata"]["labels"]["kueue.x-k8s.io/podset"] = json!("another");
        check(&plain, &[other], &[]);
        let mut going = wait("going");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check(&plain, &[going], &[]);
    }

    /// Nobody is let go whose Workload is on its way out.
    #[test]
    fn ta_6_only_while_it_is_admitted() {
        let mut workload = workload(&json!(null));
        let status = workload.status.as_mut().expect("a status");
        let mut evicted = status.conditions[0].clone();
        evicted.type_ = "Evicted".to_owned();
        status.conditions.push(evicted);
        check(&workload, &[pod("a", None, None)], &[]);
    }
}
