use k8s_openapi::api::core::v1::{LimitRange, PodSpec};
use serde_json::{Value, json};
use types::Quantity;

use crate::{
    field::Path,
    quota::requests::{Accounting, Limits, List, PodResources, Transformation, count},
};

fn spec(spec: Value) -> PodSpec {
    serde_json::from_value(spec).expect("the test writes valid pods")
}

fn list(given: &[(&str, &str)]) -> List {
    given
        .iter()
        .map(|&(name, text)| (name.to_owned(), text.parse::<Quantity>().expect("a quantity")))
        .collect()
}

fn path() -> Path {
    Path::new("spec").child("podSets").index(0).child("template").child("spec")
}

fn read(pod: Value) -> PodResources {
    PodResources::read(&spec(pod), &path()).expect("all quantities are ones")
}

fn limits(items: Value) -> Limits {
    let range: LimitRange =
        serde_json::from_value(json!({"metadata": {}, "spec": {"limits": items}})).expect("valid");
    Limits::summarize([&range]).expect("all quantities are ones")
}

fn asking(cpu: &str) -> Value {
    json!({"name": "c", "resources": {"requests": {"cpu": cpu}}})
}

#[test]
fn qm_21_what_a_pod_needs_at_once() {
    let check =
        |pod: Value, want: &[(&str, &str)]| assert_eq!(read(pod.clone()).total(), list(want), "{pod}");
    check(json!({"containers": [asking("1"), asking("500m")]}), &[("cpu", "1500m")]);
    check(
        json!({"containers": [asking("1")], "initContainers": [asking("3"), asking("2")]}),
        &[("cpu", "3")],
    );
    let sidecar =
        |cpu: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
    check(
        json!({"containers": [asking("1")], "initContainers": [sidecar("1"), asking("3")]}),
        &[("cpu", "4")],
    );
    check(
        json!({"containers": [asking("1")], "initContainers": [asking("3"), sidecar("1")]}),
        &[("cpu", "3")],
    );
    let whole = json!({"requests": {"cpu": "5", "example.com/gpu": "9"}});
    check(json!({"containers": [asking("1")], "resources": whole}), &[("cpu", "5")]);
    check(json!({"containers": [asking("1")], "overhead": {"cpu": "250m"}}), &[("cpu", "1250m")]);
    check(json!({"containers": []}), &[]);
}

#[test]
fn qm_20_what_the_cluster_would_fill_in() {
    let bare = json!({"containers": [{"name": "c"}]});
    let limited = json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]});
    let defaults =
        json!([{"type": "Container", "default": {"cpu": "4"}, "defaultRequest": {"memory": "1Gi"}}]);
    let check = |pod: &Value, overhead: Option<List>, items: Value, want: &[(&str, &str)]| {
        let mut resources = read(pod.clone());
        resources.adjust(overhead.as_ref(), &limits(items));
        assert_eq!(resources.total(), list(want), "{pod}");
    };
    check(&limited, None, json!([]), &[("cpu", "2")]);
    check(&bare, None, defaults.clone(), &[("cpu", "4"), ("memory", "1Gi")]);
    check(&limited, None, defaults, &[("cpu", "2"), ("memory", "1Gi")]);
    check(&bare, Some(list(&[("cpu", "100m")])), json!([]), &[("cpu", "100m")]);
    let with_own = json!({"containers": [], "overhead": {"cpu": "1"}});
    check(&with_own, Some(list(&[("cpu", "100m")])), json!([]), &[("cpu", "1")]);
}

