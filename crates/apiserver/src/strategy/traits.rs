//! What differs from kind to kind in a write and that no rule has to look into an object for: facts, by group and kind.

use crate::registry::Resource;

/// What becomes of the objects that one of the kind owns, when nobody says (2.54).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owned {
    /// They go, too.
    Deleted,
    /// They stay.
    Orphaned,
    /// The kind owns nothing, whatever anybody says.
    Ignored,
}

/// The facts of one kind.
#[expect(clippy::struct_excessive_bools, reason = "facts that have nothing to do with each other")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Traits {
    /// A PUT makes an object that is not there (2.33).
    pub(crate) creates_on_update: bool,
    /// A PUT has to say which version it changes (2.32).
    pub(crate) needs_version: bool,
    /// See [`Owned`].
    pub(crate) owned: Owned,
    /// An object may take its time to end (2.56).
    pub(crate) is_graceful: bool,
    /// A DELETE answers with the object that is gone, not with a Status (2.57).
    pub(crate) answers_deleted: bool,
    /// What a DELETE warns of that does not say what becomes of owned objects (W-05).
    pub(crate) orphan_warning: Option<&'static str>,
    /// The version is served, but not for ever; requests are warned.
    pub(crate) deprecation: Option<&'static str>,
    /// An object without a name gets one of its own accord.
    pub(crate) names_itself: bool,
    /// Preconditions of a DELETE of one object are judged by a rule of the kind, which has other words.
    pub(crate) judges_preconditions: bool,
    /// Objects can be selected by their namespace, and be it that they have none.
    pub(crate) selects_namespace: bool,
}

impl Traits {
    pub(crate) fn of(resource: &Resource) -> Self {
        let kind = (resource.group.as_str(), resource.kind.as_str());
        Traits {
            creates_on_update: CREATE_ON_UPDATE.contains(&kind),
            needs_version: resource.custom.is_some() || NEED_VERSION.contains(&kind),
            owned: match kind {
                ("batch", "Job") | ("", "ReplicationController") => Owned::Orphaned,
                ("" | "events.k8s.io", "Event") => Owned::Ignored,
                _ => Owned::Deleted,
            },
            is_graceful: kind == ("", "Pod"),
            answers_deleted: ANSWER_DELETED.contains(&kind),
            orphan_warning: (kind == ("batch", "Job")).then_some(rules::job::warnings::PODS_ARE_PRESERVED),
            deprecation: match kind {
                ("", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
                ("", "Endpoints") => {
                    Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
                }
                _ => None,
            },
            names_itself: kind == ("", "LimitRange"),
            judges_preconditions: kind == ("", "Namespace") || resource.is_definition(),
            selects_namespace: !WITHOUT_NAMESPACE.contains(&kind),
        }
    }
}

/// Kinds that say themselves which of their fields can be selected, and do not name the namespace that they have not.
const WITHOUT_NAMESPACE: [(&str, &str); 4] = [
    ("", "Namespace"),
    ("", "Node"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("resource.k8s.io", "ResourceSlice"),
];

const CREATE_ON_UPDATE: [(&str, &str); 11] = [
    ("", "Endpoints"),
    ("", "Event"),
    ("", "LimitRange"),
    ("", "Service"),
    ("events.k8s.io", "Event"),
    ("coordination.k8s.io", "Lease"),
    ("node.k8s.io", "RuntimeClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
];

const NEED_VERSION: [(&str, &str); 15] = [
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("coordination.k8s.io", "Lease"),
    ("node.k8s.io", "RuntimeClass"),
    ("policy", "PodDisruptionBudget"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "CSIStorageCapacity"),
    ("storage.k8s.io", "VolumeAttachment"),
];

const ANSWER_DELETED: [(&str, &str); 17] = [
    ("", "Namespace"),
    ("", "PersistentVolume"),
    ("", "PersistentVolumeClaim"),
    ("", "Pod"),
    ("", "PodTemplate"),
    ("", "ResourceQuota"),
    ("", "Service"),
    ("", "ServiceAccount"),
    ("resource.k8s.io", "DeviceClass"),
    ("resource.k8s.io", "ResourceClaim"),
    ("resource.k8s.io", "ResourceClaimTemplate"),
    ("resource.k8s.io", "ResourceSlice"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("storage.k8s.io", "VolumeAttributesClass"),
];
