use serde_json::{Value, json};

use super::job::Surroundings;
use super::*;

fn review<'a>(kind: Kind, object: &'a Value, old: Option<&'a Value>) -> Review<'a> {
    Review {
        kind,
        object,
        old,
        around: Surroundings { in_managed_namespace: true, ..Surroundings::default() },
        runtime: None,
    }
}

#[track_caller]
fn check(kind: Kind, object: &Value, old: Option<&Value>, expected: &[&str]) {
    let (errors, _) = validate(&review(kind, object, old)).expect("an object of its kind");
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, expected);
}

fn job(metadata: Value, spec: Value) -> Value {
    let mut job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec });
    if job["spec"]["template"].is_null() {
        job["spec"]["template"] =
            json!({ "spec": { "containers": [{ "name": "c", "image": "i", "odd": 1 }] } });
    }
    job
}

fn queued(spec: Value) -> Value {
    job(json!({ "name": "j", "labels": { "kueue.x-k8s.io/queue-name": "q" } }), spec)
}

#[track_caller]
fn defaulted(job: &Value, around: Surroundings) -> Value {
    let review = Review { kind: Kind::Job, object: job, old: None, around, runtime: None };
    default(&review).expect("a Job")
}

/// MK-WH-01, MK-WH-03.
#[test]
fn jf_6_a_queued_job_waits() {
    let around = Surroundings { in_managed_namespace: true, ..Surroundings::default() };
    let after = defaulted(&queued(json!({})), around);
    assert_eq!(after["spec"]["suspend"], true);
    assert!(after["spec"]["managedBy"].is_null());
    assert_eq!(after["spec"]["template"]["spec"]["containers"][0]["odd"], 1, "what nobody knows stays");
    let after = defaulted(&queued(json!({})), Surroundings { has_managed_ancestor: true, ..around });
    assert!(after["spec"]["suspend"].is_null(), "its ancestor is queued");
    let mut leaving = queued(json!({}));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(defaulted(&leaving, around)["spec"]["suspend"].is_null(), "JF-7");
}

#[test]
fn jf_6_a_job_without_queue_is_left_alone_unless_all_are_managed() {
    let plain = job(json!({ "name": "j" }), json!({}));
    let around = Surroundings { in_managed_namespace: true, ..Surroundings::default() };
    assert_eq!(defaulted(&plain, around), plain);
    let all = Surroundings { manages_without_queue_name: true, ..around };
    assert_eq!(defaulted(&plain, all)["spec"]["suspend"], true);
    assert_eq!(defaulted(&plain, Surroundings { in_managed_namespace: false, ..all }), plain);
}

