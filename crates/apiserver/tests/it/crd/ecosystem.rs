//! The real definitions of the batch ecosystem install unchanged, all their rules compile, and the rules decide as
//! their authors meant them.

use std::{collections::BTreeMap, time::Instant};

use apiserver::crd::{Version, definition};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use serde_json::{Value, json};

use super::modules::definitions;

#[test]
fn every_definition_is_accepted_and_every_rule_compiles_3_29() {
    let Some(definitions) = definitions() else { return };
    assert_eq!(definitions.len(), 29, "{:?}", definitions.keys());
    let mut rules = 0;
    for (name, definition) in definitions {
        let errors: Vec<String> = definition::validate(definition).iter().map(ToString::to_string).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        for version in Version::all(definition) {
            let written = definition.spec.versions.iter().find(|known| known.name == version.version);
            let schema = written.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
            let compiled = version.rules.as_ref().map_or(0, apiserver::crd::rules::Rules::count);
            assert_eq!(compiled, schema.map_or(0, count), "{name} {}", version.version);
            rules += compiled;
        }
        let again = definition::validate_update(&stored(definition), &stored(definition));
        assert!(again.is_empty(), "{name} may stay as it is: {again:?}");
    }
    assert!(rules > 140, "{rules} rules");
}

/// How many rules are written, counted without the code under test.
fn count(schema: &JSONSchemaProps) -> usize {
    fn walk(value: &Value) -> usize {
        let own = value.get("x-kubernetes-validations").and_then(Value::as_array).map_or(0, Vec::len);
        let below: usize = match value {
            Value::Object(fields) => fields.values().map(walk).sum(),
            Value::Array(items) => items.iter().map(walk).sum(),
            _ => 0,
        };
        own + below
    }
    walk(&serde_json::to_value(schema).expect("a schema is JSON"))
}

fn stored(definition: &CustomResourceDefinition) -> CustomResourceDefinition {
    let mut definition = definition.clone();
    definition.metadata.resource_version = Some("1".to_owned());
    definition
}

#[test]
fn a_large_definition_is_quick_3_32() {
    let Some(definitions) = definitions() else { return };
    let workloads = &definitions["workloads.kueue.x-k8s.io"];
    let start = Instant::now();
    let errors = definition::validate(workloads);
    let judged = start.elapsed();
    let versions = Version::all(workloads);
    let compiled = start.elapsed();
    assert!(errors.is_empty() && versions.len() == 2);
    println!("workloads: judged in {judged:?}, ready in {compiled:?} (3.32 wants 50 ms in a release build)");
    assert!(compiled.as_secs() < 20, "{compiled:?} even without optimisation");
}

#[test]
fn judging_a_workload_is_quick_3_29() {
    const TIMES: u32 = 200;
    let Some(bench) = Bench::new(&["Workload"]) else { return };
    let version = &bench.versions["Workload/v1beta2"];
    let changes = workload(&[("metadata.resourceVersion", json!("1")), ("spec.queueName", json!("q"))]);
    let (new, old) = (bench.object("Workload/v1beta2", &changes), bench.object("Workload/v1beta2", &changes));
    let rules = version.rules.as_ref().expect("a Workload has rules");
    let root = rules::field::Path::root();
    let time = |work: &dyn Fn() -> rules::field::Errors| {
        let start = Instant::now();
        for _ in 0..TIMES {
            assert_eq!(work(), []);
        }
        start.elapsed() / TIMES
    };
    let update = time(&|| version.validate_update(&new, &old, &mut Vec::new()));
    let only_rules = time(&|| rules.validate(&new, Some(&old), &version.schema, &root, &mut Vec::new()));
    println!("workload: an update is judged in {update:?}, of which {only_rules:?} are rules");
    assert!(update.as_millis() < 100, "{update:?} even without optimisation");
}

/// Objects of the ecosystem: changed by JSON pointers, created or updated, and what is said of it.
struct Bench {
    versions: BTreeMap<String, Version>,
}

