//! What a Job's `podFailurePolicy` says about a failed pod.
//!
//! Whether a pod has failed at all is decided elsewhere; here the rules are held against its status.

use k8s_openapi::api::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};

/// What is done about a failed pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No rule matched: the failure counts.
    Unmatched,
    /// The failure does not count, and the pod is replaced.
    Ignore,
    /// The failure counts.
    Count,
    /// The failure counts, and the pod's index is not tried again.
    FailIndex,
    /// The failure counts, and the Job fails with this message.
    FailJob(String),
}

impl Verdict {
    /// Whether the failure adds to `status.failed`.
    pub fn counts(&self) -> bool {
        *self != Verdict::Ignore
    }

    /// The action as the API spells it; `None` when no rule matched.
    pub fn action(&self) -> Option<&'static str> {
        match self {
            Verdict::Unmatched => None,
            Verdict::Ignore => Some("Ignore"),
            Verdict::Count => Some("Count"),
            Verdict::FailIndex => Some("FailIndex"),
            Verdict::FailJob(_) => Some("FailJob"),
        }
    }
}

/// Holds the rules against a pod, in order; the first that matches decides. Rules with an unknown action are passed
/// over.
pub fn judge(policy: &PodFailurePolicy, pod: &Pod) -> Verdict {
    for (index, rule) in policy.rules.iter().enumerate() {
        let matched = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
            (Some(requirement), _) => failed_container(pod, requirement).map(|(container, exit_code)| {
                let pod = full_name(pod);
                format!("Container {} for pod {pod} failed with exit code {exit_code}", container.name)
            }),
            (None, Some(patterns)) => matching_condition(pod, patterns)
                .map(|condition| format!("Pod {} has condition {}", full_name(pod), condition.type_)),
            (None, None) => None,
        };
        let Some(what) = matched else { continue };
        match rule.action.as_str() {
            "Ignore" => return Verdict::Ignore,
            "Count" => return Verdict::Count,
            "FailIndex" => return Verdict::FailIndex,
            "FailJob" => return Verdict::FailJob(format!("{what} matching FailJob rule at index {index}")),
            _ => {}
        }
    }
    Verdict::Unmatched
}

/// The first container, app containers before init containers, that ended with a code the requirement is about.
fn failed_container<'a>(
    pod: &'a Pod,
    requirement: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<(&'a ContainerStatus, i32)> {
    let status = pod.status.as_ref()?;
    let statuses = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    statuses.filter_map(|container| Some((container, exit_code(container)?))).find(|(container, code)| {
        let named = requirement.container_name.as_ref().is_none_or(|name| *name == container.name);
        let listed = requirement.values.contains(code);
        named
            && *code != 0
            && match requirement.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
    })
}

fn exit_code(container: &ContainerStatus) -> Option<i32> {
    Some(container.state.as_ref()?.terminated.as_ref()?.exit_code)
}

fn matching_condition<'a>(
    pod: &'a Pod,
    patterns: &[PodFailurePolicyOnPodConditionsPattern],
) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| {
        patterns
            .iter()
            .any(|pattern| pattern.type_ == condition.type_ && status_of(pattern) == condition.status)
    })
}

/// The API defaults the status on every read, so only a policy that never went through an API has none.
fn status_of(pattern: &PodFailurePolicyOnPodConditionsPattern) -> &str {
    pattern.status.as_deref().unwrap_or("True")
}

