//! Settings of the kernel that a pod may ask for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

/// Those that are a pod's own, because it has shared memory of its own. Others are its host's.
const OWN: [&str; 1] = ["kernel.shm_rmid_forced"];

/// The reason of pods that ask for others.
const FORBIDDEN: &str = "SysctlForbidden";

/// What the pod sets, by its file below `/proc/sys`.
pub fn files(pod: &Pod) -> BTreeMap<String, String> {
    asked(pod).map(|(name, value)| (name.replace('.', "/"), value.to_owned())).collect()
}

/// Why a node does not take the pod, if so: a word and a sentence.
pub fn refusal(pod: &Pod) -> Option<(&'static str, String)> {
    let (other, _) = asked(pod).find(|(name, _)| !OWN.contains(&name.as_str()))?;
    Some((FORBIDDEN, format!("forbidden sysctl: {other:?} not allowlisted")))
}

/// Names may be written with slashes, too.
fn asked(pod: &Pod) -> impl Iterator<Item = (String, &str)> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let sysctls = context.and_then(|context| context.sysctls.as_ref()).into_iter().flatten();
    sysctls.map(|sysctl| (sysctl.name.replace('/', "."), sysctl.value.as_str()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str) -> Pod {
        let sysctls = json!([{ "name": name, "value": "1" }]);
        serde_json::from_value(
            json!({ "spec": { "containers": [], "securityContext": { "sysctls": sysctls } } }),
        )
        .expect("a pod")
    }

    #[test]
    fn what_is_the_pods_own_is_set_and_what_is_the_hosts_is_refused() {
        for name in ["kernel.shm_rmid_forced", "kernel/shm_rmid_forced"] {
            assert_eq!(refusal(&pod(name)), None);
            assert_eq!(files(&pod(name)), [("kernel/shm_rmid_forced".to_owned(), "1".to_owned())].into());
        }
        let (reason, message) = refusal(&pod("kernel.msgmax")).expect("a refusal");
        assert_eq!(
            (reason, message.as_str()),
            ("SysctlForbidden", "forbidden sysctl: \"kernel.msgmax\" not allowlisted")
        );
    }
}
