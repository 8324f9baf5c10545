//! What a pod's fields are when nobody said (D-13).
//!
//! A pod and a pod template share most defaults; [`apply_template_defaults`] is the shared part as Jobs use it,
//! [`apply_pod_defaults`] adds what only materialises in the pod itself. Defaulting twice changes nothing.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    AzureDiskVolumeSource, Container, DownwardAPIVolumeFile, EmptyDirVolumeSource, EnvVar, HTTPGetAction,
    LifecycleHandler, ObjectFieldSelector, Pod, PodSpec, PodTemplateSpec, Probe, ProjectedVolumeSource,
    RBDVolumeSource, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use types::Quantity;

use super::{ephemeral, image, resources};

const FILE_MODE: i32 = 0o644;
const TOKEN_SECONDS: i64 = 60 * 60;

/// Annotations of Kubernetes 1.5 that are taken out wherever a template is read.
const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
];

/// Fills in what the author of a pod template left open.
pub fn apply_template_defaults(template: &mut PodTemplateSpec) {
    if let Some(meta) = &mut template.metadata {
        drop_init_container_annotations(meta);
    }
    default_spec(template.spec.get_or_insert_default());
}

/// Fills in what the creator of a pod left open: the defaults of a template, and those that would change templates if
/// they applied to them.
pub fn apply_pod_defaults(pod: &mut Pod) {
    drop_init_container_annotations(&mut pod.metadata);
    let spec = pod.spec.get_or_insert_default();
    // Before the common part, because that rounds amounts, and here they are added up.
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        default_requests_to_limits(container);
    }
    resources::default_pod_level(spec);
    spec.enable_service_links.get_or_insert(true);
    if spec.host_network == Some(true) {
        default_host_ports(spec);
    }
    default_spec(spec);
    if spec.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        spec.termination_grace_period_seconds = Some(1);
    }
}

fn drop_init_container_annotations(meta: &mut ObjectMeta) {
    if let Some(annotations) = &mut meta.annotations {
        annotations.retain(|key, _| !INIT_CONTAINER_ANNOTATIONS.contains(&key.as_str()));
    }
}

fn default_spec(spec: &mut PodSpec) {
    default_text(&mut spec.dns_policy, "ClusterFirst");
    default_text(&mut spec.restart_policy, "Always");
    spec.security_context.get_or_insert_default();
    spec.termination_grace_period_seconds.get_or_insert(30);
    default_text(&mut spec.scheduler_name, "default-scheduler");
    alias_service_account(spec);
    for volume in spec.volumes.iter_mut().flatten() {
        default_volume(volume);
    }
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        default_container(container);
    }
    for ephemeral in spec.ephemeral_containers.iter_mut().flatten() {
        let mut container = ephemeral::to_container(ephemeral);
        default_container(&mut container);
        *ephemeral = ephemeral::from_container(container, ephemeral.target_container_name.take());
    }
    round_to_millis(spec.overhead.as_mut());
    if let Some(resources) = &mut spec.resources {
        round_to_millis(resources.limits.as_mut());
        round_to_millis(resources.requests.as_mut());
    }
}

/// `serviceAccount` is the old spelling of `serviceAccountName`; both are always read back alike.
fn alias_service_account(spec: &mut PodSpec) {
    if spec.service_account_name.as_ref().is_none_or(String::is_empty) {
        spec.service_account_name.clone_from(&spec.service_account);
    }
    spec.service_account.clone_from(&spec.service_account_name);
}

