//! What a simulated pod does, as its annotations say.
//!
//! | annotation | meaning | unless said |
//! |---|---|---|
//! | `sim.ferry.dev/start-ms` | from the binding to Running | 0 |
//! | `sim.ferry.dev/duration-ms` | how long a container runs; `forever` for until it is stopped | 0 if the pod's restart policy lets it end, else `forever` |
//! | `sim.ferry.dev/exit-code` | how it ends; `…/exit-code.NAME` for one container | 0 |
//! | `sim.ferry.dev/fail-probability` | how often it ends with 1 instead, from 0 to 1 | 0 |
//! | `sim.ferry.dev/fail-at-ms` | when it then does | at the end of its duration |
//! | `sim.ferry.dev/jitter` | durations are drawn from ± this part of them, from 0 to 1 | 0 |
//! | `sim.ferry.dev/ready-ms` | from Running to Ready | 0 |
//! | `sim.ferry.dev/never-ready` | `true`: never becomes ready | `false` |
//! | `sim.ferry.dev/stop-ms` | from the order to stop to the end; killed when its grace is over before | 0 |
//! | `sim.ferry.dev/stop-exit-code` | how it then ends | 143 |
//! | `sim.ferry.dev/disruption` | fails with the condition `DisruptionTarget` and this reason at its end | |
//!
//! Everything drawn is drawn from the pod's uid, the container and the number of the instance: the same pod always does
//! the same.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::Pod;

const PREFIX: &str = "sim.ferry.dev/";

/// The exit code of a program that does nothing about SIGTERM.
const TERMINATED: i32 = 143;
/// And about SIGKILL.
pub const KILLED: i32 = 137;

/// What a simulated pod does.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// From the binding to Running.
    pub start: Duration,
    /// From Running to Ready; `None` for never.
    pub ready: Option<Duration>,
    /// From the order to stop to the end.
    pub stop: Duration,
    /// How it then ends.
    pub stop_code: i32,
    /// The reason of the condition `DisruptionTarget` with which it fails.
    pub disruption: Option<String>,
    duration: Option<Duration>,
    code: i32,
    codes: BTreeMap<String, i32>,
    fail_probability: f64,
    fail_at: Option<Duration>,
    jitter: f64,
    seed: u64,
}

/// How long an instance runs, and how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// `None`: until it is stopped.
    pub duration: Option<Duration>,
    /// Its exit code.
    pub code: i32,
}

/// Reads the annotations of a pod; an error names the one that makes no sense.
pub fn of_pod(pod: &Pod) -> Result<Script, String> {
    let annotations: BTreeMap<&str, &str> = pod
        .metadata
        .annotations
        .iter()
        .flatten()
        .filter_map(|(key, value)| key.strip_prefix(PREFIX).map(|key| (key, value.as_str())))
        .collect();
    let ends =
        pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).is_some_and(|it| it != "Always");
    let mut script = Script {
        start: Duration::ZERO,
        ready: Some(Duration::ZERO),
        stop: Duration::ZERO,
        stop_code: TERMINATED,
        disruption: None,
        duration: ends.then_some(Duration::ZERO),
        code: 0,
        codes: BTreeMap::new(),
        fail_probability: 0.0,
        fail_at: None,
        jitter: 0.0,
        seed: hash(pod.metadata.uid.as_deref().unwrap_or_default()),
    };
    for (key, value) in annotations {
        let wrong = |what: &str| format!("annotation {PREFIX}{key}: {value:?} is not {what}");
        let duration =
            || value.parse().map(Duration::from_millis).map_err(|_| wrong("a number of milliseconds"));
        let code = || value.parse().map_err(|_| wrong("an exit code"));
        let part = || match value.parse::<f64>() {
            Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
            _ => Err(wrong("a number from 0 to 1")),
        };
        match key {
            "start-ms" => script.start = duration()?,
            "duration-ms" => script.duration = if value == "forever" { None } else { Some(duration()?) },
            "ready-ms" => script.ready = script.ready.and(Some(duration()?)),
            "never-ready" => match value {
                "true" => script.ready = None,
                "false" => {}
                _ => return Err(wrong("true or false")),
            },
            "stop-ms" => script.stop = duration()?,
            "stop-exit-code" => script.stop_code = code()?,
            "exit-code" => script.code = code()?,
            "fail-probability" => script.fail_probability = part()?,
            "fail-at-ms" => script.fail_at = Some(duration()?),
            "jitter" => script.jitter = part()?,
            "disruption" => script.disruption = Some(value.to_owned()),
            _ => match key.strip_prefix("exit-code.") {
                Some(container) => drop(script.codes.insert(container.to_owned(), code()?)),
                None => return Err(format!("annotation {PREFIX}{key} is not known")),
            },
        }
    }
    // Keys come in their order, so `never-ready` is read before `ready-ms`, which does not make up for it.
    Ok(script)
}