impl Bench {
    /// Knows the versions of these kinds.
    fn new(kinds: &[&str]) -> Option<Bench> {
        let named = kinds.iter().map(|kind| format!("{kind}s.").to_lowercase());
        let named: Vec<String> = named.map(|name| name.replace("ys.", "ies.")).collect();
        let definitions =
            definitions()?.iter().filter(|(name, _)| named.iter().any(|kind| name.starts_with(kind)));
        let versions = definitions.flat_map(|(_, definition)| Version::all(definition));
        let name = |version: &Version| format!("{}/{}", version.names.kind, version.version);
        Some(Bench { versions: versions.map(|version| (name(&version), version)).collect() })
    }

    fn object(&self, kind: &str, changes: &[(&str, Value)]) -> Value {
        let version = &self.versions[kind];
        let mut object = json!({"apiVersion": version.api_version(), "kind": version.names.kind, "metadata": {"name": "a"}});
        if version.namespaced {
            object["metadata"]["namespace"] = "default".into();
        }
        for (path, value) in changes {
            set(&mut object, path, value.clone());
        }
        version.decode(&mut object).expect("metadata is fine");
        object
    }

    /// Creating the object is answered with one error that ends like `expected`, or with none.
    #[track_caller]
    fn create(&self, kind: &str, changes: &[(&str, Value)], expected: &str) {
        expect(&self.versions[kind].validate_create(&self.object(kind, changes)), expected);
    }

    #[track_caller]
    fn update(&self, kind: &str, old: &[(&str, Value)], new: &[(&str, Value)], expected: &str) {
        let (mut old, mut new) = (self.object(kind, old), self.object(kind, new));
        for object in [&mut old, &mut new] {
            object["metadata"]["resourceVersion"] = "1".into();
        }
        expect(&self.versions[kind].validate_update(&new, &old, &mut Vec::new()), expected);
    }
}

#[track_caller]
fn expect(errors: &rules::field::Errors, expected: &str) {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match expected {
        "" => assert!(errors.is_empty(), "{errors:#?}"),
        expected => {
            assert!(errors.len() == 1 && errors[0].contains(expected), "{errors:#?} instead of {expected}");
        }
    }
}

/// Puts a value at a path like `spec.list.0.field`.
fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for step in path.split('.') {
        at = if let Ok(index) = step.parse::<usize>() {
            if !at.is_array() {
                *at = json!([]);
            }
            let items = at.as_array_mut().expect("made so");
            while items.len() <= index {
                items.push(Value::Null);
            }
            &mut items[index]
        } else {
            if !at.is_object() {
                *at = json!({});
            }
            at.as_object_mut().expect("made so").entry(step).or_insert(Value::Null)
        };
    }
    *at = value;
}

fn group(covered: Value, flavors: Value) -> Value {
    json!([{"coveredResources": covered, "flavors": flavors}])
}

