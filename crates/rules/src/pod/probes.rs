//! Probes, and the hooks at the start and the end of a container.

use k8s_openapi::api::core::v1::{
    Container, ExecAction, GRPCAction, HTTPGetAction, Lifecycle, LifecycleHandler, Probe, SleepAction,
    TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::containers::Context;
use super::{named, one_of};
use crate::field::{Errors, Path};
use crate::{meta, names};

/// The hooks and probes of a container that keeps running: a regular one or a sidecar.
pub(super) fn validate_running(container: &Container, context: &Context<'_>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(lifecycle) = &container.lifecycle {
        errors.extend(validate_lifecycle(lifecycle, context.grace_period, &path.child("lifecycle")));
    }
    if let Some(liveness) = &container.liveness_probe {
        errors.extend(probe_that_passes_at_once(liveness, context, &path.child("livenessProbe")));
    }
    if let Some(readiness) = &container.readiness_probe {
        let path = path.child("readinessProbe");
        errors.extend(probe(readiness, context, &path));
        if let Some(seconds) = readiness.termination_grace_period_seconds {
            let path = path.child("terminationGracePeriodSeconds");
            errors.push(path.invalid(seconds, "must not be set for readinessProbes"));
        }
    }
    if let Some(startup) = &container.startup_probe {
        errors.extend(probe_that_passes_at_once(startup, context, &path.child("startupProbe")));
    }
    errors
}

fn probe_that_passes_at_once(spec: &Probe, context: &Context<'_>, path: &Path) -> Errors {
    let mut errors = probe(spec, context, path);
    let threshold = spec.success_threshold.unwrap_or(0);
    if threshold != 1 {
        errors.push(path.child("successThreshold").invalid(threshold, "must be 1"));
    }
    errors
}

fn probe(probe: &Probe, context: &Context<'_>, path: &Path) -> Errors {
    let handler = Handler {
        exec: probe.exec.as_ref(),
        http_get: probe.http_get.as_ref(),
        tcp_socket: probe.tcp_socket.as_ref(),
        grpc: probe.grpc.as_ref(),
        sleep: None,
    };
    let mut errors = handler.validate(context.grace_period, path);
    for (field, value) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        errors.extend(meta::not_negative(value.unwrap_or(0).into(), &path.child(field)));
    }
    if let Some(seconds) = probe.termination_grace_period_seconds.filter(|seconds| *seconds <= 0) {
        errors.push(path.child("terminationGracePeriodSeconds").invalid(seconds, "must be greater than 0"));
    }
    errors
}

/// The signal that stops a container is not judged: it is behind a gate that is off, and dropped.
fn validate_lifecycle(lifecycle: &Lifecycle, grace_period: Option<i64>, path: &Path) -> Errors {
    let of = |hook: &LifecycleHandler, path: &Path| {
        let handler = Handler {
            exec: hook.exec.as_ref(),
            http_get: hook.http_get.as_ref(),
            tcp_socket: hook.tcp_socket.as_ref(),
            grpc: None,
            sleep: hook.sleep.as_ref(),
        };
        handler.validate(grace_period, path)
    };
    let mut errors = Errors::new();
    errors.extend(lifecycle.post_start.iter().flat_map(|hook| of(hook, &path.child("postStart"))));
    errors.extend(lifecycle.pre_stop.iter().flat_map(|hook| of(hook, &path.child("preStop"))));
    errors
}

/// What a probe or a hook does: exactly one of these.
struct Handler<'a> {
    exec: Option<&'a ExecAction>,
    http_get: Option<&'a HTTPGetAction>,
    tcp_socket: Option<&'a TCPSocketAction>,
    grpc: Option<&'a GRPCAction>,
    sleep: Option<&'a SleepAction>,
}

impl Handler<'_> {
    /// The first one is judged, any further one refused.
    fn validate(&self, grace_period: Option<i64>, path: &Path) -> Errors {
        let port = |port: &IntOrString, path: Path| port_number_or_name(port, &path.child("port"));
        let actions = [
            ("exec", self.exec.map(|action| exec(action, &path.child("exec")))),
            ("httpGet", self.http_get.map(|action| http_get(action, &path.child("httpGet")))),
            ("tcpSocket", self.tcp_socket.map(|action| port(&action.port, path.child("tcpSocket")))),
            ("grpc", self.grpc.map(|action| port(&IntOrString::Int(action.port), path.child("grpc")))),
            ("sleep", self.sleep.map(|action| sleep(action, grace_period, &path.child("sleep")))),
        ];
        let mut given =
            actions.into_iter().filter_map(|(field, errors)| errors.map(|errors| (field, errors)));
        let Some((_, mut errors)) = given.next() else {
            return vec![path.required("must specify a handler type")];
        };
        errors.extend(
            given.map(|(field, _)| path.child(field).forbidden("may not specify more than 1 handler type")),
        );
        errors
    }
}