#[test]
fn qm_27_requests_out_of_bounds() {
    let messages = |pod: Value, items: Value| -> Vec<String> {
        let (resources, limits) = (read(pod), limits(items));
        let errors =
            resources.above_own_limits(&path()).into_iter().chain(resources.out_of_range(&limits, &path()));
        errors.map(|error| error.to_string()).collect()
    };
    let bounded = |requests: &str, limits: &str| json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": requests}, "limits": {"cpu": limits}}}]});
    let container = "spec.podSets[0].template.spec.containers[0]: Invalid value: [\"cpu\"]: ";
    let above = "requests must not be above the limitRange max";
    let below = "requests must not be below the limitRange min";
    assert_eq!(messages(bounded("2", "3"), json!([])), Vec::<String>::new());
    assert_eq!(
        messages(bounded("3", "2"), json!([])),
        [format!("{container}requests must not exceed its limits")]
    );
    let max = json!([{"type": "Container", "max": {"cpu": "1"}}]);
    assert_eq!(messages(bounded("2", "3"), max), [format!("{container}{above}")]);
    let min = json!([{"type": "Container", "min": {"cpu": "3"}}]);
    assert_eq!(messages(bounded("2", "3"), min), [format!("{container}{below}")]);
    let pod = "spec.podSets[0].template.spec: Invalid value: [\"cpu\"]: ";
    let max = json!([{"type": "Pod", "max": {"cpu": "1"}}]);
    assert_eq!(messages(bounded("2", "3"), max), [format!("{pod}{above}")]);
}

#[test]
fn a_quantity_that_is_none_is_named() {
    let pod = spec(json!({"containers": [asking("lots")]}));
    let errors = PodResources::read(&pod, &Path::new("spec")).expect_err("not a quantity");
    assert!(
        errors[0]
            .to_string()
            .starts_with("spec.containers[0].resources.requests[cpu]: Invalid value: \"lots\"")
    );
}

#[test]
fn qm_22_and_qm_23_what_is_counted() {
    let transform =
        |input: &str, keep_input, multiply_by: Option<&str>, outputs: &[(&str, &str)]| Transformation {
            input: input.into(),
            keep_input,
            multiply_by: multiply_by.map(Into::into),
            outputs: list(outputs),
        };
    let check = |total: &[(&str, &str)], transformations: Vec<Transformation>, want: &[(&str, i64)]| {
        let accounting = Accounting { exclude_prefixes: vec!["private.io/".into()], transformations };
        let counted: Vec<(String, i64)> = count(&list(total), &accounting)
            .into_iter()
            .map(|(name, amount)| (name.to_string(), amount.units()))
            .collect();
        let want: Vec<(String, i64)> = want.iter().map(|&(name, units)| (name.to_owned(), units)).collect();
        assert_eq!(counted, want);
    };
    check(
        &[("cpu", "1500m"), ("memory", "1Ki"), ("private.io/x", "3")],
        vec![],
        &[("cpu", 1500), ("memory", 1024)],
    );
    let credits = || transform("gpu", true, None, &[("credits", "10"), ("memory", "5Ki")]);
    check(
        &[("gpu", "2"), ("memory", "1Ki")],
        vec![credits()],
        &[("credits", 20), ("gpu", 2), ("memory", 11_264)],
    );
    let replaced = transform("gpu", false, None, &[("credits", "1.5")]);
    check(&[("gpu", "3")], vec![replaced], &[("credits", 5)]);
    let hidden = transform("gpu", false, None, &[]);
    check(&[("gpu", "3"), ("cpu", "1")], vec![hidden], &[("cpu", 1000)]);
    let product = transform("slices", false, Some("cores"), &[("cpu", "1")]);
    check(&[("cores", "250m"), ("slices", "4")], vec![product], &[("cores", 1), ("cpu", 1000)]);
    let allowance = transform("spot", false, None, &[("credits", "-100")]);
    check(
        &[("gpu", "2"), ("spot", "1"), ("credits", "7")],
        vec![credits(), allowance],
        &[("credits", 7), ("gpu", 2), ("memory", 10_240)],
    );
    let huge = transform("gpu", false, None, &[("credits", "1E")]);
    check(&[("gpu", "1E")], vec![huge], &[("credits", i64::MAX)]);
}