#[test]
fn kueue_queues_and_flavors() {
    let Some(bench) = Bench::new(&["ClusterQueue", "ResourceFlavor"]) else { return };
    for (version, cohort) in
        [("ClusterQueue/v1beta1", "spec.cohort"), ("ClusterQueue/v1beta2", "spec.cohortName")]
    {
        let flavor = |extra: Value| {
            let mut resource = json!({"name": "cpu", "nominalQuota": 1});
            resource
                .as_object_mut()
                .expect("an object")
                .extend(extra.as_object().expect("an object").clone());
            group(json!(["cpu"]), json!([{"name": "f", "resources": [resource]}]))
        };
        let groups = "spec.resourceGroups";
        bench.create(version, &[(groups, flavor(json!({})))], "");
        bench.create(version, &[(groups, flavor(json!({"borrowingLimit": 1}))), (cohort, json!("c"))], "");
        bench.create(
            version,
            &[(groups, flavor(json!({"borrowingLimit": 1})))],
            "borrowingLimit must be nil when cohort is empty",
        );
        let uncovered = group(
            json!(["cpu", "memory"]),
            json!([{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1}]}]),
        );
        bench.create(version, &[(groups, uncovered)], "spec.resourceGroups[0]: Invalid value: flavors must have the same number of resources as the coveredResources");
        let preemption = |within: &str| {
            (
                "spec.preemption",
                json!({"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": within}}),
            )
        };
        bench.create(version, &[preemption("Never")], "");
        bench.create(
            version,
            &[preemption("LowerPriority")],
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        );
    }
    let flavor = "ResourceFlavor/v1beta2";
    bench.create(flavor, &[("spec.topologyName", json!("t")), ("spec.nodeLabels", json!({"a": "b"}))], "");
    bench.create(
        flavor,
        &[("spec.topologyName", json!("t")), ("spec.nodeLabels", json!({}))],
        "at least one nodeLabel is required when topology is set",
    );
    let tolerations = |toleration: Value| ("spec.tolerations", json!([toleration]));
    bench.create(
        flavor,
        &[tolerations(
            json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}),
        )],
        "",
    );
    bench.create(
        flavor,
        &[tolerations(json!({"operator": "Equal"}))],
        "operator must be Exists when 'key' is empty",
    );
    bench.create(
        flavor,
        &[tolerations(json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}))],
        "effect must be 'NoExecute' when 'tolerationSeconds' is set",
    );
    bench.create(
        flavor,
        &[tolerations(json!({"key": "a", "operator": "Like"}))],
        "supported toleration values",
    );
    bench.create(
        flavor,
        &[tolerations(json!({"key": "a", "operator": "Exists", "value": "x"}))],
        "a value must be empty when 'operator' is 'Exists'",
    );
    let taints = |effect: &str| ("spec.nodeTaints", json!([{"key": "a", "effect": effect}]));
    bench.create(flavor, &[taints("NoSchedule")], "");
    bench.create(flavor, &[taints("Whatever")], "supported taint effect values");
    let with_topology = [("spec.topologyName", json!("t")), ("spec.nodeLabels", json!({"a": "b"}))];
    bench.update(flavor, &with_topology, &with_topology, "");
    bench.update(
        flavor,
        &with_topology,
        &[("spec.topologyName", json!("t")), ("spec.nodeLabels", json!({"a": "c"}))],
        "nodeLabels are immutable when topologyName is set",
    );
}

#[test]
fn kueue_admission_checks_topologies_and_multikueue() {
    let Some(bench) = Bench::new(&["AdmissionCheck", "Topology", "MultiKueueConfig", "MultiKueueCluster"])
    else {
        return;
    };
    let check = |name: &str| vec![("spec.controllerName", json!(name))];
    bench.update("AdmissionCheck/v1beta2", &check("a"), &check("a"), "");
    bench.update(
        "AdmissionCheck/v1beta2",
        &check("a"),
        &check("b"),
        "spec.controllerName: Invalid value: \"b\": field is immutable",
    );
    let levels = |labels: &[&str]| {
        vec![("spec.levels", labels.iter().map(|label| json!({"nodeLabel": label})).collect::<Value>())]
    };
    bench.create("Topology/v1beta2", &levels(&["rack", "kubernetes.io/hostname"]), "");
    bench.create(
        "Topology/v1beta2",
        &levels(&["kubernetes.io/hostname", "rack"]),
        "the kubernetes.io/hostname label can only be used at the lowest level",
    );
    let clusters = |names: &[&str]| vec![("spec.clusters", json!(names))];
    bench.create("MultiKueueConfig/v1beta2", &clusters(&["a", "b"]), "");
    let source = |source: Value| vec![("spec.clusterSource", source)];
    let kube_config = json!({"location": "l", "locationType": "Secret"});
    bench.create("MultiKueueCluster/v1beta2", &source(json!({"kubeConfig": kube_config})), "");
    bench.create(
        "MultiKueueCluster/v1beta2",
        &source(json!({"kubeConfig": kube_config, "clusterProfileRef": {"name": "p"}})),
        "exactly one",
    );
}

