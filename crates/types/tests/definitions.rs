//! Kueue's own definitions know the fields that our types know, and no others.
//!
//! From each definition's schema an object is made that has every field there is. Ours must read it and write it back
//! unchanged, so none is missing; and a reader that knows the object's fields asks for no other, so none is invented.
//! A client can use every kind, under the names that its definition gives it.

mod strict;

use std::fs;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use testkit::go::Tools;
use types::kueue;

#[test]
fn every_kind_has_the_fields_of_its_definition() {
    let Some(tools) = Tools::for_test("crds") else { return };
    let directory = tools.module("sigs.k8s.io/kueue").join("config/components/crd/bases");
    let definition = |plural: &str| {
        let path = directory.join(format!("kueue.x-k8s.io_{plural}.yaml"));
        let text = fs::read_to_string(path).expect("the module has the definition");
        serde_saphyr::from_str::<CustomResourceDefinition>(&text).expect("a definition")
    };
    check::<kueue::AdmissionCheck>(&definition("admissionchecks"));
    check::<kueue::ClusterQueue>(&definition("clusterqueues"));
    check::<kueue::Cohort>(&definition("cohorts"));
    check::<kueue::LocalQueue>(&definition("localqueues"));
    check::<kueue::MultiKueueCluster>(&definition("multikueueclusters"));
    check::<kueue::MultiKueueConfig>(&definition("multikueueconfigs"));
    check::<kueue::ProvisioningRequestConfig>(&definition("provisioningrequestconfigs"));
    check::<kueue::ResourceFlavor>(&definition("resourceflavors"));
    check::<kueue::Topology>(&definition("topologies"));
    check::<kueue::Workload>(&definition("workloads"));
    check::<kueue::WorkloadPriorityClass>(&definition("workloadpriorityclasses"));
}

#[track_caller]
fn check<K>(definition: &CustomResourceDefinition)
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug + Send + 'static,
{
    let spec = &definition.spec;
    assert_eq!(
        (&*K::group(&()), &*K::kind(&()), &*K::plural(&())),
        (&*spec.group, &*spec.names.kind, &*spec.names.plural)
    );
    let version = spec.versions.iter().find(|version| version.name == kueue::VERSION).expect("the version");
    let schema =
        version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()).expect("a schema");
    let mut object = full(schema);
    object["apiVersion"] = json!(K::api_version(&()));
    object["kind"] = json!(K::kind(&()));
    object["metadata"] = json!({"name": "full"});
    let read: K = strict::from_value(&object).unwrap_or_else(|error| panic!("{}: {error}", K::kind(&())));
    let written = serde_json::to_value(&read).expect("objects are JSON");
    let lost = differences(&object, &written);
    let unexpected: Vec<&String> =
        lost.iter().filter(|change| !change.contains(OF_A_LATER_KUBERNETES)).collect();
    assert!(unexpected.is_empty(), "{}: {unexpected:?}", K::kind(&()));
}

/// Kueue's definitions are of the Kubernetes that it was built with, and v1.35 does not know this field of a pod.
const OF_A_LATER_KUBERNETES: &str = "/template/spec/schedulingGroup";

/// An object with every field that a schema knows.
fn full(schema: &JSONSchemaProps) -> Value {
    if let Some(values) = &schema.enum_ {
        return values[0].0.clone();
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        return json!("1");
    }
    match (schema.type_.as_deref(), schema.format.as_deref()) {
        (Some("object"), _) => {
            let mut fields = Map::new();
            for (name, schema) in schema.properties.iter().flatten() {
                fields.insert(name.clone(), full(schema));
            }
            if let Some(values) = &schema.additional_properties {
                let values = serde_json::to_value(values).expect("a schema is JSON");
                let values = serde_json::from_value(values).expect("what stands under a key has a schema");
                fields.insert("key".to_owned(), full(&values));
            }
            Value::Object(fields)
        }
        (Some("array"), _) => match schema.items.as_ref() {
            Some(JSONSchemaPropsOrArray::Schema(item)) => json!([full(item)]),
            other => panic!("a list of {other:?}"),
        },
        (Some("boolean"), _) => json!(true),
        (Some("integer" | "number"), _) => json!(1),
        (Some("string"), Some("date-time")) => json!("2026-01-02T03:04:05Z"),
        (Some("string"), _) => json!("text"),
        other => panic!("a schema of type {other:?}"),
    }
}

/// Where two values differ.
fn differences(left: &Value, right: &Value) -> Vec<String> {
    let changes = json_patch::diff(left, right);
    changes.0.iter().map(ToString::to_string).collect()
}