fn full_name(pod: &Pod) -> String {
    let name = |name: &Option<String>| name.clone().unwrap_or_default();
    format!("{}/{}", name(&pod.metadata.namespace), name(&pod.metadata.name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn exit_codes(action: &str, operator: &str, values: &[i32]) -> Value {
        json!({"action": action, "onExitCodes": {"operator": operator, "values": values}})
    }

    fn conditions(action: &str, patterns: &[(&str, &str)]) -> Value {
        let patterns: Vec<_> =
            patterns.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
        json!({"action": action, "onPodConditions": patterns})
    }

    /// A pod with app containers `app0`, `app1`…, init containers `init0`…, each ended with a code or still running.
    fn pod(apps: &[Option<i32>], inits: &[Option<i32>], pod_conditions: &[(&str, &str)]) -> Value {
        let statuses = |prefix: &str, codes: &[Option<i32>]| -> Vec<Value> {
            let state = |code: &Option<i32>| match code {
                Some(code) => json!({"terminated": {"exitCode": code}}),
                None => json!({"running": {}}),
            };
            let one = |(i, code)| json!({"name": format!("{prefix}{i}"), "state": state(code), "image": "", "imageID": "", "ready": false, "restartCount": 0});
            codes.iter().enumerate().map(one).collect()
        };
        let conditions: Vec<_> =
            pod_conditions.iter().map(|(kind, status)| json!({"type": kind, "status": status})).collect();
        json!({
            "metadata": {"name": "pod", "namespace": "ns"},
            "status": {
                "containerStatuses": statuses("app", apps),
                "initContainerStatuses": statuses("init", inits),
                "conditions": conditions,
            },
        })
    }

    fn check(rule: &str, rules: &[Value], pod: Value, expected: &str) {
        let policy = serde_json::from_value(json!({"rules": rules})).unwrap();
        let verdict = judge(&policy, &serde_json::from_value(pod).unwrap());
        let text = match &verdict {
            Verdict::FailJob(message) => format!("FailJob: {message}"),
            other => other.action().unwrap_or("unmatched").to_owned(),
        };
        assert_eq!(text, expected, "{rule}");
        assert_eq!(verdict.counts(), expected != "Ignore", "{rule}");
    }

    #[test]
    fn p_02_rules_in_order() {
        let (ignore, fail) = (exit_codes("Ignore", "In", &[1, 2]), exit_codes("FailJob", "In", &[2, 3]));
        let rules = [ignore, fail];
        check("P-02 no rule", &[], pod(&[Some(1)], &[], &[]), "unmatched");
        check("P-02 first match wins", &rules, pod(&[Some(2)], &[], &[]), "Ignore");
        check(
            "P-07 the rule's index is told",
            &rules,
            pod(&[Some(3)], &[], &[]),
            "FailJob: Container app0 for pod ns/pod failed with exit code 3 matching FailJob rule at index 1",
        );
        check("P-02 nothing matches", &rules, pod(&[Some(9)], &[], &[]), "unmatched");
        let odd = [exit_codes("Surprise", "In", &[1]), exit_codes("Count", "In", &[1])];
        check("P-02 unknown actions are passed over", &odd, pod(&[Some(1)], &[], &[]), "Count");
        check("a rule about nothing", &[json!({"action": "Ignore"})], pod(&[Some(1)], &[], &[]), "unmatched");
    }

    #[test]
    fn p_03_actions() {
        for action in ["Ignore", "Count", "FailIndex"] {
            check("P-03", &[exit_codes(action, "In", &[5])], pod(&[Some(5)], &[], &[]), action);
            check("P-03", &[conditions(action, &[("C", "True")])], pod(&[], &[], &[("C", "True")]), action);
        }
    }

    #[test]
    fn p_04_exit_codes() {
        let rule = [exit_codes("Count", "In", &[5, 6])];
        check("P-04 In", &rule, pod(&[Some(6)], &[], &[]), "Count");
        check("P-04 not in In", &rule, pod(&[Some(7)], &[], &[]), "unmatched");
        check("P-04 still running", &rule, pod(&[None], &[], &[]), "unmatched");
        check("P-04 one container suffices", &rule, pod(&[None, Some(0), Some(5)], &[], &[]), "Count");
        check("P-04 init containers", &rule, pod(&[Some(0)], &[Some(5)], &[]), "Count");
        check("P-04 no status at all", &rule, json!({}), "unmatched");
        let rule = [exit_codes("Count", "NotIn", &[5, 6])];
        check("P-04 NotIn", &rule, pod(&[Some(7)], &[], &[]), "Count");
        check("P-04 in NotIn", &rule, pod(&[Some(5)], &[], &[]), "unmatched");
        check("P-04 zero is no failure", &rule, pod(&[Some(0)], &[], &[]), "unmatched");
        check("P-04 a negative code", &rule, pod(&[Some(-1)], &[], &[]), "Count");
        check(
            "P-04 unknown operator",
            &[exit_codes("Count", "X", &[5])],
            pod(&[Some(5)], &[], &[]),
            "unmatched",
        );
        let mut named = exit_codes("FailJob", "In", &[5]);
        named["onExitCodes"]["containerName"] = json!("app1");
        check("P-04 another container", &[named.clone()], pod(&[Some(5), Some(0)], &[], &[]), "unmatched");
        check(
            "P-04 the named container",
            &[named],
            pod(&[Some(5), Some(5)], &[], &[]),
            "FailJob: Container app1 for pod ns/pod failed with exit code 5 matching FailJob rule at index 0",
        );
        check(
            "P-04 app containers come first",
            &[exit_codes("FailJob", "NotIn", &[1])],
            pod(&[Some(3)], &[Some(4)], &[]),
            "FailJob: Container app0 for pod ns/pod failed with exit code 3 matching FailJob rule at index 0",
        );
    }

    #[test]
    fn p_05_pod_conditions() {
        let rule = [conditions("FailJob", &[("A", "True"), ("B", "False")])];
        let message = "FailJob: Pod ns/pod has condition B matching FailJob rule at index 0";
        check("P-05 any pattern", &rule, pod(&[], &[], &[("A", "False"), ("B", "False")]), message);
        check("P-05 status differs", &rule, pod(&[], &[], &[("A", "Unknown")]), "unmatched");
        check("P-05 no such condition", &rule, pod(&[], &[], &[("C", "True")]), "unmatched");
        let mut both = conditions("Ignore", &[("A", "True")]);
        both["onExitCodes"] = json!({"operator": "In", "values": [1]});
        check("P-05 exit codes go first", &[both], pod(&[Some(2)], &[], &[("A", "True")]), "unmatched");
        let bare = [json!({"action": "Ignore", "onPodConditions": [{"type": "A"}]})];
        check("P-05 a pattern without status means True", &bare, pod(&[], &[], &[("A", "True")]), "Ignore");
    }
}