/// MK-WH-02.
#[test]
fn jf_6_lq_6_the_default_queue_is_for_those_who_name_none() {
    let plain = job(json!({ "name": "j" }), json!({}));
    let around =
        Surroundings { in_managed_namespace: true, has_default_queue: true, ..Surroundings::default() };
    let after = defaulted(&plain, around);
    assert_eq!(after["metadata"]["labels"], json!({ "kueue.x-k8s.io/queue-name": "default" }));
    assert_eq!(after["spec"]["suspend"], true);
    assert_eq!(defaulted(&plain, Surroundings { has_managed_owner: true, ..around }), plain);
    assert_eq!(defaulted(&plain, Surroundings { in_managed_namespace: false, ..around }), plain);
    let named = defaulted(&queued(json!({})), around);
    assert_eq!(named["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "q");
}

/// MK-WH-04, MK-WH-05.
#[test]
fn jf_6_a_job_of_a_dispatching_queue_is_managed_by_the_dispatcher() {
    let around = Surroundings { in_managed_namespace: true, is_dispatched: true, ..Surroundings::default() };
    let managed = |spec| defaulted(&queued(spec), around)["spec"]["managedBy"].clone();
    assert_eq!(managed(json!({})), MULTIKUEUE);
    assert_eq!(managed(json!({ "managedBy": "kubernetes.io/job-controller" })), MULTIKUEUE);
    assert_eq!(managed(json!({ "managedBy": "example.com/x" })), "example.com/x");
    let plain = job(json!({ "name": "j" }), json!({}));
    assert_eq!(defaulted(&plain, around), plain, "without a queue nothing is dispatched");
}

/// MK-WH-07.
#[test]
fn jf_34_labels_of_jobs() {
    let labelled = |labels: Value, suspend: bool| {
        job(json!({ "name": "j", "labels": labels }), json!({ "suspend": suspend }))
    };
    let (queue, class, limit) = (
        "kueue.x-k8s.io/queue-name",
        "kueue.x-k8s.io/priority-class",
        "kueue.x-k8s.io/max-exec-time-seconds",
    );
    check(
        Kind::Job,
        &labelled(json!({ limit: "abc" }), true),
        None,
        &[
            "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: \"abc\": strconv.Atoi: parsing \"abc\": invalid syntax",
        ],
    );
    check(
        Kind::Job,
        &labelled(json!({ limit: "0" }), true),
        None,
        &[
            "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: 0: should be greater than 0",
        ],
    );
    let (a, b) = (labelled(json!({ queue: "a" }), false), labelled(json!({ queue: "b" }), false));
    check(
        Kind::Job,
        &b,
        Some(&a),
        &["metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"b\": field is immutable"],
    );
    check(Kind::Job, &labelled(json!({ queue: "b" }), true), Some(&a), &[]);
    let none = labelled(json!({}), false);
    check(
        Kind::Job,
        &labelled(json!({ class: "high" }), false),
        Some(&none),
        &[
            "metadata.labels[kueue.x-k8s.io/priority-class]: Invalid value: \"high\": WorkloadPriorityClass cannot be added to a non-suspended workload",
        ],
    );
    check(
        Kind::Job,
        &none,
        Some(&labelled(json!({ class: "high" }), true)),
        &[
            "metadata.labels[kueue.x-k8s.io/priority-class]: Invalid value: \"\": WorkloadPriorityClass cannot be removed from a workload",
        ],
    );
    let stopping = job(
        json!({ "name": "j", "labels": { queue: "b" }, "annotations": { "kueue.x-k8s.io/stopping": "true" } }),
        json!({ "suspend": true }),
    );
    check(
        Kind::Job,
        &stopping,
        Some(&a),
        &["metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"b\": field is immutable"],
    );
}

#[test]
fn jf_35_partial_admission() {
    let partial = |least: &str| {
        job(
            json!({ "name": "j", "annotations": { "kueue.x-k8s.io/job-min-parallelism": least } }),
            json!({ "parallelism": 3 }),
        )
    };
    let path = "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]";
    check(Kind::Job, &partial("2"), None, &[]);
    check(Kind::Job, &partial("3"), None, &[&format!("{path}: Invalid value: 3: should be between 0 and 2")]);
    let mut wider = partial("2");
    wider["spec"]["parallelism"] = json!(5);
    check(
        Kind::Job,
        &wider,
        Some(&partial("2")),
        &[
            "spec.parallelism: Forbidden: cannot change when partial admission is enabled and the job is not suspended",
        ],
    );
    let equal = job(
        json!({ "name": "j", "annotations": { "kueue.x-k8s.io/job-completions-equal-parallelism": "true" } }),
        json!({ "parallelism": 3, "completions": 4 }),
    );
    check(
        Kind::Job,
        &equal,
        None,
        &[
            "metadata.annotations[kueue.x-k8s.io/job-completions-equal-parallelism]: Invalid value: \"true\": should not be enabled for NonIndexed jobs",
            "spec.completions: Invalid value: 4: should be equal to parallelism when kueue.x-k8s.io/job-completions-equal-parallelism annotation is true",
        ],
    );
}

#[test]
fn wl_12_gates_are_only_taken_away() {
    let gated = |gates: &str| {
        job(
            json!({ "name": "j", "annotations": { "kueue.x-k8s.io/admission-gated-by": gates } }),
            json!({ "suspend": true }),
        )
    };
    let path = "metadata.annotations[kueue.x-k8s.io/admission-gated-by]";
    check(Kind::Job, &gated("a.com/x, b.com/y"), None, &[]);
    check(
        Kind::Job,
        &gated("a.com/x,a.com/x"),
        None,
        &[&format!("{path}: Invalid value: \"a.com/x,a.com/x\": duplicate gate name: a.com/x")],
    );
    check(
        Kind::Job,
        &gated("a.com/x,"),
        None,
        &[&format!("{path}: Invalid value: \"a.com/x,\": cannot contain empty gate names")],
    );
    check(Kind::Job, &gated("a.com/x"), Some(&gated("a.com/x,b.com/y")), &[]);
    check(
        Kind::Job,
        &gated("c.com/z"),
        Some(&gated("a.com/x")),
        &[&format!("{path}: Forbidden: can only remove gates, not add new ones")],
    );
    check(
        Kind::Job,
        &gated("a.com/x"),
        Some(&gated("")),
        &[&format!("{path}: Forbidden: cannot add admission gate after creation")],
    );
}

fn queue(spec: Value) -> Value {
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": { "name": "q" }, "spec": spec })
}

fn group(quota: Value) -> Value {
    let mut quota = quota;
    quota["name"] = json!("cpu");
    json!([{ "coveredResources": ["cpu"], "flavors": [{ "name": "f", "resources": [quota] }] }])
}

#[test]
fn cq_1_quota_is_consistent() {
    let path = "spec.resourceGroups[0].flavors[0].resources[0]";
    let quota =
        |cohort: &str, quota: Value| queue(json!({ "cohortName": cohort, "resourceGroups": group(quota) }));
    check(
        Kind::ClusterQueue,
        &quota("all", json!({ "nominalQuota": "5", "borrowingLimit": "1", "lendingLimit": "5" })),
        None,
        &[],
    );
    check(
        Kind::ClusterQueue,
        &quota("all", json!({ "nominalQuota": "5", "lendingLimit": "6" })),
        None,
        &[&format!(
            "{path}.lendingLimit: Invalid value: \"6\": must be less than or equal to the nominalQuota"
        )],
    );
    check(
        Kind::ClusterQueue,
        &quota("", json!({ "nominalQuota": "-5", "borrowingLimit": "1" })),
        None,
        &[
            &format!("{path}.nominalQuota: Invalid value: \"-5\": must be greater than or equal to 0"),
            &format!("{path}.borrowingLimit: Invalid value: \"1\": must be nil when cohort is empty"),
        ],
    );
    let twice = queue(json!({ "resourceGroups": [
        { "coveredResources": ["cpu"], "flavors": [{ "name": "f", "resources": [{ "name": "memory", "nominalQuota": 1 }] }] },
        { "coveredResources": ["cpu"], "flavors": [{ "name": "f", "resources": [{ "name": "cpu", "nominalQuota": 1 }] }] },
    ] }));
    check(
        Kind::ClusterQueue,
        &twice,
        None,
        &[
            &format!("{path}.name: Invalid value: \"memory\": must match the name in coveredResources"),
            "spec.resourceGroups[1].coveredResources[0]: Duplicate value: \"cpu\"",
            "spec.resourceGroups[1].flavors[0].name: Duplicate value: \"f\"",
        ],
    );
}

#[test]
fn cq_1_a_queue_cannot_have_everything() {
    let flavors: Vec<Value> = (0..257)
        .map(|i| json!({ "name": format!("f{i}"), "resources": [{ "name": "a", "nominalQuota": 1 }, { "name": "b", "nominalQuota": 1 }] }))
        .collect();
    let many = queue(json!({ "resourceGroups": [{ "coveredResources": ["a", "b"], "flavors": flavors }] }));
    check(
        Kind::ClusterQueue,
        &many,
        None,
        &[
            "spec.resourceGroups: Invalid value: 257: total number of flavors across all resourceGroups must be ≤ 256, got 257",
            "spec.resourceGroups[0]: Invalid value: 514: number of flavor-resource combinations in a resourceGroup must be ≤ 512, got 514",
        ],
    );
}

#[test]
fn cq_2_borrowing_and_reclaiming() {
    let wrong = queue(
        json!({ "preemption": { "reclaimWithinCohort": "Never", "borrowWithinCohort": { "policy": "LowerPriority" } } }),
    );
    let (errors, _) = validate(&review(Kind::ClusterQueue, &wrong, None)).expect("a queue");
    assert_eq!((errors.len(), errors[0].path.as_str()), (1, "spec.preemption"));
    let preference = queue(
        json!({ "flavorFungibility": { "whenCanBorrow": "MayStopSearch", "preference": "PreemptionOverBorrowing" } }),
    );
    check(
        Kind::ClusterQueue,
        &preference,
        None,
        &[
            "spec.flavorFungibility.preference: Invalid value: \"PreemptionOverBorrowing\": preference \"PreemptionOverBorrowing\" requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor",
        ],
    );
    let weight = queue(json!({ "fairSharing": { "weight": "1n" } }));
    check(
        Kind::ClusterQueue,
        &weight,
        None,
        &["spec.fairSharing: Invalid value: \"1n\": When not 0, weight must be > 10e-9"],
    );
}

#[test]
fn cq_3_checks_are_for_flavors_that_exist() {
    let checked = |flavors: Value, stop: &str| {
        queue(json!({ "resourceGroups": group(json!({ "nominalQuota": 1 })), "stopPolicy": stop,
            "admissionChecksStrategy": { "admissionChecks": [{ "name": "c", "onFlavors": flavors }] } }))
    };
    let error = "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: Unsupported value: \"g\": supported values: \"f\"";
    check(Kind::ClusterQueue, &checked(json!(["f"]), "None"), None, &[]);
    check(Kind::ClusterQueue, &checked(json!(["g"]), "None"), None, &[error]);
    check(Kind::ClusterQueue, &checked(json!(["g"]), "Hold"), Some(&checked(json!(["g"]), "None")), &[]);
    check(Kind::ClusterQueue, &checked(json!(["g"]), "Hold"), Some(&checked(json!(["f"]), "None")), &[error]);
}

#[test]
fn co_1_limits_need_a_parent() {
    let cohort = |parent: &str| {
        json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": { "name": "c" },
            "spec": { "parentName": parent, "resourceGroups": group(json!({ "nominalQuota": "1", "lendingLimit": "9" })) } })
    };
    check(Kind::Cohort, &cohort("p"), None, &[]);
    check(
        Kind::Cohort,
        &cohort(""),
        None,
        &[
            "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: Invalid value: \"9\": must be nil when parent is empty",
        ],
    );
}