impl Script {
    /// What one instance of a container does.
    pub fn part(&self, container: &str, restarts: i32) -> Part {
        let own = mix(self.seed ^ hash(container) ^ mix(u64::from(restarts.unsigned_abs())));
        if self.fail_probability > 0.0 && fraction(own) < self.fail_probability {
            let duration = self.fail_at.or(self.duration).unwrap_or_default();
            return Part { duration: Some(self.drawn(duration, own)), code: 1 };
        }
        Part {
            duration: self.duration.map(|duration| self.drawn(duration, own)),
            code: self.codes.get(container).copied().unwrap_or(self.code),
        }
    }

    fn drawn(&self, duration: Duration, own: u64) -> Duration {
        let factor = 1.0 + self.jitter * (2.0 * fraction(mix(own)) - 1.0);
        duration.mul_f64(factor)
    }
}

/// FNV-1a: short, and the same everywhere.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The finalizer of SplitMix64, which spreads what differs in a few bits only.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// From 0 to 1, 1 excluded.
fn fraction(value: u64) -> f64 {
    let high = u32::try_from(value >> 32).expect("the high half of 64 bits");
    f64::from(high) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn script(policy: &str, annotations: &[(&str, &str)]) -> Result<Script, String> {
        let annotations: BTreeMap<String, &str> =
            annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), *value)).collect();
        let pod = json!({
            "metadata": { "uid": "5c8a", "annotations": annotations },
            "spec": { "restartPolicy": policy, "containers": [] },
        });
        of_pod(&serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn pods_that_may_end_do_so_at_once_and_others_never() {
        let part = |policy| script(policy, &[]).expect("a script").part("main", 0);
        assert_eq!(part("Never"), Part { duration: Some(Duration::ZERO), code: 0 });
        assert_eq!(part("OnFailure"), Part { duration: Some(Duration::ZERO), code: 0 });
        assert_eq!(part("Always"), Part { duration: None, code: 0 });
    }

    #[test]
    fn annotations_say_the_rest() {
        let script = script(
            "Never",
            &[
                ("duration-ms", "1500"),
                ("exit-code", "3"),
                ("exit-code.side", "4"),
                ("never-ready", "true"),
                ("ready-ms", "5"),
                ("stop-ms", "20"),
                ("stop-exit-code", "0"),
            ],
        )
        .expect("a script");
        assert_eq!(script.part("main", 0), Part { duration: Some(Duration::from_millis(1500)), code: 3 });
        assert_eq!(script.part("side", 0).code, 4);
        assert_eq!((script.ready, script.stop, script.stop_code), (None, Duration::from_millis(20), 0));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |key, value| script("Never", &[(key, value)]).expect_err("an error");
        assert_eq!(
            error("start-ms", "1s"),
            "annotation sim.ferry.dev/start-ms: \"1s\" is not a number of milliseconds"
        );
        assert_eq!(
            error("jitter", "2"),
            "annotation sim.ferry.dev/jitter: \"2\" is not a number from 0 to 1"
        );
        assert_eq!(error("colour", "2"), "annotation sim.ferry.dev/colour is not known");
    }

    #[test]
    fn the_same_pod_always_does_the_same_and_another_instance_something_else() {
        let script =
            script("Never", &[("duration-ms", "1000"), ("jitter", "0.5"), ("fail-probability", "0.3")]);
        let script = script.expect("a script");
        assert_eq!(script.part("main", 0), script.part("main", 0));
        let parts: Vec<Part> = (0..1000).map(|restart| script.part("main", restart)).collect();
        let failed = parts.iter().filter(|part| part.code == 1).count();
        assert!((250..350).contains(&failed), "{failed} of 1000 failed, of 300 expected");
        let span = |part: &Part| part.duration.expect("it ends").as_millis();
        assert!(parts.iter().all(|part| (500..=1500).contains(&span(part))));
        assert!(parts.iter().any(|part| span(part) < 600) && parts.iter().any(|part| span(part) > 1400));
    }
}