fn default_container(container: &mut Container) {
    let image = container.image.as_deref().unwrap_or_default();
    let pull = if image::is_latest(image) { "Always" } else { "IfNotPresent" };
    default_text(&mut container.image_pull_policy, pull);
    default_text(&mut container.termination_message_path, "/dev/termination-log");
    default_text(&mut container.termination_message_policy, "File");
    for port in container.ports.iter_mut().flatten() {
        default_text(&mut port.protocol, "TCP");
    }
    for variable in container.env.iter_mut().flatten() {
        default_variable(variable);
    }
    if let Some(resources) = &mut container.resources {
        round_to_millis(resources.limits.as_mut());
        round_to_millis(resources.requests.as_mut());
    }
    for probe in [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe]
    {
        probe.iter_mut().for_each(default_probe);
    }
    if let Some(lifecycle) = &mut container.lifecycle {
        lifecycle.post_start.iter_mut().for_each(default_handler);
        lifecycle.pre_stop.iter_mut().for_each(default_handler);
    }
}

fn default_variable(variable: &mut EnvVar) {
    let Some(source) = &mut variable.value_from else { return };
    source.field_ref.iter_mut().for_each(default_field_selector);
    if let Some(file) = &mut source.file_key_ref {
        file.optional.get_or_insert(false);
    }
}