#[test]
fn api_3_queues_and_flavors_are_kept_while_in_use() {
    let mut flavor = json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": { "name": "f" }, "spec": {} });
    let after = default(&review(Kind::ResourceFlavor, &flavor, None)).expect("a flavor");
    assert_eq!(after["metadata"]["finalizers"], json!([IN_USE]));
    assert_eq!(default(&review(Kind::ResourceFlavor, &after, None)).expect("a flavor"), after);
    flavor["spec"] = json!({ "nodeTaints": [{ "key": "a", "effect": "NoSchedule" }, { "key": "a", "effect": "NoSchedule" }] });
    let (errors, _) = validate(&review(Kind::ResourceFlavor, &flavor, None)).expect("a flavor");
    assert!(errors[0].to_string().ends_with("taints must be unique by key and effect pair"), "{errors:?}");
}

fn workload(status: Value) -> Value {
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "name": "w" },
        "spec": { "podSets": [{ "name": "main", "count": 3, "template": { "spec": { "containers": [] } } }] }, "status": status })
}

fn reserved(more: Value) -> Value {
    let mut status = more;
    status["conditions"] = json!([{ "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    workload(status)
}

fn admission(usage: &str) -> Value {
    json!({ "clusterQueue": "q", "podSetAssignments": [{ "name": "main", "count": 3, "resourceUsage": { "cpu": usage } }] })
}

#[test]
fn wl_1_wl_2_reserved_quota_is_written_down() {
    check(Kind::Workload, &reserved(json!({ "admission": admission("3") })), None, &[]);
    let bare = reserved(json!({}));
    check(
        Kind::Workload,
        &bare,
        None,
        &["status.admission: Required value: must be set while the QuotaReserved condition is true"],
    );
    check(Kind::Workload, &bare, Some(&bare), &[]);
    check(
        Kind::Workload,
        &reserved(json!({ "admission": admission("1") })),
        None,
        &[
            "status.admission.podSetAssignments[0].resourceUsage[cpu]: Invalid value: \"1\": is not a multiple of 3",
        ],
    );
}

/// MK-WL-04.
#[test]
fn wl_3_wl_5_what_holds_quota_does_not_change() {
    let old = reserved(json!({ "admission": admission("3") }));
    let mut grown = old.clone();
    grown["spec"]["podSets"][0]["count"] = json!(4);
    let (errors, _) = validate(&review(Kind::Workload, &grown, Some(&old))).expect("a Workload");
    assert_eq!(errors.iter().map(|error| error.path.as_str()).collect::<Vec<_>>(), ["spec.podSets.0"]);
    let mut shrunk = old.clone();
    shrunk["spec"]["podSets"][0]["count"] = json!(2);
    check(Kind::Workload, &shrunk, Some(&old), &[]);
    // The same in the words of a client that decodes and writes it again.
    let with = |template: Value| {
        let mut workload = old.clone();
        workload["spec"]["podSets"][0]["template"] = template;
        workload
    };
    let of = |container: Value| json!({ "spec": { "containers": [container] } });
    let asks = |cpu: &str| of(json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } }));
    let mut bare = asks("1");
    bare["metadata"] = json!({ "creationTimestamp": null });
    let field = |divisor: Value| {
        let from = json!({ "resourceFieldRef": { "resource": "limits.cpu", "divisor": divisor } });
        of(json!({ "name": "c", "resources": {}, "env": [{ "name": "E", "valueFrom": from }] }))
    };
    for (written, again) in [
        (asks("1000m"), asks("1")),
        (asks("1"), bare),
        (of(json!({ "name": "c" })), of(json!({ "name": "c", "resources": {}, "args": [] }))),
        (field(Value::Null), field(json!("0"))),
    ] {
        check(Kind::Workload, &with(again.clone()), Some(&with(written.clone())), &[]);
        check(Kind::Workload, &with(written), Some(&with(again)), &[]);
    }
    for (written, other) in [
        (asks("1000m"), asks("1001m")),
        (of(json!({ "name": "c" })), of(json!({ "name": "c", "securityContext": {} }))),
    ] {
        let (errors, _) =
            validate(&review(Kind::Workload, &with(other), Some(&with(written)))).expect("a Workload");
        assert_eq!(errors.iter().map(|error| error.path.as_str()).collect::<Vec<_>>(), ["spec.podSets.0"]);
    }
    let (errors, _) =
        validate(&review(Kind::Workload, &reserved(json!({ "admission": admission("6") })), Some(&old)))
            .expect("a Workload");
    assert_eq!(errors.iter().map(|error| error.path.as_str()).collect::<Vec<_>>(), ["status.admission"]);
    check(Kind::Workload, &workload(json!({})), Some(&old), &[]);
}

