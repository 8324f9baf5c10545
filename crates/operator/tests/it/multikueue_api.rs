//! The objects of MultiKueue as clusters take and refuse them: the same on embedded clusters and on real ones.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use operator::definitions::{Conversion, all, install};
use serde_json::{Value, json};
use testkit::ControlPlane;

const GROUP: &str = "kueue.x-k8s.io";

fn definition(plural: &str) -> Value {
    let name = format!("{plural}.{GROUP}");
    all(&Conversion::Embedded)
        .into_iter()
        .find(|it| it["metadata"]["name"] == name.as_str())
        .expect("a definition")
}

/// A definition in a line: scope, short names, and for a version whether it is deprecated, has a status of its own, and
/// what its columns show.
fn shown(plural: &str, version: &str) -> String {
    let definition = definition(plural);
    let spec = &definition["spec"];
    let words = |value: &Value, of: fn(&Value) -> &Value| -> String {
        let all = value.as_array().into_iter().flatten();
        all.map(|item| of(item).as_str().unwrap_or("").to_owned()).collect::<Vec<_>>().join(",")
    };
    let found = spec["versions"].as_array().into_iter().flatten().find(|it| it["name"] == version);
    let version = found.expect("a version");
    format!(
        "{} [{}]{}{} {}",
        spec["scope"].as_str().unwrap_or(""),
        words(&spec["names"]["shortNames"], |it| it),
        if version["deprecated"] == true { " deprecated" } else { "" },
        if version["subresources"]["status"].is_object() { " status" } else { "" },
        words(&version["additionalPrinterColumns"], |column| &column["name"]),
    )
}

/// MK-API-01, MK-API-03, MK-API-05, MK-API-06, MK-AC-00, MK-WL-05.
#[test]
fn mk_api_01_what_lists_show() {
    assert_eq!(shown("multikueueconfigs", "v1beta2"), "Cluster [mkconf] ");
    assert_eq!(shown("multikueueconfigs", "v1beta1"), "Cluster [mkconf] ");
    assert_eq!(shown("multikueueclusters", "v1beta2"), "Cluster [mkc] status Connected,Age");
    assert_eq!(shown("multikueueclusters", "v1beta1"), "Cluster [mkc] deprecated status Connected,Age");
    assert_eq!(shown("admissionchecks", "v1beta2"), "Cluster [ac] status ");
    assert_eq!(shown("admissionchecks", "v1beta1"), "Cluster [ac] deprecated status ");
    assert_eq!(
        shown("workloads", "v1beta2"),
        "Namespaced [kwl,kueueworkload,kueueworkloads] status Queue,Reserved in,Admitted,Finished,Age"
    );
    let clusters = definition("multikueueclusters");
    let columns = clusters.pointer("/spec/versions/1/additionalPrinterColumns").expect("columns");
    assert_eq!(columns[0]["jsonPath"], ".status.conditions[?(@.type=='Active')].status");
    let configs = definition("multikueueconfigs");
    assert_eq!(configs.pointer("/spec/conversion/strategy"), None, "it is the same in both");
    let workloads = definition("workloads");
    let versions = workloads["spec"]["versions"].as_array().expect("versions");
    for version in versions {
        let fields = version.get("selectableFields");
        let expected = json!([{"jsonPath": ".status.admission.clusterQueue"}]);
        assert_eq!(fields, Some(&expected).filter(|_| version["name"] == "v1beta2"));
    }
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1beta2", kind));
    match kind {
        "Workload" => Api::namespaced_with(client.clone(), "default", &resource),
        _ => Api::all_with(client.clone(), &resource),
    }
}

/// What became of a request: nothing if it was accepted, and otherwise what the server said.
fn outcome(answer: Result<DynamicObject, kube::Error>) -> anyhow::Result<String> {
    match answer {
        Ok(_) => Ok(String::new()),
        Err(kube::Error::Api(status)) => Ok(status.message.clone()),
        Err(error) => Err(error.into()),
    }
}

/// One question and what its answer has to contain; nothing if it has to be accepted.
struct Case {
    kind: &'static str,
    spec: Value,
    /// Changes of the spec, and of the status, that follow; the last one is judged.
    then: Vec<(bool, Value)>,
    says: &'static str,
}

fn case(kind: &'static str, spec: Value, says: &'static str) -> Case {
    Case { kind, spec, then: Vec::new(), says }
}

