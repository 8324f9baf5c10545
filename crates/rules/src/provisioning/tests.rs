//! What is done about the nodes of a Workload, as tables of what is seen and what is decided.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodTemplate;
use serde_json::{Value, json};
use types::autoscaling::ProvisioningRequest;
use types::kueue::{CheckState, ProvisioningRequestConfigSpec, ResourceFlavor, Workload};

use super::{Check, Plan, Seen, Step, decide};

/// A world of one Workload with the check `c`.
struct World {
    workload: Workload,
    config: Option<ProvisioningRequestConfigSpec>,
    requests: Vec<ProvisioningRequest>,
    templates: Vec<Arc<PodTemplate>>,
}

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn pod_set(name: &str, count: i32, resources: Value) -> Value {
    let container = json!({ "name": "main", "image": "x", "resources": resources });
    json!({ "name": name, "count": count, "template": { "spec": { "containers": [container] } } })
}

fn pods(name: &str, count: i32) -> Value {
    pod_set(name, count, json!({ "requests": { "cpu": "1" } }))
}

impl World {
    fn new(pod_sets: &[Value]) -> World {
        let assigned = |pod_set: &Value| json!({ "name": pod_set["name"], "flavors": { "cpu": "spot" }, "count": pod_set["count"] });
        let workload = of(json!({
            "metadata": { "name": "wl", "namespace": "ns", "uid": "u" },
            "spec": { "queueName": "q", "podSets": pod_sets },
            "status": {
                "admission": {
                    "clusterQueue": "q", "podSetAssignments": pod_sets.iter().map(assigned).collect::<Vec<_>>(),
                },
                "conditions": [condition("QuotaReserved", "")],
                "admissionChecks": [
                    { "name": "c", "state": "Pending", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                    { "name": "other", "state": "Ready", "message": "" },
                ],
            },
        }));
        let config = Some(of(json!({ "provisioningClassName": "class", "parameters": { "p": "1" } })));
        World { workload, config, requests: Vec::new(), templates: Vec::new() }
    }

    fn plain() -> World {
        World::new(&[pods("main", 2)])
    }

    fn configured(mut self, config: Value) -> World {
        self.config = Some(of(config));
        self
    }

    fn request(mut self, name: &str, conditions: &[Value]) -> World {
        self.requests.push(of(json!({
            "metadata": { "name": name, "namespace": "ns", "uid": format!("uid-{name}") },
            "spec": { "provisioningClassName": "class", "parameters": { "p": "1" }, "podSets": [] },
            "status": { "conditions": conditions, "provisioningClassDetails": { "zone": "a" } },
        })));
        self
    }

    /// What the Workload's status says, too.
    fn is(mut self, kind: &str) -> World {
        self.workload.status.as_mut().expect("a status").conditions.push(of(condition(kind, "")));
        self
    }

    fn says(mut self, state: CheckState, retries: i32) -> World {
        let check = &mut self.workload.status.as_mut().expect("a status").admission_checks[0];
        (check.state, check.retry_count) = (state, Some(retries));
        self
    }

    fn decide(&self) -> Plan {
        let checks = [Check { name: "c", config: self.config.as_ref() }];
        let template =
            |name: &str| self.templates.iter().find(|it| it.metadata.name.as_deref() == Some(name)).cloned();
        let flavor = |name: &str| {
            let spot = json!({
                "metadata": { "name": "spot" },
                "spec": { "nodeLabels": { "pool": "spot" }, "tolerations": [{ "key": "spot", "operator": "Exists" }] },
            });
            (name == "spot").then(|| Arc::new(of::<ResourceFlavor>(spot)))
        };
        let seen = Seen {
            workload: &self.workload,
            checks: &checks,
            requests: &self.requests,
            template: &template,
            flavor: &flavor,
        };
        decide(&seen, Timestamp::from_second(1_800_000_000).expect("a time"))
    }

    /// What is decided, and what the check says then.
    fn check(&self, plan: &str) {
        let decided = self.decide();
        let said = match &decided.step {
            Step::Say(checks) => format!(": {}", checks[0].message),
            _ => String::new(),
        };
        assert_eq!(format!("{decided}{said}"), plan);
        // What was said is not said again.
        if let Step::Say(checks) = decided.step {
            let mut workload = self.workload.clone();
            workload.status.as_mut().expect("a status").admission_checks = checks;
            let (config, requests) = (self.config.clone(), self.requests.clone());
            let next = World { workload, config, requests, templates: self.templates.clone() }.decide();
            assert!(!matches!(next.step, Step::Say(_)), "{next}");
        }
    }
}

fn condition(kind: &str, message: &str) -> Value {
    let time = "2026-01-01T00:00:00Z";
    json!({ "type": kind, "status": "True", "reason": "R", "message": message, "lastTransitionTime": time })
}

#[test]
fn prc_2_nodes_are_asked_for_once_there_is_quota() {
    World::plain().check("ask for 2 pods by wl-c-1");
    let mut waits = World::plain();
    waits.workload.status.as_mut().expect("a status").conditions.clear();
    waits.check("wait");
    World::plain().request("wl-c-1", &[]).check("wait");
    // Attempts that are gone were counted.
    World::plain().says(CheckState::Pending, 2).check("ask for 2 pods by wl-c-3");
    // What was asked of somebody else, or in other words, does not count.
    World::plain()
        .request("wl-c-1", &[])
        .configured(json!({ "provisioningClassName": "other" }))
        .check("delete wl-c-1");
    World::plain()
        .request("wl-c-1", &[])
        .configured(json!({ "provisioningClassName": "class", "parameters": { "p": "2" } }))
        .check("delete wl-c-1");
}

#[test]
fn prc_2_a_request_says_what_the_pods_are() {
    let mut world = World::new(&[pod_set("main", 2, json!({ "limits": { "cpu": "1" } }))]);
    world.workload.metadata.annotations = Some([("provreq.kueue.x-k8s.io/max".into(), "9".into())].into());
    let Step::Ask { templates, request, .. } = world.decide().step else { panic!("it asks") };
    let owner = json!([{
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "wl", "uid": "u",
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let labels = json!({ "kueue.x-k8s.io/managed": "true" });
    assert_eq!(
        serde_json::to_value(&templates).expect("JSON"),
        json!([{
            "apiVersion": "v1", "kind": "PodTemplate",
            "metadata": { "name": "ppt-wl-c-1-main", "namespace": "ns", "labels": labels, "ownerReferences": owner },
            "template": { "metadata": {}, "spec": {
                "containers": [{
                    "name": "main", "image": "x",
                    "resources": { "limits": { "cpu": "1" }, "requests": { "cpu": "1" } },
                }],
                "nodeSelector": { "pool": "spot" }, "tolerations": [{ "key": "spot", "operator": "Exists" }],
            } },
        }])
    );
    assert_eq!(
        serde_json::to_value(&request.spec).expect("JSON"),
        json!({
            "provisioningClassName": "class", "parameters": { "p": "1", "max": "9" },
            "podSets": [{ "podTemplateRef": { "name": "ppt-wl-c-1-main" }, "count": 2 }],
        })
    );
    assert_eq!(serde_json::to_value(&request.metadata.owner_references).expect("JSON"), owner);
    // One that was made before the last stop is not made again.
    world.templates = templates.into_iter().map(Arc::new).collect();
    let Step::Ask { templates, .. } = world.decide().step else { panic!("it asks") };
    assert!(templates.is_empty());
}

#[test]
fn prc_2_templates_go_with_their_request() {
    let mut world = World::plain();
    let Step::Ask { templates, request, .. } = world.decide().step else { panic!("it asks") };
    world.templates = templates.into_iter().map(Arc::new).collect();
    let mut made = *request;
    made.metadata.uid = Some("made".to_owned());
    world.requests = vec![made];
    world.check("hand templates over to wl-c-1");
    let Step::HandOver { owner, templates } = world.decide().step else { panic!("it hands over") };
    let mut theirs = (*templates[0]).clone();
    theirs.metadata.owner_references = Some(vec![owner]);
    world.templates = vec![Arc::new(theirs)];
    world.check("wait");
}

#[test]
fn prc_2_a_flavor_that_is_gone_is_told() {
    let mut world = World::plain();
    let admission = world.workload.status.as_mut().and_then(|status| status.admission.as_mut());
    let flavors = &mut admission.expect("admitted").pod_set_assignments[0].flavors;
    flavors.insert("cpu".to_owned(), "gone".to_owned());
    world.check("cannot ask for c: flavor gone does not exist");
}

#[test]
fn prc_3_nodes_are_asked_for_pods_that_need_them() {
    let only_gpu = json!({ "provisioningClassName": "class", "managedResources": ["gpu"] });
    World::plain()
        .configured(only_gpu.clone())
        .check("say c Ready, other Ready: the provisioning request is not needed");
    let gpus = pod_set("workers", 3, json!({ "limits": { "gpu": "1" } }));
    World::new(&[pods("main", 2), gpus]).configured(only_gpu).check("ask for 3 pods by wl-c-1");
    World::new(&[pods("main", 0)]).check("say c Ready, other Ready: the provisioning request is not needed");
}

#[test]
fn prc_1_pods_that_are_alike_are_asked_for_together() {
    let policy = |policy: &str| json!({ "provisioningClassName": "class", "podSetMergePolicy": policy });
    let ask = |world: World| {
        let Step::Ask { request, .. } = world.decide().step else { panic!("it asks") };
        let pod_sets = request.spec.pod_sets.iter();
        pod_sets.map(|it| format!("{} {}", it.pod_template_ref.name, it.count)).collect::<Vec<_>>().join(", ")
    };
    let mut driver = pods("driver", 1);
    driver["template"]["spec"]["priorityClassName"] = json!("high");
    let three = || World::new(&[pods("a", 2), driver.clone(), pods("b", 3)]);
    assert_eq!(ask(three()), "ppt-wl-c-1-a 2, ppt-wl-c-1-driver 1, ppt-wl-c-1-b 3");
    assert_eq!(
        ask(three().configured(policy("IdenticalPodTemplates"))),
        "ppt-wl-c-1-a 5, ppt-wl-c-1-driver 1"
    );
    let similar = || three().configured(policy("IdenticalWorkloadSchedulingRequirements"));
    assert_eq!(ask(similar()), "ppt-wl-c-1-a 6");
    // All of them may use the nodes.
    let mut provisioned = similar().request("wl-c-1", &[condition("Provisioned", "")]);
    provisioned.requests[0].spec.parameters.clear();
    let Step::Say(checks) = provisioned.decide().step else { panic!("it says so") };
    let names: Vec<&str> = checks[0].pod_set_updates.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["a", "driver", "b"]);
}

#[test]
fn prc_4_nodes_that_are_there_make_a_check_ready() {
    let selector = json!({ "nodeSelector": [
        { "key": "zone", "valueFromProvisioningClassDetail": "zone" },
        { "key": "rack", "valueFromProvisioningClassDetail": "rack" },
    ] });
    let config = json!({ "provisioningClassName": "class", "podSetUpdates": selector });
    let world = World::plain().configured(config).request("wl-c-1", &[condition("Provisioned", "there")]);
    world.check("say c Ready, other Ready: there");
    let plan = world.decide();
    let Step::Say(checks) = plan.step else { panic!("it says so") };
    let updates = json!([{
        "name": "main", "nodeSelector": { "zone": "a" },
        "annotations": {
            "autoscaling.x-k8s.io/consume-provisioning-request": "wl-c-1",
            "autoscaling.x-k8s.io/provisioning-class-name": "class",
        },
    }]);
    assert_eq!(serde_json::to_value(&checks[0].pod_set_updates).expect("JSON"), updates);
    // AC-5: the time of a check is that of its state.
    assert_eq!(checks[0].last_transition_time.as_ref().map(|time| time.0.as_second()), Some(1_800_000_000));
    let told: Vec<&str> = plan.events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(told, ["Admission check c updated state from Pending to Ready with message: there"]);
}

#[test]
fn prc_4_what_an_answer_means() {
    let answered = |conditions: &[Value]| World::plain().request("wl-c-1", conditions);
    let mut expected = condition("Provisioned", "in an hour");
    expected["status"] = json!("False");
    answered(&[condition("Accepted", "")]).check("wait");
    answered(&[condition("Accepted", ""), expected]).check("say c Pending, other Ready: in an hour");
    answered(&[condition("Failed", "no")]).check("say c Retry, other Ready: Retrying after failure: no");
    answered(&[condition("BookingExpired", "late")])
        .check("say c Retry, other Ready: Retrying after booking expired: late");
    // Who runs already needs no booking, but does need the nodes.
    let running = |conditions: &[Value]| answered(conditions).is("Admitted").says(CheckState::Ready, 0);
    running(&[condition("Provisioned", ""), condition("BookingExpired", "late")]).check("wait");
    running(&[condition("CapacityRevoked", "gone")]).check("say c Rejected, other Ready: gone");
    let mut inactive = running(&[condition("CapacityRevoked", "gone")]);
    inactive.workload.spec.active = Some(false);
    inactive.check("wait");
}

#[test]
fn prc_4_attempts_come_to_an_end() {
    let failed = [condition("Failed", "no")];
    let retry = |attempt: i32| {
        let world = World::plain().request(&format!("wl-c-{attempt}"), &failed);
        world.says(CheckState::Pending, attempt - 1)
    };
    let waits = |attempt: i32| {
        let Step::Say(checks) = retry(attempt).decide().step else { panic!("it says so") };
        checks[0].requeue_after_seconds
    };
    assert_eq!([waits(1), waits(2), waits(3)], [Some(60), Some(120), Some(240)]);
    retry(3).check("say c Retry, other Ready: Retrying after failure: no");
    retry(4).check("say c Rejected, other Ready: no");
    // An attempt that is known to have failed is followed by the next one, even if it is still there.
    let mut known = retry(1).says(CheckState::Pending, 1);
    known.check("say c Pending, other Ready: Retrying after failure: no");
    let check = &mut known.workload.status.as_mut().expect("a status").admission_checks[0];
    check.message = "Retrying after failure: no".to_owned();
    known.check("ask for 2 pods by wl-c-2");
    known.request("wl-c-2", &[]).says(CheckState::Pending, 1).check("say c Pending, other Ready: ");
}

#[test]
fn prc_5_requests_go_with_the_attempt() {
    let made = || World::plain().request("wl-c-1", &[condition("Provisioned", "")]);
    made().is("Finished").check("delete wl-c-1");
    made().is("Evicted").check("delete wl-c-1");
    World::plain().is("Evicted").check("wait");
    // One that is on its way out is waited for.
    let mut leaving = World::plain().request("wl-c-1", &[condition("Provisioned", "")]);
    leaving.requests[0].metadata.deletion_timestamp = of(json!("2026-01-01T00:00:00Z"));
    leaving.check("wait");
    leaving.is("Finished").check("wait");
    World::plain().request("wl-d-1", &[]).check("delete wl-d-1");
}

#[test]
fn a_check_without_settings_waits() {
    let mut world = World::plain().request("wl-c-1", &[]);
    world.config = None;
    world.check("say c Pending, other Ready: the check is not active");
}