#[test]
fn wl_6_what_was_given_back_stays_so() {
    let given = |pods: Value| reserved(json!({ "admission": admission("3"), "reclaimablePods": pods }));
    let one = given(json!([{ "name": "main", "count": 1 }]));
    check(Kind::Workload, &given(json!([{ "name": "main", "count": 2 }])), Some(&one), &[]);
    check(
        Kind::Workload,
        &given(json!([])),
        Some(&one),
        &["status.reclaimablePods[main]: Required value: cannot be removed"],
    );
    check(
        Kind::Workload,
        &given(json!([{ "name": "main", "count": 0 }])),
        Some(&one),
        &["status.reclaimablePods[main].count: Invalid value: 0: cannot be less than 1"],
    );
    check(
        Kind::Workload,
        &given(json!([{ "name": "main", "count": 4 }])),
        None,
        &["status.reclaimablePods[main].count: Invalid value: 4: should be less or equal to 3"],
    );
}

#[test]
fn wl_7_wl_8_pod_sets() {
    let mut wrong = workload(json!({}));
    wrong["spec"]["podSets"] = json!([
        { "name": "a", "count": 2, "minCount": 1, "template": { "spec": { "containers": [{ "name": "c", "resources": { "requests": { "pods": "1", "cpu": "-1" } } }] } } },
        { "name": "b", "count": 2, "minCount": 1, "template": { "spec": { "containers": [] } } },
    ]);
    check(
        Kind::Workload,
        &wrong,
        None,
        &[
            "spec.podSets[0].template.spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            "spec.podSets[0].template.spec.containers[0].resources.requests[pods]: Invalid value: \"pods\": the key is reserved for internal kueue use",
            "spec.podSets: Invalid value: 2: at most one podSet can use minCount",
        ],
    );
}

