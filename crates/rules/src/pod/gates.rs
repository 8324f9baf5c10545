//! Fields whose feature is switched off in Kubernetes 1.35 unless the operator of a cluster asks for it: a write drops
//! them before it is judged, except where the stored object already has them. No rule judges them: they cannot get into
//! a store in the first place.

use k8s_openapi::api::core::v1::{Container, Lifecycle, Pod, PodSpec, PodTemplateSpec, VolumeProjection};

use super::all_containers;
use crate::field::Path;

/// Drops from a template what is behind a gate that is off.
pub fn drop_disabled(new: &mut PodTemplateSpec, old: Option<&PodTemplateSpec>) {
    let old = old.and_then(|old| old.spec.as_ref());
    if let Some(new) = &mut new.spec {
        drop_from_spec(new, old);
    }
}

/// Drops from the spec of a pod what is behind a gate that is off.
pub fn drop_disabled_from_pod(new: &mut Pod, old: Option<&Pod>) {
    let old = old.and_then(|old| old.spec.as_ref());
    if let Some(new) = &mut new.spec {
        drop_from_spec(new, old);
    }
}

fn drop_from_spec(new: &mut PodSpec, old: Option<&PodSpec>) {
    // ClusterTrustBundleProjection
    if !projects(old, |source| source.cluster_trust_bundle.is_some()) {
        projections(new).for_each(|source| source.cluster_trust_bundle = None);
    }
    // PodCertificateRequest
    if !projects(old, |source| source.pod_certificate.is_some()) {
        projections(new).for_each(|source| source.pod_certificate = None);
    }
    // GenericWorkload
    if old.is_none_or(|old| old.workload_ref.is_none()) {
        new.workload_ref = None;
    }
    // ContainerStopSignals
    if !has_stop_signal(old) {
        for container in new.init_containers.iter_mut().flatten().chain(&mut new.containers) {
            drop_stop_signal(&mut container.lifecycle);
        }
        for container in new.ephemeral_containers.iter_mut().flatten() {
            drop_stop_signal(&mut container.lifecycle);
        }
    }
}

fn projections(spec: &mut PodSpec) -> impl Iterator<Item = &mut VolumeProjection> {
    let projected = spec.volumes.iter_mut().flatten().filter_map(|volume| volume.projected.as_mut());
    projected.flat_map(|projected| projected.sources.iter_mut().flatten())
}

fn projects(spec: Option<&PodSpec>, what: fn(&VolumeProjection) -> bool) -> bool {
    let volumes = spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten());
    let projected = volumes.filter_map(|volume| volume.projected.as_ref());
    projected.flat_map(|projected| projected.sources.iter().flatten()).any(what)
}

fn has_stop_signal(spec: Option<&PodSpec>) -> bool {
    let stops = |container: &Container| {
        container.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.stop_signal.is_some())
    };
    spec.is_some_and(|spec| all_containers(spec, &Path::root()).iter().any(|(container, _)| stops(container)))
}

/// A lifecycle that held nothing else goes with it.
fn drop_stop_signal(lifecycle: &mut Option<Lifecycle>) {
    if lifecycle.as_mut().and_then(|lifecycle| lifecycle.stop_signal.take()).is_some()
        && *lifecycle == Some(Lifecycle::default())
    {
        *lifecycle = None;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(projection: &Value, lifecycle: &Value, workload: &Value) -> Value {
        let mut spec = json!({
            "containers": [{"name": "c"}],
            "volumes": [{"name": "v", "projected": {"sources": [projection]}}],
        });
        if !lifecycle.is_null() {
            spec["containers"][0]["lifecycle"] = lifecycle.clone();
        }
        if !workload.is_null() {
            spec["workloadRef"] = workload.clone();
        }
        json!({"spec": spec})
    }

    #[test]
    fn switched_off_fields_are_dropped_unless_stored() {
        let workload = json!({"name": "w", "podGroup": "g"});
        for (projection, lifecycle, kept) in [
            (json!({"clusterTrustBundle": {"path": "p"}}), json!({"stopSignal": "SIGTERM"}), json!(null)),
            (
                json!({"podCertificate": {"keyType": "ED25519", "signerName": "s"}}),
                json!({"stopSignal": "SIGTERM", "preStop": {"sleep": {"seconds": 1}}}),
                json!({"preStop": {"sleep": {"seconds": 1}}}),
            ),
        ] {
            let sent = spec(&projection, &lifecycle, &workload);
            let template: PodTemplateSpec = serde_json::from_value(sent.clone()).expect("a test's template");
            let mut new = template.clone();
            drop_disabled(&mut new, None);
            let got = serde_json::to_value(&new).expect("a template is JSON");
            assert_eq!(got, spec(&json!({}), &kept, &json!(null)));

            let mut again = template.clone();
            drop_disabled(&mut again, Some(&template));
            assert_eq!(serde_json::to_value(&again).expect("a template is JSON"), sent);
        }
    }

    #[test]
    fn an_empty_lifecycle_of_the_authors_own_stays() {
        let mut lifecycle = Some(Lifecycle::default());
        drop_stop_signal(&mut lifecycle);
        assert_eq!(lifecycle, Some(Lifecycle::default()));
    }
}
