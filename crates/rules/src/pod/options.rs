//! What the rules let pass: settings of the cluster, and what a stored pod had before a rule became stricter.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{affinity, all_containers, annotations, deletion_cost, resources, scheduling, security, volumes};
use crate::field::Path;

/// What a pod or a pod template may hold. The default is what Kubernetes 1.35 lets into a new template.
///
/// Kubernetes tightens rules now and then. A pod that was stored before stays as it is: whatever it already has that
/// would be refused today is let pass when it is updated.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each rule is relaxed on its own")]
pub struct Options {
    /// The rules are for a pod, not for a template in something else.
    pub is_pod: bool,
    /// Containers may be privileged. API servers refuse it unless they are told otherwise.
    pub allow_privileged: bool,
    /// The annotation for the cost of a pod's deletion may be no number.
    pub allow_invalid_deletion_cost: bool,
    /// Label values in selectors about other pods may be malformed.
    pub allow_invalid_label_value_in_selector: bool,
    /// Label values that a node must have may be malformed.
    pub allow_invalid_label_value_in_node_affinity: bool,
    /// Selectors of spread constraints may be malformed.
    pub allow_invalid_spread_selector: bool,
    /// Label keys of spread constraints are judged as before 1.34.
    pub legacy_match_label_keys: bool,
    /// Huge pages may be asked for in parts of a page.
    pub allow_indivisible_huge_pages: bool,
    /// Tokens may be projected to paths that lead out of their volume.
    pub allow_non_local_token_path: bool,
    /// Sysctls may reach through to the host's namespaces.
    pub allow_host_sysctls: bool,
    /// SELinux labels may be changed in another way than recursively.
    pub allow_any_se_linux_change_policy: bool,
    /// Tolerations may compare numbers.
    pub allow_toleration_comparison: bool,
    /// A container's end may restart all containers.
    pub allow_restart_all_containers: bool,
    /// A pod with users of its own may be in the host's network.
    pub allow_user_namespaces_with_host_network: bool,
    /// A pod with users of its own may have block devices, useless as they are.
    pub allow_user_namespaces_with_volume_devices: bool,
}

impl Options {
    /// For a new template, or for a changed one next to the stored one (U-11).
    pub fn for_template(_new: &PodTemplateSpec, old: Option<&PodTemplateSpec>) -> Self {
        old.map_or_else(Options::default, |old| Options::for_stored(old.metadata.as_ref(), old.spec.as_ref()))
    }

    /// For a new pod, or for a changed one next to the stored one.
    pub fn for_pod(old: Option<&Pod>) -> Self {
        let options = old
            .map_or_else(Options::default, |old| Options::for_stored(Some(&old.metadata), old.spec.as_ref()));
        Options { is_pod: true, ..options }
    }

    /// The same, in a cluster that lets containers be privileged or does not.
    #[must_use]
    pub fn with_privileged(self, allow_privileged: bool) -> Self {
        Options { allow_privileged, ..self }
    }

    fn for_stored(meta: Option<&ObjectMeta>, old: Option<&PodSpec>) -> Self {
        let allow_invalid_deletion_cost = deletion_cost(annotations(meta)).is_err();
        let Some(old) = old else {
            return Options { allow_invalid_deletion_cost, ..Options::default() };
        };
        let context = old.security_context.as_ref();
        let own_users = old.host_users == Some(false);
        let operators =
            old.tolerations.iter().flatten().filter_map(|toleration| toleration.operator.as_deref());
        let has_devices = |container: &Container| {
            container.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty())
        };
        Options {
            is_pod: false,
            allow_privileged: false,
            allow_invalid_deletion_cost,
            allow_invalid_label_value_in_selector: affinity::has_invalid_pod_selector(old),
            allow_invalid_label_value_in_node_affinity: affinity::has_invalid_node_label_value(old),
            allow_invalid_spread_selector: scheduling::has_invalid_spread_selector(old),
            legacy_match_label_keys: scheduling::has_invalid_spread_label_keys(old),
            allow_indivisible_huge_pages: resources::has_indivisible_huge_pages(old),
            allow_non_local_token_path: volumes::has_non_local_token_path(old),
            allow_host_sysctls: security::has_host_sysctls(old),
            allow_any_se_linux_change_policy: context.is_some_and(|c| c.se_linux_change_policy.is_some()),
            allow_toleration_comparison: operators
                .into_iter()
                .any(|operator| matches!(operator, "Lt" | "Gt")),
            allow_restart_all_containers: restarts_all_containers(old),
            allow_user_namespaces_with_host_network: own_users && old.host_network == Some(true),
            allow_user_namespaces_with_volume_devices: own_users
                && all_containers(old, &Path::root()).iter().any(|(container, _)| has_devices(container)),
        }
    }
}