/// Conditions are what Kubernetes' own would be.
#[test]
fn wl_13_conditions_are_named_and_have_a_time() {
    let with = |kind: &str, time: &str| {
        workload(json!({ "conditions": [{
            "type": kind, "status": "True", "reason": "r", "message": "", "lastTransitionTime": time,
        }] }))
    };
    let time = "2026-01-01T00:00:00Z";
    check(Kind::Workload, &with("example.com/Ready", time), None, &[]);
    let old = with("Ready", time);
    check(
        Kind::Workload,
        &with("Ready", "0001-01-01T00:00:00Z"),
        Some(&old),
        &["status.conditions[0].lastTransitionTime: Required value"],
    );
    let long = "R".repeat(64);
    check(
        Kind::Workload,
        &with(&long, time),
        Some(&old),
        &[&format!(
            "status.conditions[0].type: Invalid value: \"{long}\": name part must be no more than 63 bytes"
        )],
    );
}

#[test]
fn wl_10_a_workload_runs_where_it_was_nominated() {
    let old = workload(json!({ "nominatedClusterNames": ["east"] }));
    check(Kind::Workload, &workload(json!({ "clusterName": "east" })), Some(&old), &[]);
    check(
        Kind::Workload,
        &workload(json!({ "clusterName": "west" })),
        Some(&old),
        &[
            "status.clusterName: Invalid value: \"west\": when setting clusterName it must be one of the nominatedClusterNames",
        ],
    );
}

