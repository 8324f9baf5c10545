//! What a client may ask of a container that runs, or ran: its output, and a process beside it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use types::go;

use crate::field::{Errors, Path};
use crate::meta::NEGATIVE;

/// Which part of a container's output (2.73).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct LogOptions {
    /// Goes on as long as the container does.
    pub follow: bool,
    /// Of the instance before the one that is there.
    pub previous: bool,
    /// Nothing older.
    pub since: Option<Since>,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// So many of the last lines.
    pub tail_lines: Option<i64>,
    /// So many bytes at most.
    pub limit_bytes: Option<i64>,
    /// Both ways to say since when were used.
    both_since: bool,
    /// One of the streams was asked for, which needs a feature that is off.
    one_stream: bool,
}

/// Since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// So many seconds ago.
    Seconds(i64),
    /// Since a moment.
    Time(Timestamp),
}

impl LogOptions {
    /// Reads parameters of a query. The error is what a 400 says.
    pub fn read<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Result<Self, String> {
        let is_on =
            |name: &str| get(name).is_some_and(|text| text != "0" && !text.eq_ignore_ascii_case("false"));
        let number = |name: &str| -> Result<Option<i64>, String> {
            let Some(text) = get(name) else { return Ok(None) };
            let wrong = |_| format!("strconv.ParseInt: parsing {}: invalid syntax", go::quote(text));
            text.parse().map(Some).map_err(wrong)
        };
        let time = match get("sinceTime") {
            None | Some("") => None,
            Some(text) => Some(text.parse().map_err(|_| {
                let quoted = go::quote(text);
                format!(
                    "parsing time {quoted} as \"2006-01-02T15:04:05Z07:00\": cannot parse {quoted} as \"2006\""
                )
            })?),
        };
        let seconds = number("sinceSeconds")?;
        Ok(LogOptions {
            follow: is_on("follow"),
            previous: is_on("previous"),
            since: seconds.map(Since::Seconds).or(time.map(Since::Time)),
            timestamps: is_on("timestamps"),
            tail_lines: number("tailLines")?,
            limit_bytes: number("limitBytes")?,
            both_since: seconds.is_some() && time.is_some(),
            one_stream: get("stream").is_some(),
        })
    }

    /// Everything that is wrong with them.
    pub fn validate(&self) -> Errors {
        let mut errors = Errors::new();
        if let Some(lines) = self.tail_lines.filter(|lines| *lines < 0) {
            errors.push(Path::new("tailLines").invalid(lines, NEGATIVE));
        }
        if let Some(bytes) = self.limit_bytes.filter(|bytes| *bytes < 1) {
            errors.push(Path::new("limitBytes").invalid(bytes, "must be greater than 0"));
        }
        match self.since {
            _ if self.both_since => {
                let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
                errors.push(Path::new("[]").forbidden(why));
            }
            Some(Since::Seconds(seconds)) if seconds < 1 => {
                errors.push(Path::new("sinceSeconds").invalid(seconds, "must be greater than 0"));
            }
            _ => {}
        }
        if self.one_stream {
            errors.push(Path::new("stream").forbidden("may not be specified"));
        }
        errors
    }
}

/// The container that is meant, or what a 400 says.
pub fn choose_container(pod: &Pod, asked: &str) -> Result<String, String> {
    let name = pod.metadata.name.as_deref().unwrap_or("");
    let spec = pod.spec.as_ref();
    let of_all = || {
        let init =
            spec.iter().flat_map(|spec| spec.init_containers.iter().flatten()).map(|c| c.name.as_str());
        let main = spec.iter().flat_map(|spec| &spec.containers).map(|c| c.name.as_str());
        let ephemeral =
            spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten()).map(|c| c.name.as_str());
        init.chain(main).chain(ephemeral).collect::<Vec<_>>()
    };
    if !asked.is_empty() {
        let known = of_all().contains(&asked);
        return if known {
            Ok(asked.to_owned())
        } else {
            Err(format!("container {asked} is not valid for pod {name}"))
        };
    }
    match spec.map(|spec| spec.containers.as_slice()).unwrap_or_default() {
        [one] => Ok(one.name.clone()),
        [] => Err(format!("a container name must be specified for pod {name}")),
        _ => Err(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            of_all().join(" ")
        )),
    }
}