/// Whether a stored pod has rules that restart everything, or rules for a sidecar, which came with them.
fn restarts_all_containers(old: &PodSpec) -> bool {
    let mut rules = old
        .containers
        .iter()
        .chain(old.init_containers.iter().flatten())
        .flat_map(|container| container.restart_policy_rules.iter().flatten());
    let has_rules = |sidecar: &Container| {
        sidecar.restart_policy.as_deref() == Some("Always")
            && sidecar.restart_policy_rules.as_ref().is_some_and(|rules| !rules.is_empty())
    };
    rules.any(|rule| rule.action == "RestartAllContainers")
        || old.init_containers.iter().flatten().any(has_rules)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pod::validate_template;

    /// What is refused in a new template passes when the stored one already had it.
    fn check(mut template: Value) {
        let spec = &mut template["spec"];
        if spec["containers"].is_null() {
            spec["containers"] = json!([{"name": "c", "image": "i"}]);
        }
        let mut template: PodTemplateSpec = serde_json::from_value(template).expect("a test's template");
        crate::pod::defaults::apply_template_defaults(&mut template);
        let path = Path::new("template");
        let fresh = validate_template(&template, &Options::for_template(&template, None), &path);
        assert_ne!(fresh, [], "{template:?}");
        let again = Options::for_template(&template, Some(&template));
        assert_eq!(validate_template(&template, &again, &path), [], "{template:?}");
    }

    #[test]
    fn u_11_what_was_stored_stays() {
        let term =
            |labels: Value| json!({"topologyKey": "z", "labelSelector": {"matchExpressions": [labels]}});
        check(json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "+1"}}}));
        check(json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            [term(json!({"key": "a", "operator": "In", "values": ["-"]}))]}}}}));
        check(
            json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["-"]}]}]}}}}}),
        );
        check(json!({"spec": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "-"}}}]}}));
        check(json!({"spec": {"overhead": {"cpu": "1", "hugepages-2Mi": "1Mi"}}}));
        check(json!({"spec": {"volumes": [{"name": "t", "projected": {"sources":
            [{"serviceAccountToken": {"path": "/t"}}]}}]}}));
        check(
            json!({"spec": {"hostNetwork": true, "securityContext": {"sysctls": [{"name": "net.a", "value": "1"}]}}}),
        );
        check(json!({"spec": {"securityContext": {"seLinuxChangePolicy": "MountOption"}}}));
        check(json!({"spec": {"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}]}}));
        check(json!({"spec": {"containers": [{"name": "c", "image": "i", "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In"}}]}]}}));
        check(json!({"spec": {"hostUsers": false, "hostNetwork": true}}));
        check(json!({"spec": {"hostUsers": false,
            "volumes": [{"name": "p", "persistentVolumeClaim": {"claimName": "p"}}],
            "containers": [{"name": "c", "image": "i", "volumeDevices": [{"name": "p", "devicePath": "/p"}]}]}}));
    }

    #[test]
    fn u_11_label_keys_that_older_servers_accepted() {
        let keys = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["a"],
            "labelSelector": {"matchExpressions": [{"key": "b", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]},
        }]}});
        let template: PodTemplateSpec = serde_json::from_value(keys).expect("a test's template");
        assert!(!Options::for_template(&template, Some(&template)).legacy_match_label_keys);
    }
}