#[test]
fn wl_11_a_negative_group_count_is_warned_about() {
    let mut odd = workload(json!({}));
    odd["spec"]["podSets"][0]["topologyRequest"] = json!({ "subGroupCount": -1 });
    let (errors, warnings) = validate(&review(Kind::Workload, &odd, None)).expect("a Workload");
    assert!(errors.is_empty());
    assert_eq!(
        warnings,
        [
            "spec.podSets[0].topologyRequest.subGroupCount: negative value -1 is deprecated and will be rejected in a future release"
        ]
    );
}

#[test]
fn several_errors_are_one_message() {
    let path = field::Path::new("spec");
    let (one, two) = (path.child("a").required("x"), path.child("b").required("y"));
    assert_eq!(message(std::slice::from_ref(&one)), "spec.a: Required value: x");
    assert_eq!(message(&[one, two]), "[spec.a: Required value: x, spec.b: Required value: y]");
}

/// MK-WH-01, MK-WH-04, MK-WH-05.
#[test]
fn jf_6_jobs_of_other_kinds_wait_and_have_a_manager_too() {
    for shape in &crate::framework::custom::ALL {
        let mut object = serde_json::json!({
            "metadata": { "name": "x", "labels": { "kueue.x-k8s.io/queue-name": "q" } }, "spec": {},
        });
        let around = job::Surroundings { is_dispatched: true, ..job::Surroundings::default() };
        let default = |object: &Value| {
            super::default(&Review { kind: Kind::Custom(shape), object, old: None, around, runtime: None })
                .expect("readable")
        };
        let after = default(&object);
        assert_eq!(after.pointer(shape.suspend), Some(&Value::Bool(true)), "{shape:?}");
        assert_eq!(after.pointer(shape.managed_by), Some(&Value::from(MULTIKUEUE)), "{shape:?}");
        assert_eq!(default(&after), after, "{shape:?}: again changes nothing");
        crate::framework::custom::set(&mut object, shape.managed_by, Value::from("example.com/other"));
        assert_eq!(default(&object).pointer(shape.managed_by), Some(&Value::from("example.com/other")));
    }
}

#[test]
fn jf_34_running_jobs_of_other_kinds_keep_their_queue() {
    for shape in &crate::framework::custom::ALL {
        let of = |queue: &str, suspended: bool| {
            let mut object = serde_json::json!({
                "metadata": { "name": "x", "labels": { "kueue.x-k8s.io/queue-name": queue } },
                "spec": { "shutdownAfterJobFinishes": true, "rayClusterSpec": {} },
            });
            crate::framework::custom::set(&mut object, shape.suspend, Value::Bool(suspended));
            object
        };
        let said = |new: &Value, old: &Value| {
            let around = job::Surroundings::default();
            let review =
                Review { kind: Kind::Custom(shape), object: new, old: Some(old), around, runtime: None };
            message(&validate(&review).expect("readable").0)
        };
        assert_eq!(said(&of("b", true), &of("a", true)), "[]", "{shape:?}");
        let refused = said(&of("b", false), &of("a", false));
        assert!(refused.contains("metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value"), "{refused}");
    }
}

