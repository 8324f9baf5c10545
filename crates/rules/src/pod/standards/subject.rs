//! A pod as checks look at it.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, PodSecurityContext, PodSpec, SecurityContext};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Version, named};
use crate::field::Path;
use crate::pod::{Annotations, all_containers, annotations};

/// A pod, or a template of one, and the version of the standard to which it is held.
pub(super) struct Subject<'a> {
    /// The minor version; the latest is greater than any.
    pub(super) minor: u64,
    pub(super) annotations: &'a Annotations,
    pub(super) spec: &'a PodSpec,
    containers: Vec<Cow<'a, Container>>,
}

impl<'a> Subject<'a> {
    pub(super) fn new(version: Version, meta: &'a ObjectMeta, spec: &'a PodSpec) -> Self {
        let minor = match version {
            Version::Minor(minor) => minor,
            Version::Latest => u64::MAX,
        };
        let containers = all_containers(spec, &Path::new("spec"));
        Subject {
            minor,
            annotations: annotations(Some(meta)),
            spec,
            containers: containers.into_iter().map(|(container, _)| container).collect(),
        }
    }

    /// The security context of the pod itself.
    pub(super) fn context(&self) -> Option<&PodSecurityContext> {
        self.spec.security_context.as_ref()
    }

    pub(super) fn containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().map(|container| &**container)
    }

    /// The names of the containers whose security contexts are bad, or whose having none is.
    pub(super) fn containers_with(
        &self,
        mut is_bad: impl FnMut(Option<&SecurityContext>) -> bool,
    ) -> Vec<&str> {
        let bad = self.containers().filter(|container| is_bad(container.security_context.as_ref()));
        bad.map(|container| container.name.as_str()).collect()
    }

    /// Who does what must not be done: the pod itself, if it does, and these containers.
    pub(super) fn setters(pod: bool, containers: &[&str]) -> Vec<String> {
        let pod = pod.then(|| "pod".to_owned());
        pod.into_iter().chain((!containers.is_empty()).then(|| named("container", containers))).collect()
    }

    /// Whether it says that it runs on Windows, which has no such thing as capabilities.
    pub(super) fn is_of_windows(&self) -> bool {
        self.spec.os.as_ref().is_some_and(|os| os.name == "windows")
    }

    /// Whether its users, root among them, are none of the node.
    pub(super) fn has_own_users(&self) -> bool {
        self.spec.host_users == Some(false)
    }
}
