//! Whether storage is still in use, so that it may not go although somebody deleted it.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};

/// The claims that a pod names, those that are made for it included.
pub fn claims_of(pod: &Pod) -> Vec<String> {
    let pod_name = pod.metadata.name.as_deref().unwrap_or("");
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes
        .filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some(claim.claim_name.clone()),
            (None, Some(_)) => Some(format!("{pod_name}-{}", volume.name)),
            (None, None) => None,
        })
        .collect()
}

/// A claim is in use while a pod that has not ended names it.
pub fn is_claim_in_use<'a>(claim: &PersistentVolumeClaim, pods: impl IntoIterator<Item = &'a Pod>) -> bool {
    let (namespace, name) = (&claim.metadata.namespace, claim.metadata.name.as_deref().unwrap_or(""));
    pods.into_iter().any(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("");
        let has_ended = matches!(phase, "Succeeded" | "Failed");
        pod.metadata.namespace == *namespace && !has_ended && claims_of(pod).iter().any(|claim| claim == name)
    })
}

/// A volume is in use while it is bound to a claim.
pub fn is_volume_in_use(volume: &PersistentVolume) -> bool {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// A class of attributes is in use while a claim or a volume has it, or wants to.
pub fn is_class_in_use<'a>(
    name: &str,
    claims: impl IntoIterator<Item = &'a PersistentVolumeClaim>,
    volumes: impl IntoIterator<Item = &'a PersistentVolume>,
) -> bool {
    let is_it = |class: Option<&String>| class.is_some_and(|class| class == name);
    let mut claims = claims.into_iter();
    let mut volumes = volumes.into_iter();
    claims.any(|claim| {
        let status = claim.status.as_ref();
        let target = status.and_then(|status| status.modify_volume_status.as_ref());
        is_it(claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_ref()))
            || is_it(status.and_then(|status| status.current_volume_attributes_class_name.as_ref()))
            || is_it(target.and_then(|target| target.target_volume_attributes_class_name.as_ref()))
    }) || volumes
        .any(|volume| is_it(volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_ref())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::wire::typed;

    #[test]
    fn a_claim_is_in_use_until_its_pods_have_ended() {
        let claim: PersistentVolumeClaim =
            typed(&json!({"metadata": {"name": "c", "namespace": "n"}, "spec": {}}));
        let pod = |namespace: &str, phase: &str| -> Pod {
            typed(&json!({
                "metadata": {"name": "p", "namespace": namespace},
                "spec": {"containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
                "status": {"phase": phase},
            }))
        };
        assert!(is_claim_in_use(&claim, &[pod("n", "Pending")]));
        assert!(!is_claim_in_use(&claim, &[pod("n", "Succeeded"), pod("n", "Failed"), pod("m", "Running")]));
        assert!(!is_claim_in_use(&claim, &[]));
    }

    #[test]
    fn volumes_and_classes_in_use() {
        let volume = |phase: &str| -> PersistentVolume {
            typed(
                &json!({"metadata": {"name": "v"}, "spec": {"volumeAttributesClassName": "x"}, "status": {"phase": phase}}),
            )
        };
        assert!(is_volume_in_use(&volume("Bound")) && !is_volume_in_use(&volume("Released")));
        assert!(is_class_in_use("x", &[], &[volume("Bound")]));
        assert!(!is_class_in_use("y", &[], &[volume("Bound")]));
    }
}