#[test]
fn ray_jobs_in_queues_bring_their_own_cluster_and_take_it_with_them() {
    let shape = crate::framework::custom::ALL.iter().find(|it| it.kind.kind == "RayJob").expect("a kind");
    let said = |spec: Value| {
        let metadata = serde_json::json!({ "name": "x", "labels": { "kueue.x-k8s.io/queue-name": "q" } });
        let object = serde_json::json!({ "metadata": metadata, "spec": spec });
        let around = job::Surroundings::default();
        let review = Review { kind: Kind::Custom(shape), object: &object, old: None, around, runtime: None };
        message(&validate(&review).expect("readable").0)
    };
    let check =
        |spec: Value, expected: &str| assert!(said(spec.clone()).contains(expected), "{}", said(spec));
    check(serde_json::json!({}), "spec.rayClusterSpec: Required value");
    check(serde_json::json!({ "rayClusterSpec": {} }), "spec.shutdownAfterJobFinishes: Invalid value: false");
    let both = serde_json::json!({ "rayClusterSpec": {}, "clusterSelector": { "a": "b" } });
    check(both, "spec.clusterSelector: Invalid value");
    let head = serde_json::json!({ "workerGroupSpecs": [{ "groupName": "head" }] });
    let head = serde_json::json!({ "shutdownAfterJobFinishes": true, "rayClusterSpec": head });
    check(head, "spec.rayClusterSpec.workerGroupSpecs[0].groupName: Forbidden: \"head\" is reserved");
}

#[test]
fn jf_24_a_running_job_keeps_the_workload_that_was_made_for_it() {
    let made = |name: &str, suspend: bool| {
        let annotations = json!({ "kueue.x-k8s.io/prebuilt-workload-name": name });
        job(json!({ "name": "j", "annotations": annotations }), json!({ "suspend": suspend }))
    };
    check(
        Kind::Job,
        &made("b", false),
        Some(&made("a", false)),
        &[
            "metadata.annotations[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: \"b\": field is immutable",
        ],
    );
    check(Kind::Job, &made("b", true), Some(&made("a", true)), &[]);
}

#[test]
fn wl_9_what_a_passed_check_changes_about_pods_stays() {
    let with = |state: &str, value: &str| {
        workload(json!({ "admissionChecks": [{
            "name": "check", "state": state, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            "podSetUpdates": [{ "name": "main", "labels": { "key": value } }],
        }] }))
    };
    check(Kind::Workload, &with("Ready", "a"), None, &[]);
    check(Kind::Workload, &with("Ready", "b"), Some(&with("Pending", "a")), &[]);
    let (errors, _) = validate(&review(Kind::Workload, &with("Ready", "b"), Some(&with("Ready", "a"))))
        .expect("a Workload");
    assert_eq!(
        errors.iter().map(|error| error.path.as_str()).collect::<Vec<_>>(),
        ["status.admissionChecks[0].podSetUpdates"]
    );
    let mut unknown = with("Pending", "a");
    unknown["status"]["admissionChecks"][0]["podSetUpdates"][0]["name"] = json!("other");
    let (errors, _) = validate(&review(Kind::Workload, &unknown, None)).expect("a Workload");
    assert_eq!(errors.len(), 1, "{errors:?}");
}

/// JF-6: a label that is there and says nothing is refused, as Kueue does.
#[test]
fn jf_6_empty_labels_are_mistakes() {
    let said = |labels: Value| {
        let job = job(json!({ "name": "j", "labels": labels }), json!({ "suspend": true }));
        let (errors, _) = validate(&review(Kind::Job, &job, None)).expect("a Job");
        errors.into_iter().map(|error| error.path).collect::<Vec<_>>()
    };
    for key in ["queue-name", "prebuilt-workload-name", "max-exec-time-seconds"] {
        let key = format!("kueue.x-k8s.io/{key}");
        assert_eq!(said(json!({ &key: "" })), [format!("metadata.labels[{key}]")]);
    }
    assert!(said(json!({ "kueue.x-k8s.io/queue-name": "q" })).is_empty());
}

