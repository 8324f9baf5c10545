//! What built-in types and their fields are for, in the words of the crate that has them.
//!
//! Nothing here is needed to serve objects: it is made when a document is first asked for.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use k8s_openapi::{api, apiextensions_apiserver, apimachinery, kube_aggregator};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// Descriptions of types and of their fields, by the names of components.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    types: BTreeMap<String, Described>,
}

#[derive(Debug, Default)]
struct Described {
    own: Option<String>,
    fields: BTreeMap<String, String>,
}

impl Descriptions {
    /// Those of all built-in types.
    pub(super) fn built_in() -> &'static Descriptions {
        static BUILT_IN: LazyLock<Descriptions> = LazyLock::new(read);
        &BUILT_IN
    }

    /// What a type is for.
    pub(super) fn of_type(&self, name: &str) -> Option<&str> {
        self.types.get(name)?.own.as_deref()
    }

    /// What a field of a type is for.
    pub(super) fn of_field(&self, name: &str, field: &str) -> Option<&str> {
        let known = |name: &str| self.types.get(name)?.fields.get(field).map(String::as_str);
        // Lists and events have no place of their own in the crate.
        let shared = || match field {
            "apiVersion" | "kind" => known("io.k8s.api.core.v1.Pod"),
            "metadata" => Some("what is the same for lists of all kinds"),
            "items" => Some("the objects"),
            "object" => Some("the object as it is now, as it was last, or what went wrong"),
            "type" => Some("what happened to the object"),
            _ => None,
        };
        known(name).or_else(|| if self.types.contains_key(name) { None } else { shared() })
    }
}

fn read() -> Descriptions {
    let mut generator = SchemaSettings::openapi3().into_generator();
    generate(&mut generator);
    let mut types = BTreeMap::new();
    for (name, schema) in generator.take_definitions(true) {
        let text = |schema: &Value| schema.get("description").and_then(Value::as_str).map(str::to_owned);
        let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        let fields = fields.filter_map(|(field, schema)| Some((field.clone(), text(schema)?))).collect();
        types.insert(name, Described { own: text(&schema), fields });
    }
    Descriptions { types }
}

/// Names every kind that is served, and what else a request may hold.
fn generate(generator: &mut SchemaGenerator) {
    macro_rules! kinds {
        ($($kind:ty),* $(,)?) => {$( let _ = generator.subschema_for::<$kind>(); )*};
    }
    kinds!(
        api::admissionregistration::v1::MutatingWebhookConfiguration,
        api::admissionregistration::v1::ValidatingAdmissionPolicy,
        api::admissionregistration::v1::ValidatingAdmissionPolicyBinding,
        api::admissionregistration::v1::ValidatingWebhookConfiguration,
        api::apps::v1::ControllerRevision,
        api::apps::v1::DaemonSet,
        api::apps::v1::Deployment,
        api::apps::v1::ReplicaSet,
        api::apps::v1::StatefulSet,
        api::autoscaling::v1::HorizontalPodAutoscaler,
        api::autoscaling::v2::HorizontalPodAutoscaler,
        api::batch::v1::CronJob,
        api::batch::v1::Job,
        api::certificates::v1::CertificateSigningRequest,
        api::coordination::v1::Lease,
        api::core::v1::ComponentStatus,
        api::core::v1::ConfigMap,
        api::core::v1::Endpoints,
        api::core::v1::Event,
        api::core::v1::LimitRange,
        api::core::v1::Namespace,
        api::core::v1::Node,
        api::core::v1::PersistentVolume,
        api::core::v1::PersistentVolumeClaim,
        api::core::v1::Pod,
        api::core::v1::PodTemplate,
        api::core::v1::ReplicationController,
        api::core::v1::ResourceQuota,
        api::core::v1::Secret,
        api::core::v1::Service,
        api::core::v1::ServiceAccount,
        api::discovery::v1::EndpointSlice,
        api::events::v1::Event,
        api::flowcontrol::v1::FlowSchema,
        api::flowcontrol::v1::PriorityLevelConfiguration,
        api::networking::v1::IPAddress,
        api::networking::v1::Ingress,
        api::networking::v1::IngressClass,
        api::networking::v1::NetworkPolicy,
        api::networking::v1::ServiceCIDR,
        api::node::v1::RuntimeClass,
        api::policy::v1::PodDisruptionBudget,
        api::rbac::v1::ClusterRole,
        api::rbac::v1::ClusterRoleBinding,
        api::rbac::v1::Role,
        api::rbac::v1::RoleBinding,
        api::resource::v1::DeviceClass,
        api::resource::v1::ResourceClaim,
        api::resource::v1::ResourceClaimTemplate,
        api::resource::v1::ResourceSlice,
        api::scheduling::v1::PriorityClass,
        api::storage::v1::CSIDriver,
        api::storage::v1::CSINode,
        api::storage::v1::CSIStorageCapacity,
        api::storage::v1::StorageClass,
        api::storage::v1::VolumeAttachment,
        api::storage::v1::VolumeAttributesClass,
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        kube_aggregator::pkg::apis::apiregistration::v1::APIService,
        api::authentication::v1::SelfSubjectReview,
        api::authentication::v1::TokenRequest,
        api::authentication::v1::TokenReview,
        api::authorization::v1::LocalSubjectAccessReview,
        api::authorization::v1::SelfSubjectAccessReview,
        api::authorization::v1::SelfSubjectRulesReview,
        api::authorization::v1::SubjectAccessReview,
        api::autoscaling::v1::Scale,
        api::core::v1::Binding,
        api::policy::v1::Eviction,
        apimachinery::pkg::apis::meta::v1::APIGroup,
        apimachinery::pkg::apis::meta::v1::APIGroupList,
        apimachinery::pkg::apis::meta::v1::APIResourceList,
        apimachinery::pkg::apis::meta::v1::APIVersions,
        apimachinery::pkg::apis::meta::v1::DeleteOptions,
        apimachinery::pkg::apis::meta::v1::Status,
    );
}
