//! Who a container's processes are to be, from what the pod says of security.

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::init::User;

/// Who the container's processes are, or why the container must not be created.
pub(super) fn of(pod: &Pod, container: &Container) -> Result<User, String> {
    let pods = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let own = container.security_context.as_ref();
    let id = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    let uid = id(own.and_then(|own| own.run_as_user).or_else(|| pods.and_then(|pods| pods.run_as_user)));
    let gid = id(own.and_then(|own| own.run_as_group).or_else(|| pods.and_then(|pods| pods.run_as_group)));
    let not_root =
        own.and_then(|own| own.run_as_non_root).or_else(|| pods.and_then(|pods| pods.run_as_non_root));
    if not_root == Some(true) {
        let name = &container.name;
        match uid {
            None => {
                return Err(format!(
                    "container has runAsNonRoot and image will run as root (container: {name})"
                ));
            }
            Some(0) => {
                return Err(format!("container's runAsUser breaks non-root policy (container: {name})"));
            }
            Some(_) => {}
        }
    }
    let groups = pods.and_then(|pods| pods.supplemental_groups.as_ref()).into_iter().flatten().copied();
    let groups = groups.chain(pods.and_then(|pods| pods.fs_group));
    let capabilities = own.and_then(|own| own.capabilities.clone()).unwrap_or_default();
    Ok(User {
        uid,
        gid,
        groups: groups.filter_map(|group| id(Some(group))).collect(),
        privileged: own.and_then(|own| own.privileged) == Some(true),
        unmasked: own.and_then(|own| own.proc_mount.as_deref()) == Some("Unmasked"),
        add: capabilities.add.unwrap_or_default(),
        drop: capabilities.drop.unwrap_or_default(),
        no_new_privileges: own.and_then(|own| own.allow_privilege_escalation) == Some(false),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(pod: Value, own: Value) -> Result<User, String> {
        let pod = json!({ "spec": { "containers": [{ "name": "c", "securityContext": own }], "securityContext": pod } });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        of(&pod, &pod.spec.as_ref().expect("a spec").containers[0])
    }

    #[test]
    fn the_container_comes_before_the_pod() {
        let user = check(
            json!({ "runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 3000, "supplementalGroups": [4000] }),
            json!({ "runAsUser": 1001, "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } }),
        );
        let user = user.expect("a user");
        assert_eq!((user.uid, user.gid, user.groups), (Some(1001), Some(2000), vec![4000, 3000]));
        assert!(user.no_new_privileges && !user.privileged);
        assert_eq!(user.drop, ["ALL"]);
    }

    #[test]
    fn root_where_it_must_not_be_is_refused() {
        assert!(check(json!({ "runAsNonRoot": true }), json!({})).is_err());
        assert!(check(json!({ "runAsNonRoot": true }), json!({ "runAsUser": 0 })).is_err());
        assert!(check(json!({ "runAsNonRoot": true }), json!({ "runAsUser": 5 })).is_ok());
        assert!(check(json!({ "runAsNonRoot": true }), json!({ "runAsNonRoot": false })).is_ok());
    }
}