fn workload(extra: &[(&'static str, Value)]) -> Vec<(&'static str, Value)> {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}});
    let mut changes = vec![("spec.podSets", json!([{"name": "main", "count": 2, "template": template}]))];
    changes.extend(extra.iter().cloned());
    changes
}

#[test]
fn kueue_workloads() {
    let Some(bench) = Bench::new(&["Workload"]) else { return };
    let kind = "Workload/v1beta2";
    bench.create(kind, &workload(&[]), "");
    bench.create(kind, &workload(&[("spec.podSets.0.minCount", json!(1))]), "");
    bench.create(
        kind,
        &workload(&[("spec.podSets.0.minCount", json!(3))]),
        "minCount should be positive and less or equal to count",
    );
    let class = |group: &str, kind: &str| json!({"group": group, "kind": kind, "name": "p"});
    let by_class = |group: &str, kind: &str| {
        workload(&[("spec.priorityClassRef", class(group, kind)), ("spec.priority", json!(1))])
    };
    bench.create(kind, &by_class("scheduling.k8s.io", "PriorityClass"), "");
    bench.create(
        kind,
        &by_class("scheduling.k8s.io", "WorkloadPriorityClass"),
        "only the PriorityClass kind is allowed",
    );
    bench.create(
        kind,
        &by_class("kueue.x-k8s.io", "PriorityClass"),
        "only the WorkloadPriorityClass kind is allowed",
    );
    bench.create(
        kind,
        &workload(&[("spec.priorityClassRef", class("kueue.x-k8s.io", "WorkloadPriorityClass"))]),
        "priority should not be nil when priorityClassRef is set",
    );
    let condition = |r#type: &str| json!([{"type": r#type, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let reserved = |queue: &str| {
        workload(&[("status.conditions", condition("QuotaReserved")), ("spec.queueName", json!(queue))])
    };
    bench.update(kind, &reserved("a"), &reserved("a"), "");
    bench.update(
        kind,
        &reserved("a"),
        &reserved("b"),
        "queueName is immutable while workload quota reserved",
    );
    let admitted = |seconds: i64| {
        workload(&[
            ("status.conditions", condition("Admitted")),
            ("spec.maximumExecutionTimeSeconds", json!(seconds)),
        ])
    };
    bench.update(kind, &admitted(1), &admitted(1), "");
    bench.update(
        kind,
        &admitted(1),
        &admitted(2),
        "maximumExecutionTimeSeconds is immutable while workload quota reserved",
    );
    let on = |cluster: &str| workload(&[("status.clusterName", json!(cluster))]);
    bench.update(kind, &on("east"), &on("east"), "");
    bench.update(kind, &on("east"), &on("west"), "status: Invalid value: clusterName is immutable once set");
    let nominated =
        workload(&[("status.clusterName", json!("east")), ("status.nominatedClusterNames", json!(["east"]))]);
    bench.create(kind, &nominated, "clusterName and nominatedClusterNames are mutually exclusive");
    let assigned = |count: usize| {
        let assignments: Vec<Value> =
            (0..count).map(|i| json!({"name": format!("p{i}"), "count": 1})).collect();
        workload(&[
            ("status.conditions", condition("QuotaReserved")),
            ("status.admission", json!({"clusterQueue": "q", "podSetAssignments": assignments})),
        ])
    };
    bench.create(kind, &assigned(1), "");
    bench.create(kind, &assigned(2), "podSetAssignments must have the same number of podSets as the spec");
}