fn default_probe(probe: &mut Probe) {
    default_number(&mut probe.timeout_seconds, 1);
    default_number(&mut probe.period_seconds, 10);
    default_number(&mut probe.success_threshold, 1);
    default_number(&mut probe.failure_threshold, 3);
    probe.http_get.iter_mut().for_each(default_http_get);
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn default_handler(handler: &mut LifecycleHandler) {
    handler.http_get.iter_mut().for_each(default_http_get);
}

fn default_http_get(http: &mut HTTPGetAction) {
    default_text(&mut http.path, "/");
    default_text(&mut http.scheme, "HTTP");
}

fn default_field_selector(selector: &mut ObjectFieldSelector) {
    default_text(&mut selector.api_version, "v1");
}

fn default_volume(volume: &mut Volume) {
    if *volume == (Volume { name: volume.name.clone(), ..Volume::default() }) {
        volume.empty_dir = Some(EmptyDirVolumeSource::default());
    }
    if let Some(source) = &mut volume.image {
        let reference = source.reference.as_deref().unwrap_or_default();
        let pull = if image::is_latest(reference) { "Always" } else { "IfNotPresent" };
        default_text(&mut source.pull_policy, pull);
    }
    if let Some(host_path) = &mut volume.host_path {
        host_path.type_.get_or_insert_default();
    }
    if let Some(secret) = &mut volume.secret {
        secret.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(iscsi) = &mut volume.iscsi {
        default_text(&mut iscsi.iscsi_interface, "default");
    }
    volume.rbd.iter_mut().for_each(default_rbd);
    if let Some(downward) = &mut volume.downward_api {
        downward.default_mode.get_or_insert(FILE_MODE);
        default_downward_files(downward.items.as_deref_mut().unwrap_or_default());
    }
    if let Some(config_map) = &mut volume.config_map {
        config_map.default_mode.get_or_insert(FILE_MODE);
    }
    volume.azure_disk.iter_mut().for_each(default_azure_disk);
    volume.projected.iter_mut().for_each(default_projected);
    if let Some(scale_io) = &mut volume.scale_io {
        default_text(&mut scale_io.storage_mode, "ThinProvisioned");
        default_text(&mut scale_io.fs_type, "xfs");
    }
    if let Some(claim) = volume.ephemeral.as_mut().and_then(|source| source.volume_claim_template.as_mut()) {
        claim.spec.volume_mode.get_or_insert_with(|| "Filesystem".to_owned());
        if let Some(resources) = &mut claim.spec.resources {
            round_to_millis(resources.limits.as_mut());
            round_to_millis(resources.requests.as_mut());
        }
    }
}

fn default_rbd(rbd: &mut RBDVolumeSource) {
    default_text(&mut rbd.pool, "rbd");
    default_text(&mut rbd.user, "admin");
    default_text(&mut rbd.keyring, "/etc/ceph/keyring");
}

fn default_azure_disk(disk: &mut AzureDiskVolumeSource) {
    disk.caching_mode.get_or_insert_with(|| "ReadWrite".to_owned());
    disk.fs_type.get_or_insert_with(|| "ext4".to_owned());
    disk.read_only.get_or_insert(false);
    disk.kind.get_or_insert_with(|| "Shared".to_owned());
}

fn default_projected(projected: &mut ProjectedVolumeSource) {
    projected.default_mode.get_or_insert(FILE_MODE);
    for source in projected.sources.iter_mut().flatten() {
        if let Some(downward) = &mut source.downward_api {
            default_downward_files(downward.items.as_deref_mut().unwrap_or_default());
        }
        if let Some(token) = &mut source.service_account_token {
            token.expiration_seconds.get_or_insert(TOKEN_SECONDS);
        }
    }
}

fn default_downward_files(files: &mut [DownwardAPIVolumeFile]) {
    for file in files {
        file.field_ref.iter_mut().for_each(default_field_selector);
    }
}

fn default_requests_to_limits(container: &mut Container) {
    let Some(resources) = &mut container.resources else { return };
    if let Some(limits) = &resources.limits {
        let requests = resources.requests.get_or_insert_default();
        for (name, limit) in limits {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
}

fn default_host_ports(spec: &mut PodSpec) {
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        for port in container.ports.iter_mut().flatten() {
            if port.host_port.unwrap_or(0) == 0 && port.container_port != 0 {
                port.host_port = Some(port.container_port);
            }
        }
    }
}

/// Resource lists are kept in whole thousandths. A text that is no quantity is left for validation to refuse.
fn round_to_millis(list: Option<&mut BTreeMap<String, resource::Quantity>>) {
    for quantity in list.into_iter().flat_map(BTreeMap::values_mut) {
        if let Ok(parsed) = Quantity::try_from(&*quantity) {
            *quantity = (&parsed.rounded_to_millis()).into();
        }
    }
}

fn default_text(field: &mut Option<String>, value: &str) {
    if field.as_ref().is_none_or(String::is_empty) {
        *field = Some(value.to_owned());
    }
}

fn default_number(field: &mut Option<i32>, value: i32) {
    if field.unwrap_or(0) == 0 {
        *field = Some(value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn defaulted(template: Value) -> Value {
        let mut template: PodTemplateSpec = serde_json::from_value(template).expect("a test's template");
        apply_template_defaults(&mut template);
        let once = serde_json::to_value(&template).expect("a template is JSON");
        apply_template_defaults(&mut template);
        assert_eq!(serde_json::to_value(&template).expect("a template is JSON"), once, "defaulting twice");
        once
    }

    /// Gives one volume its defaults and compares it.
    fn check_volume(mut volume: Value, mut expected: Value) {
        volume["name"] = json!("v");
        expected["name"] = json!("v");
        let got = defaulted(json!({"spec": {"containers": [], "volumes": [volume]}}));
        assert_eq!(got["spec"]["volumes"][0], expected);
    }

    #[test]
    fn d_13_a_bare_template() {
        assert_eq!(
            defaulted(json!({"spec": {"containers": [{"name": "c", "image": "busybox"}]}})),
            json!({"spec": {
                "containers": [{
                    "name": "c", "image": "busybox", "imagePullPolicy": "Always",
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
                "securityContext": {}, "terminationGracePeriodSeconds": 30,
            }})
        );
    }

    #[test]
    fn d_13_inside_a_container() {
        let container = json!({
            "name": "c", "image": "busybox:1", "ports": [{"containerPort": 1}],
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "F", "valueFrom": {"fileKeyRef": {"key": "k", "path": "p", "volumeName": "v"}}}],
            "resources": {"limits": {"cpu": "100u", "memory": "1.5Gi"}},
            "livenessProbe": {"grpc": {"port": 1}},
            "readinessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 3},
            "lifecycle": {"preStop": {"httpGet": {"port": 1}}},
        });
        let got = defaulted(json!({"spec": {"containers": [], "initContainers": [container]}}));
        assert_eq!(
            got["spec"]["initContainers"][0],
            json!({
                "name": "c", "image": "busybox:1", "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "ports": [{"containerPort": 1, "protocol": "TCP"}],
                "env": [{"name": "N", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                        {"name": "F", "valueFrom": {"fileKeyRef":
                            {"key": "k", "path": "p", "volumeName": "v", "optional": false}}}],
                "resources": {"limits": {"cpu": "1m", "memory": "1536Mi"}},
                "livenessProbe": {"grpc": {"port": 1, "service": ""}, "timeoutSeconds": 1, "periodSeconds": 10,
                    "successThreshold": 1, "failureThreshold": 3},
                "readinessProbe": {"httpGet": {"port": "web", "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                    "periodSeconds": 3, "successThreshold": 1, "failureThreshold": 3},
                "lifecycle": {"preStop": {"httpGet": {"port": 1, "path": "/", "scheme": "HTTP"}}},
            })
        );
    }

    #[test]
    fn d_13_volumes() {
        check_volume(json!({}), json!({"emptyDir": {}}));
        check_volume(json!({"hostPath": {"path": "/"}}), json!({"hostPath": {"path": "/", "type": ""}}));
        check_volume(
            json!({"secret": {"secretName": "s"}}),
            json!({"secret": {"secretName": "s", "defaultMode": 420}}),
        );
        check_volume(
            json!({"configMap": {"name": "s"}}),
            json!({"configMap": {"name": "s", "defaultMode": 420}}),
        );
        check_volume(
            json!({"image": {"reference": "a"}}),
            json!({"image": {"reference": "a", "pullPolicy": "Always"}}),
        );
        check_volume(
            json!({"azureDisk": {"diskName": "d", "diskURI": "u"}}),
            json!({"azureDisk": {"diskName": "d", "diskURI": "u", "cachingMode": "ReadWrite", "fsType": "ext4",
                "kind": "Shared", "readOnly": false}}),
        );
        check_volume(
            json!({"rbd": {"image": "i", "monitors": []}}),
            json!({"rbd": {"image": "i", "monitors": [], "pool": "rbd", "user": "admin",
                "keyring": "/etc/ceph/keyring"}}),
        );
        check_volume(
            json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}},
                {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "f"}}]}}]}}),
            json!({"projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "f"}}]}}]}}),
        );
        check_volume(
            json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1u"}}}}}}),
            json!({"ephemeral": {"volumeClaimTemplate": {"spec":
                {"resources": {"requests": {"storage": "1m"}}, "volumeMode": "Filesystem"}}}}),
        );
    }

    #[test]
    fn what_reading_a_template_changes_besides_defaults() {
        let got = defaulted(json!({
            "metadata": {"annotations": {"a": "1", "pod.beta.kubernetes.io/init-containers": "[]"}},
            "spec": {"containers": [], "serviceAccountName": "robot"},
        }));
        assert_eq!(got["metadata"], json!({"annotations": {"a": "1"}}));
        assert_eq!(got["spec"]["serviceAccount"], "robot");
        let got = defaulted(json!({"spec": {"containers": [], "serviceAccount": "old"}}));
        assert_eq!(got["spec"]["serviceAccountName"], "old");
    }

    #[test]
    fn a_pod_has_more_defaults_than_a_template() {
        let mut pod: Pod = serde_json::from_value(json!({"spec": {
            "hostNetwork": true, "terminationGracePeriodSeconds": -1,
            "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}],
        }}))
        .expect("a test's pod");
        apply_pod_defaults(&mut pod);
        let pod = serde_json::to_value(&pod).expect("a pod is JSON");
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
        assert_eq!(container["ports"][0]["hostPort"], 80);
        assert_eq!(pod["spec"]["enableServiceLinks"], true);
        assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 1);
    }
}