/// Asks one question after the other, each of a new object.
async fn ask(client: &Client, cases: &[Case]) -> anyhow::Result<Vec<String>> {
    let mut answers = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        let (api, name) = (api(client, case.kind), format!("case-{index}"));
        let object = json!({"apiVersion": format!("{GROUP}/v1beta2"), "kind": case.kind, "metadata": {"name": name}, "spec": case.spec});
        let object: DynamicObject = serde_json::from_value(object)?;
        let mut answer = outcome(api.create(&PostParams::default(), &object).await)?;
        for (is_status, patch) in &case.then {
            anyhow::ensure!(answer.is_empty(), "{index}: {answer}");
            let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
            answer = outcome(if *is_status {
                api.patch_status(&name, &params, &patch).await
            } else {
                api.patch(&name, &params, &patch).await
            })?;
        }
        answers.push(answer);
    }
    Ok(answers)
}

/// MK-API-01 and the tables of sections 2.1 to 2.5.
fn cases() -> Vec<Case> {
    let long = |length: usize| "x".repeat(length);
    let config = |clusters: Value| json!({"clusters": clusters});
    let many = |count: usize| (0..count).map(|i| format!("c{i}")).collect::<Vec<_>>();
    let mut cases = vec![
        case("MultiKueueConfig", config(json!(["a"])), ""),
        case("MultiKueueConfig", config(json!(many(20))), ""),
        // MK-API-04: nobody asks whether it exists.
        case("MultiKueueConfig", config(json!([long(256)])), ""),
        case("MultiKueueConfig", config(json!([])), "spec.clusters in body should have at least 1 items"),
        case("MultiKueueConfig", json!({}), "spec.clusters: Required value"),
        case(
            "MultiKueueConfig",
            config(json!(many(21))),
            "spec.clusters: Too many: 21: must have at most 20 items",
        ),
        case("MultiKueueConfig", config(json!(["a", "a"])), "must be unique"),
        case(
            "MultiKueueConfig",
            config(json!([long(257)])),
            "spec.clusters[0]: Too long: may not be more than 256 bytes",
        ),
        case("MultiKueueConfig", json!({"clusters": ["a"], "quotaManagement": "Automated"}), ""),
        case(
            "MultiKueueConfig",
            json!({"clusters": ["a"], "quotaManagement": "Other"}),
            "supported values: \"Manual\", \"Automated\"",
        ),
    ];
    let source = |source: Value| json!({"clusterSource": source});
    let at = |location: &str, kind: &str| {
        source(json!({"kubeConfig": {"location": location, "locationType": kind}}))
    };
    let profile = |name: &str| source(json!({"clusterProfileRef": {"name": name}}));
    let one_of = "exactly one of the fields in [kubeConfig clusterProfileRef] must be set";
    cases.extend([
        case("MultiKueueCluster", source(json!({"kubeConfig": {"location": "a"}})), ""),
        case("MultiKueueCluster", at("a", "Secret"), ""),
        case("MultiKueueCluster", at("/a", "Path"), ""),
        case("MultiKueueCluster", profile("p"), ""),
        case("MultiKueueCluster", json!({}), "spec.clusterSource: Required value"),
        case("MultiKueueCluster", source(json!({})), one_of),
        case(
            "MultiKueueCluster",
            source(json!({"kubeConfig": {"location": "a"}, "clusterProfileRef": {"name": "p"}})),
            one_of,
        ),
        case(
            "MultiKueueCluster",
            at("", "Secret"),
            "kubeConfig.location in body should be at least 1 chars long",
        ),
        case(
            "MultiKueueCluster",
            at(&long(257), "Secret"),
            "kubeConfig.location: Too long: may not be more than 256 bytes",
        ),
        case("MultiKueueCluster", at("a", "Other"), "supported values: \"Secret\", \"Path\""),
        case(
            "MultiKueueCluster",
            profile(""),
            "clusterProfileRef.name in body should be at least 1 chars long",
        ),
        case(
            "MultiKueueCluster",
            profile(&long(257)),
            "clusterProfileRef.name: Too long: may not be more than 256 bytes",
        ),
    ]);
    let conditions = |count: usize| {
        let one = |i: usize| json!({"type": format!("T{i}"), "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        json!({"status": {"conditions": (0..count).map(one).collect::<Vec<_>>()}})
    };
    for (count, says) in [(16, ""), (17, "status.conditions: Too many: 17: must have at most 16 items")] {
        cases.push(Case {
            kind: "MultiKueueCluster",
            spec: at("a", "Secret"),
            then: vec![(true, conditions(count))],
            says,
        });
    }
    let check = |name: &str| json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": {"apiGroup": GROUP, "kind": "MultiKueueConfig", "name": name}});
    cases.extend([
        case("AdmissionCheck", check("c"), ""),
        case("AdmissionCheck", json!({}), "spec.controllerName: Required value"),
        case(
            "AdmissionCheck",
            json!({"controllerName": ""}),
            "spec.controllerName in body should be at least 1 chars long",
        ),
        case(
            "AdmissionCheck",
            json!({"controllerName": long(254)}),
            "spec.controllerName: Too long: may not be more than 253 bytes",
        ),
        case("AdmissionCheck", check("not.a.label"), "spec.parameters.name in body should match"),
        case(
            "AdmissionCheck",
            check(&long(64)),
            "spec.parameters.name: Too long: may not be more than 63 bytes",
        ),
        Case {
            kind: "AdmissionCheck",
            spec: check("c"),
            then: vec![(false, json!({"spec": {"controllerName": "other"}}))],
            says: "field is immutable",
        },
    ]);
    cases.extend(workloads());
    cases
}

/// MK-WL-01, MK-WL-02, and how much a Workload can hold.
fn workloads() -> Vec<Case> {
    let pods = |count: usize| {
        let pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        json!({"podSets": (0..count).map(|i| json!({"name": format!("p{i}"), "count": 1, "template": pod})).collect::<Vec<_>>()})
    };
    let status = |status: Value| (true, json!({"status": status}));
    let then = |then: Vec<(bool, Value)>, says| Case { kind: "Workload", spec: pods(1), then, says };
    let on = |cluster: &str| status(json!({"clusterName": cluster}));
    let both = "clusterName and nominatedClusterNames are mutually exclusive";
    let named = |count: usize| {
        status(json!({"nominatedClusterNames": (0..count).map(|i| format!("c{i}")).collect::<Vec<_>>()}))
    };
    let checks = |count: usize| {
        let one = |i: usize| json!({"name": format!("c{i}"), "state": "Pending", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        status(json!({"admissionChecks": (0..count).map(one).collect::<Vec<_>>()}))
    };
    vec![
        case("Workload", pods(18), ""),
        case("Workload", pods(19), "spec.podSets: Too many: 19: must have at most 18 items"),
        case("Workload", pods(0), "spec.podSets in body should have at least 1 items"),
        then(vec![on("east"), on("east")], ""),
        then(vec![on("east"), on("west")], "clusterName is immutable once set"),
        then(vec![on("east"), status(json!({"clusterName": null})), on("west")], ""),
        then(vec![status(json!({"clusterName": "east", "nominatedClusterNames": ["east"]}))], both),
        then(vec![on("east"), named(1)], both),
        then(vec![named(2), status(json!({"clusterName": "c1", "nominatedClusterNames": null}))], ""),
        then(vec![named(20)], ""),
        then(vec![named(21)], "status.nominatedClusterNames: Too many: 21: must have at most 20 items"),
        then(
            vec![status(json!({"nominatedClusterNames": ["x".repeat(257)]}))],
            "Too long: may not be more than 256 bytes",
        ),
        then(vec![on(&"x".repeat(257))], "status.clusterName: Too long: may not be more than 256 bytes"),
        then(vec![checks(8)], ""),
        then(vec![checks(9)], "status.admissionChecks: Too many: 9: must have at most 8 items"),
    ]
}

/// MK-WL-01, MK-WL-02, MK-API-01…08, and what both servers say to the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mk_wl_01_clusters_refuse_what_kueue_s_definitions_refuse() -> anyhow::Result<()> {
    let store = store::Store::open(store::Options::ephemeral())?;
    let cluster = apiserver::Cluster::open(store, rules::job::Settings::default()).await;
    let embedded = Client::new(cluster.map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?, "default");
    install(&embedded, &Conversion::Embedded).await?;
    let cases = cases();
    let answers = ask(&embedded, &cases).await?;
    for (case, answer) in cases.iter().zip(&answers) {
        let is_right = if case.says.is_empty() { answer.is_empty() } else { answer.contains(case.says) };
        assert!(is_right, "{} {}: {answer:?} instead of {:?}", case.kind, case.spec, case.says);
    }
    let default = api(&embedded, "MultiKueueCluster").get("case-10").await?;
    assert_eq!(default.data["spec"]["clusterSource"]["kubeConfig"]["locationType"], "Secret");
    let Some(plane) = ControlPlane::builder().for_test().await else { return Ok(()) };
    install(&plane.client(), &Conversion::Embedded).await?;
    assert_eq!(ask(&plane.client(), &cases).await?, answers);
    Ok(())
}