/// TA-9: whatever could not be read when the Job's Workload is made is refused when the Job is.
#[test]
fn ta_9_what_a_template_asks_for_can_be_read() {
    let said = |annotations: Value| {
        let annotations: serde_json::Map<String, Value> = annotations
            .as_object()
            .expect("annotations")
            .iter()
            .map(|(key, value)| (format!("kueue.x-k8s.io/podset-{key}"), value.clone()))
            .collect();
        let template = json!({ "metadata": { "annotations": annotations } });
        let job = job(json!({ "name": "j" }), json!({ "parallelism": 4, "template": template }));
        let (errors, _) = validate(&review(Kind::Job, &job, None)).expect("a Job");
        let prefix = "spec.template.metadata.annotations";
        let shown = errors.iter().map(|error| error.to_string().replace(prefix, "")).collect::<Vec<_>>();
        shown.join("; ").replace("kueue.x-k8s.io/podset-", "")
    };
    assert_eq!(said(json!({ "required-topology": "rack" })), "");
    assert_eq!(said(json!({ "slice-required-topology": "rack", "slice-size": "2" })), "");
    assert!(said(json!({ "required-topology": "a", "preferred-topology": "b" })).contains("more than one"));
    assert!(
        said(json!({ "required-topology": "no level" })).starts_with("[required-topology]: Invalid value")
    );
    assert_eq!(
        said(json!({ "unconstrained-topology": "maybe" })),
        "[unconstrained-topology]: Invalid value: \"maybe\": must be a boolean value"
    );
    assert_eq!(
        said(json!({ "slice-required-topology": "rack" })),
        "[slice-size]: Required value: must be set when 'slice-required-topology' is specified"
    );
    assert_eq!(
        said(json!({ "slice-size": "2" })),
        "[slice-size]: Forbidden: may not be set when 'slice-required-topology' is not specified"
    );
    let slices = |size: &str| said(json!({ "slice-required-topology": "rack", "slice-size": size }));
    assert!(slices("many").contains("must be a numeric value"));
    assert!(slices("0").contains("must be greater than or equal to 1"));
    assert!(slices("5").contains("must not be greater than pod set count 4"));
    let layers = |layers: Value| said(json!({ "slice-required-topology-constraints": layers.to_string() }));
    let layer = |level: &str, size: i32| json!({ "topology": level, "size": size });
    assert_eq!(layers(json!([layer("block", 4), layer("rack", 2)])), "");
    assert!(layers(json!([layer("block", 3), layer("rack", 2)])).contains("must evenly divide"));
    assert!(layers(json!([layer("a", 2), layer("a", 1)])).contains("a (also at index 0)"));
    assert!(layers(json!([])).contains("between 1 and 3 entries"));
    assert!(layers(json!([layer("block", 8)])).contains("must not be greater than pod set count 4"));
    assert!(said(json!({ "group-name": "g" })).contains("may not be set when neither"));
    assert!(said(json!({ "group-name": "7", "required-topology": "a" })).contains("must not be a number"));
}

/// A Workload is read in parts, and its old spec only if it changed.
#[test]
fn a_workload_is_judged_as_if_it_were_read_whole() {
    let quota = json!([{ "type": "QuotaReserved", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    let metadata = json!({
        "name": "w", "namespace": "n", "annotations": { "kueue.x-k8s.io/admission-gated-by": "a/b" },
        "managedFields": [{ "manager": "m", "operation": "Update", "fieldsV1": { "f:spec": {} } }],
    });
    let pod_set = |count: i32, cpu: &str| {
        let container = json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } });
        json!({ "name": "main", "count": count, "template": { "spec": { "containers": [container] } } })
    };
    let specs = [
        json!({ "podSets": [pod_set(1, "1")] }),
        json!({ "podSets": [pod_set(2, "1")] }),
        json!({ "podSets": [pod_set(1, "-1")] }),
    ];
    let statuses = [
        json!(null),
        json!({}),
        json!({ "conditions": quota }),
        json!({ "conditions": quota, "admission": { "clusterQueue": "q", "podSetAssignments": [{ "name": "main", "count": 1 }] } }),
        json!({ "reclaimablePods": [{ "name": "main", "count": 2 }] }),
        json!({ "clusterName": "east" }),
    ];
    let workload = |spec: &Value, status: &Value| json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata, "spec": spec, "status": status });
    let all: Vec<Value> =
        specs.iter().flat_map(|spec| statuses.iter().map(move |status| workload(spec, status))).collect();
    for new in &all {
        for old in &all {
            let whole = workload::update(&read(new).expect("a Workload"), &read(old).expect("a Workload"));
            let whole: Vec<String> = whole.iter().map(ToString::to_string).collect();
            let whole: Vec<&str> = whole.iter().map(String::as_str).collect();
            check(Kind::Workload, new, Some(old), &whole);
        }
    }
}