fn exec(action: &ExecAction, path: &Path) -> Errors {
    let is_empty = action.command.as_ref().is_none_or(Vec::is_empty);
    if is_empty { vec![path.child("command").required("")] } else { Errors::new() }
}

fn http_get(action: &HTTPGetAction, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if action.path.as_ref().is_none_or(String::is_empty) {
        errors.push(path.child("path").required(""));
    }
    errors.extend(port_number_or_name(&action.port, &path.child("port")));
    let scheme = action.scheme.as_deref().unwrap_or_default();
    errors.extend(one_of(&path.child("scheme"), scheme, &["HTTP", "HTTPS"]));
    for header in action.http_headers.iter().flatten() {
        errors.extend(named(&path.child("httpHeaders"), &header.name, names::http_header_name));
    }
    errors
}

fn port_number_or_name(port: &IntOrString, path: &Path) -> Errors {
    match port {
        IntOrString::Int(number) => {
            names::port_number(*number).into_iter().map(|problem| path.invalid(*number, problem)).collect()
        }
        IntOrString::String(name) => named(path, name, names::port_name),
    }
}

/// Sleeping longer than the pod is given to stop would be cut short.
fn sleep(action: &SleepAction, grace_period: Option<i64>, path: &Path) -> Errors {
    match grace_period {
        Some(grace_period) if !(0..=grace_period).contains(&action.seconds) => {
            let why =
                format!("must be non-negative and less than terminationGracePeriodSeconds ({grace_period})");
            vec![path.invalid(action.seconds, why)]
        }
        _ => Errors::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::check_container;

    fn check(probe: Value, expected: &[&str]) {
        check_container(json!({"readinessProbe": probe}), expected);
    }

    #[test]
    fn c_63_handlers() {
        check(json!({"exec": {"command": ["a"]}}), &[]);
        check(json!({}), &[".readinessProbe: Required value: must specify a handler type"]);
        check(json!({"exec": {}}), &[".readinessProbe.exec.command: Required value"]);
        check(
            json!({"exec": {}, "tcpSocket": {"port": 0}, "grpc": {"port": 0}}),
            &[
                ".readinessProbe.exec.command: Required value",
                ".readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
                ".readinessProbe.grpc: Forbidden: may not specify more than 1 handler type",
            ],
        );
        check(
            json!({"httpGet": {"port": "UP", "scheme": "FTP", "httpHeaders": [{"name": "a b", "value": ""}]}}),
            &[
                r#".readinessProbe.httpGet.port: Invalid value: "UP": must contain only alpha-numeric"#,
                r#".readinessProbe.httpGet.port: Invalid value: "UP": must contain at least one letter (a-z)"#,
                r#".readinessProbe.httpGet.scheme: Unsupported value: "FTP": supported values: "HTTP", "HTTPS""#,
                r#".readinessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header"#,
            ],
        );
        check(
            json!({"grpc": {"port": 70000}}),
            &[".readinessProbe.grpc.port: Invalid value: 70000: must be between 1 and 65535, inclusive"],
        );
    }

    #[test]
    fn c_63_thresholds() {
        check(
            json!({"exec": {"command": ["a"]}, "initialDelaySeconds": -1, "timeoutSeconds": -1, "periodSeconds": -1,
                "successThreshold": -1, "failureThreshold": -1, "terminationGracePeriodSeconds": 0}),
            &[
                ".readinessProbe.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0",
                ".readinessProbe.timeoutSeconds: Invalid value: -1: must be greater than or equal to 0",
                ".readinessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
                ".readinessProbe.successThreshold: Invalid value: -1: must be greater than or equal to 0",
                ".readinessProbe.failureThreshold: Invalid value: -1: must be greater than or equal to 0",
                ".readinessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
                ".readinessProbe.terminationGracePeriodSeconds: Invalid value: 0: must not be set for readinessProbes",
            ],
        );
        check_container(
            json!({"livenessProbe": {"exec": {"command": ["a"]}, "successThreshold": 2},
                   "startupProbe": {"exec": {"command": ["a"]}, "successThreshold": 2}}),
            &[
                ".livenessProbe.successThreshold: Invalid value: 2: must be 1",
                ".startupProbe.successThreshold: Invalid value: 2: must be 1",
            ],
        );
    }

    #[test]
    fn c_63_hooks() {
        check_container(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 30}}}}), &[]);
        check_container(
            json!({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}, "postStart": {}}}),
            &[
                ".lifecycle.postStart: Required value: must specify a handler type",
                ".lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
            ],
        );
    }
}