/// Why a container has no output to show; a node says so with a 400.
pub fn unavailable(pod: &str, status: &PodStatus, container: &str, previous: bool) -> Option<String> {
    let lists =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    let found: Option<&ContainerStatus> =
        lists.into_iter().flat_map(|list| list.iter().flatten()).find(|status| status.name == container);
    let (container, pod) = (go::quote(container), go::quote(pod));
    let Some(found) = found else {
        return Some(format!("container {container} in pod {pod} is not available"));
    };
    let ran = |id: Option<&String>| id.is_some_and(|id| !id.is_empty());
    let last = found.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let had_one = last.is_some_and(|last| ran(last.container_id.as_ref()));
    if previous {
        return (!had_one)
            .then(|| format!("previous terminated container {container} in pod {pod} not found"));
    }
    let state = found.state.clone().unwrap_or_default();
    if state.running.is_some() || had_one {
        return None;
    }
    if let Some(terminated) = &state.terminated {
        let has_output = ran(terminated.container_id.as_ref());
        return (!has_output).then(|| format!("container {container} in pod {pod} is terminated"));
    }
    if last.is_some() {
        return Some(format!("container {container} in pod {pod} is terminated"));
    }
    let Some(waiting) = &state.waiting else {
        return Some(format!("container {container} in pod {pod} is waiting to start - no logs yet"));
    };
    let why = match waiting.reason.as_deref().unwrap_or("") {
        "ErrImagePull" => "image can't be pulled",
        "ImagePullBackOff" => "trying and failing to pull image",
        reason => reason,
    };
    Some(format!("container {container} in pod {pod} is waiting to start: {why}"))
}

/// A process in a container, or the container's own streams (2.74).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each stream is asked for by itself")]
pub struct StreamOptions {
    /// What to run; empty for the container's own process.
    pub command: Vec<String>,
    /// The client sends input.
    pub stdin: bool,
    /// The client wants the output.
    pub stdout: bool,
    /// The client wants the errors.
    pub stderr: bool,
    /// The process has a terminal.
    pub tty: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::field::assert_starts;

    fn options(pairs: &[(&'static str, &'static str)]) -> Result<LogOptions, String> {
        LogOptions::read(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value))
    }

    #[test]
    fn rule_2_73_options() {
        let read =
            options(&[("follow", "true"), ("tailLines", "3"), ("previous", "false")]).expect("options");
        assert_eq!((read.follow, read.previous, read.tail_lines), (true, false, Some(3)));
        assert!(options(&[("tailLines", "x")]).is_err());
        let wrong =
            options(&[("tailLines", "-1"), ("limitBytes", "0"), ("sinceSeconds", "0")]).expect("options");
        assert_starts(
            &wrong.validate(),
            &[
                "tailLines: Invalid value: -1: must be greater than or equal to 0",
                "limitBytes: Invalid value: 0: must be greater than 0",
                "sinceSeconds: Invalid value: 0: must be greater than 0",
            ],
        );
        let both = options(&[("sinceTime", "2025-01-01T00:00:00Z"), ("sinceSeconds", "1")]).expect("options");
        assert_starts(&both.validate(), &["[]: Forbidden: at most one of `sinceTime` or `sinceSeconds`"]);
    }

    #[test]
    fn which_container_is_meant() {
        let pod = |names: &[&str]| -> Pod {
            let containers: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
            serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": containers}}))
                .expect("a pod")
        };
        assert_eq!(choose_container(&pod(&["a"]), ""), Ok("a".to_owned()));
        assert_eq!(
            choose_container(&pod(&["a", "b"]), ""),
            Err("a container name must be specified for pod p, choose one of: [a b]".to_owned())
        );
        assert_eq!(choose_container(&pod(&["a"]), "x"), Err("container x is not valid for pod p".to_owned()));
    }

    #[test]
    fn rule_2_73_containers_without_output() {
        let status = |state: serde_json::Value| -> PodStatus {
            let status = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            serde_json::from_value(json!({"containerStatuses": [status]})).expect("a status")
        };
        let check = |state: serde_json::Value, previous: bool, expected: Option<&str>| {
            assert_eq!(unavailable("p", &status(state), "c", previous).as_deref(), expected);
        };
        check(json!({"running": {}}), false, None);
        check(
            json!({"running": {}}),
            true,
            Some("previous terminated container \"c\" in pod \"p\" not found"),
        );
        check(
            json!({"waiting": {"reason": "ContainerCreating"}}),
            false,
            Some("container \"c\" in pod \"p\" is waiting to start: ContainerCreating"),
        );
        check(
            json!({"waiting": {"reason": "ErrImagePull"}}),
            false,
            Some("container \"c\" in pod \"p\" is waiting to start: image can't be pulled"),
        );
        check(json!({"terminated": {"exitCode": 0, "containerID": "process://x"}}), false, None);
    }
}