#[test]
fn job_sets_and_train_jobs() {
    let Some(bench) = Bench::new(&["JobSet", "TrainJob"]) else { return };
    let job = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let jobs = |depends: bool| {
        let mut second = json!({"name": "b", "template": job});
        if depends {
            second["dependsOn"] = json!([{"name": "a", "status": "Ready"}]);
        }
        json!([{"name": "a", "template": job}, second])
    };
    let order = ("spec.startupPolicy.startupPolicyOrder", json!("InOrder"));
    let set = "JobSet/v1alpha2";
    bench.create(set, &[("spec.replicatedJobs", jobs(true))], "");
    bench.create(set, &[("spec.replicatedJobs", jobs(false)), order.clone()], "");
    bench.create(
        set,
        &[("spec.replicatedJobs", jobs(true)), order],
        "StartupPolicy and DependsOn APIs are mutually exclusive",
    );
    let policy = |restarts: i64| {
        vec![("spec.replicatedJobs", jobs(false)), ("spec.failurePolicy.maxRestarts", json!(restarts))]
    };
    bench.update(set, &policy(1), &policy(1), "");
    bench.update(set, &policy(1), &policy(2), "spec.failurePolicy: Invalid value: Value is immutable");
    let train = "TrainJob/v1alpha1";
    let runtime = ("spec.runtimeRef.name", json!("r"));
    bench.create(train, std::slice::from_ref(&runtime), "");
    bench.create(
        train,
        &[runtime.clone(), ("metadata.name", json!("1a"))],
        "<nil>: Invalid value: metadata.name must match RFC 1035 DNS label format",
    );
    let managed = |by: &str| vec![runtime.clone(), ("spec.managedBy", json!(by))];
    bench.create(train, &managed("kueue.x-k8s.io/multikueue"), "");
    bench.create(
        train,
        &managed("somebody"),
        "ManagedBy must be trainer.kubeflow.org/trainjob-controller or kueue.x-k8s.io/multikueue if set",
    );
    bench.update(
        train,
        &managed("kueue.x-k8s.io/multikueue"),
        &managed("trainer.kubeflow.org/trainjob-controller"),
        "spec.managedBy: Invalid value: \"trainer.kubeflow.org/trainjob-controller\": field is immutable",
    );
}

#[test]
fn ray_and_app_wrappers() {
    let Some(bench) = Bench::new(&["RayCluster", "RayJob", "AppWrapper"]) else { return };
    let head = |managed: &str| {
        vec![
            (
                "spec.headGroupSpec",
                json!({"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}),
            ),
            ("spec.managedBy", json!(managed)),
        ]
    };
    let cluster = "RayCluster/v1";
    bench.create(cluster, &head("ray.io/kuberay-operator"), "");
    bench.create(
        cluster,
        &head("somebody"),
        "the managedBy field value must be either 'ray.io/kuberay-operator' or 'kueue.x-k8s.io/multikueue'",
    );
    bench.update(
        cluster,
        &head("ray.io/kuberay-operator"),
        &head("kueue.x-k8s.io/multikueue"),
        "the managedBy field is immutable",
    );
    let strategy = |strategy: Value| vec![("spec.deletionStrategy", strategy)];
    let rule = json!({"condition": {"jobStatus": "FAILED"}, "policy": "DeleteCluster"});
    let job = "RayJob/v1";
    bench.create(job, &strategy(json!({"deletionRules": [rule]})), "");
    let policy = json!({"policy": "DeleteCluster"});
    bench.create(
        job,
        &strategy(json!({"onSuccess": policy, "onFailure": policy, "deletionRules": [rule]})),
        "legacy policies",
    );
    bench.create(job, &strategy(json!({})), "deletionStrategy requires either");
    let wrapper = "AppWrapper/v1beta2";
    let component =
        json!({"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"x": 1}}});
    bench.create(wrapper, &[("spec.components", json!([component]))], "");
    let wrapped = bench.object(wrapper, &[("spec.components", json!([component]))]);
    assert_eq!(wrapped["spec"]["components"][0]["template"]["spec"]["x"], 1, "what is embedded is kept");
}
