//! The sections of the file, each as what it means for the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use rules::{
    dispatch::{Adapter, Dispatcher, adapter},
    framework::{self, batch::JOB, pod::POD},
    names,
    quota::{cycle::Undeclared, fair::Strategy, requests::Transformation, usage, wire::RequeuingTimestamp},
    workload::{change::BackOff, plan::PodsReady},
};
use serde::Deserialize as _;
use serde_json::Value;
use types::Quantity;

use super::{
    Configuration, Version, address,
    reader::{Problems, Section},
};
use crate::leader::Leadership;

/// Kinds that Kueue manages and we do not.
const NOT_MANAGED: [&str; 1] = ["sparkoperator.k8s.io/sparkapplication"];
const ALL_AT_ONCE: &str = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once";
const INCREMENTAL: &str = "kueue.x-k8s.io/multikueue-dispatcher-incremental";
/// Our own; to Kueue it would be the name of somebody else.
const LEAST_LOADED: &str = "ferry.dev/multikueue-dispatcher-least-loaded";
const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";
/// By how much Kueue's attempts to renew the Lease are spread.
const JITTER: f64 = 1.2;
/// Where Kueue says who waits where.
const VISIBILITY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8082);
/// How many clusters are asked at a time, if the file does not say.
const STEP: i32 = 3;
/// How often it is written down what LocalQueues used, if the file does not say.
const SAMPLING_INTERVAL: SignedDuration = SignedDuration::from_mins(5);

impl Configuration {
    /// Where the operator is at home, and by which Lease.
    pub(super) fn home(&mut self, file: &mut Section, problems: &mut Problems) {
        if let Some(namespace) = file.value::<String>("namespace", problems) {
            self.settings.move_to(&namespace);
            self.names_namespace = true;
        }
        let Some(mut election) = file.section("leaderElection", problems) else { return };
        let path = election.path("leaderElect");
        if election.value("leaderElect", problems) == Some(false) {
            let why = "without the Lease, Kueue and Ferry could act at once";
            problems.errors.push(format!("{path}: false is not supported: {why}"));
        }
        election.choice("resourceName", &[(LEASE, ())], problems);
        election.choice("resourceLock", &[("leases", ())], problems);
        self.lease.namespace = election.value("resourceNamespace", problems);
        let mut time = |name| election.duration(name, problems).and_then(|it| Duration::try_from(it).ok());
        self.lease.duration = time("leaseDuration");
        self.lease.deadline = time("renewDeadline");
        self.lease.period = time("retryPeriod");
        problems.errors.extend(self.times_of_the_lease());
        election.done(problems);
    }

    /// What is wrong with the times of the Lease: who has it must have stopped before it ends, and must have tried again
    /// before that (SM-44). The same is asked of Kueue's.
    fn times_of_the_lease(&self) -> Option<String> {
        let usual = Leadership::new("", "");
        let duration = self.lease.duration.unwrap_or(usual.duration);
        let deadline = self.lease.deadline.unwrap_or(usual.deadline);
        let period = self.lease.period.unwrap_or(usual.period);
        let (name, time, why) = if duration.subsec_nanos() != 0 || duration.is_zero() {
            ("leaseDuration", duration, "must be a whole number of seconds, and at least one".to_owned())
        } else if duration <= deadline {
            ("renewDeadline", deadline, format!("must be less than leaseDuration, which is {duration:?}"))
        } else if period.is_zero() {
            ("retryPeriod", period, "must not be zero".to_owned())
        } else if deadline <= period.mul_f64(JITTER) {
            let most = "some attempts have to fit in";
            (
                "renewDeadline",
                deadline,
                format!("must be more than {JITTER} times retryPeriod, which is {period:?}: {most}"),
            )
        } else {
            return None;
        };
        Some(format!("leaderElection.{name}: {time:?}: {why}"))
    }

    /// Where something is served.
    pub(super) fn endpoints(&mut self, file: &mut Section, problems: &mut Problems) {
        if let Some(mut metrics) = file.section("metrics", problems) {
            self.listen_on("bindAddress", &mut metrics, problems);
            if let Some(shown) = metrics.value("enableClusterQueueResources", problems) {
                self.settings.resource_metrics = shown;
            }
            if let Some(mut local) = metrics.section("localQueueMetrics", problems) {
                let path = local.path("enable");
                if local.value("enable", problems) == Some(false) {
                    problems.warnings.push(format!("{path}: has no effect: LocalQueues are always counted"));
                }
                local.ignore("localQueueSelector", "all LocalQueues are counted", problems);
                local.done(problems);
            }
            metrics.refuse("customLabels", "metrics carry Kueue's labels only", problems);
            metrics.done(problems);
        }
        if let Some(mut health) = file.section("health", problems) {
            self.listen_on("healthProbeBindAddress", &mut health, problems);
            health.choice("readinessEndpointName", &[("readyz", ()), ("/readyz", ())], problems);
            health.choice("livenessEndpointName", &[("healthz", ()), ("/healthz", ())], problems);
            health.done(problems);
        }
        if let Some(mut webhook) = file.section("webhook", problems) {
            let path = webhook.path("port");
            if let Some(port) = webhook.value::<i64>("port", problems) {
                let host: Option<String> = webhook.value("host", problems);
                let host = host.unwrap_or_default();
                self.webhooks = address(&format!("{host}:{port}")).filter(|at| at.port() != 0);
                if self.webhooks.is_none() {
                    problems.errors.push(format!("{path}: {port}: must be between 1 and 65535"));
                }
            }
            webhook.refuse("certDir", "certificates are made and renewed by the operator", problems);
            webhook.done(problems);
        }
        if let Some(mut certificates) = file.section("internalCertManagement", problems) {
            let path = certificates.path("enable");
            if certificates.value("enable", problems) == Some(false) {
                let why = "certificates are made and renewed by the operator";
                problems.errors.push(format!("{path}: false is not supported: {why}"));
            }
            if let Some(name) = certificates.value("webhookServiceName", problems) {
                self.webhook_service = name;
            }
            certificates.ignore("webhookSecretName", "the authority is in a Secret of its own", problems);
            certificates.done(problems);
        }
    }

    /// Where it is said who waits where (VI-1): if the file says so, or asks for it by its gate.
    pub(super) fn visibility(&mut self, file: &mut Section, gate: Option<bool>, problems: &mut Problems) {
        self.hides_visibility = gate == Some(false);
        let section = file.section("visibilityServer", problems);
        let is_wanted = section.is_some() || gate == Some(true);
        let mut at = VISIBILITY;
        if let Some(mut section) = section {
            let path = section.path("bindAddress");
            if let Some(text) = section.value::<String>("bindAddress", problems) {
                match text.parse() {
                    Ok(ip) => at.set_ip(ip),
                    Err(_) => problems.errors.push(format!("{path}: {text:?}: must be a valid IP address")),
                }
            }
            let path = section.path("bindPort");
            if let Some(port) = section.value::<i64>("bindPort", problems) {
                match u16::try_from(port).ok().filter(|port| *port != 0) {
                    Some(port) => at.set_port(port),
                    None => problems.errors.push(format!("{path}: {port}: must be between 1 and 65535")),
                }
            }
            section.done(problems);
        }
        self.visibility = Some(at).filter(|_| is_wanted && !self.hides_visibility);
    }

    fn listen_on(&mut self, name: &str, section: &mut Section, problems: &mut Problems) {
        let Some(text) = section.value::<String>(name, problems).filter(|text| text != "0") else { return };
        match address(&text) {
            Some(address) if self.listen.contains(&address) => {}
            Some(address) => self.listen.push(address),
            None => problems.errors.push(format!(
                "{}: {text:?}: must be an address such as \":8081\" or \"127.0.0.1:8081\"",
                section.path(name)
            )),
        }
    }

    /// Which Jobs are managed.
    pub(super) fn jobs(&mut self, file: &mut Section, problems: &mut Problems) {
        if let Some(all) = file.value("manageJobsWithoutQueueName", problems) {
            self.settings.manage_jobs_without_queue_name = all;
        }
        if let Some(selector) = file.value::<LabelSelector>("managedJobsNamespaceSelector", problems) {
            self.settings.managed_namespaces = selector;
        }
        self.settings.frameworks = BTreeSet::from([JOB.framework]);
        if let Some(mut integrations) = file.section("integrations", problems) {
            self.frameworks(&mut integrations, problems);
            if let Some(labels) = integrations.value("labelKeysToCopy", problems) {
                self.settings.jobs.copied_labels = labels;
            }
            let names: Option<Vec<String>> = integrations.value("externalFrameworks", problems);
            for (index, name) in names.iter().flatten().enumerate() {
                match external(name) {
                    Some((kind, _, group)) => {
                        self.settings.external_frameworks.push((group.to_owned(), kind.to_owned()));
                    }
                    None => problems.errors.push(format!(
                        "{}[{index}]: {name:?}: must be Kind.version.group",
                        integrations.path("externalFrameworks")
                    )),
                }
            }
            let why = "managedJobsNamespaceSelector says in which namespaces pods are queued";
            integrations.refuse("podOptions", why, problems);
            integrations.done(problems);
        }
        let (frameworks, pods) = (&self.settings.frameworks, self.settings.queues_pods());
        let is_wanted = |adapter: &&'static Adapter| {
            // What is made of pods brings them along.
            frameworks.contains(adapter.integration) || pods && adapter.integration == POD.framework
        };
        self.settings.dispatch.kinds.retain(is_wanted);
    }

    fn frameworks(&mut self, integrations: &mut Section, problems: &mut Problems) {
        let path = integrations.path("frameworks");
        let Some(names) = integrations.value::<Vec<String>>("frameworks", problems) else { return };
        if names.is_empty() {
            return;
        }
        self.settings.frameworks.clear();
        let all: Vec<&'static str> = framework::kinds().map(|kind| kind.framework).collect();
        let mut seen = BTreeSet::new();
        for (index, name) in names.iter().enumerate() {
            if !seen.insert(name) {
                problems.errors.push(format!("{path}[{index}]: {name:?}: is there twice"));
            } else if let Some(known) = all.iter().find(|known| *known == name) {
                self.settings.frameworks.insert(known);
            } else if NOT_MANAGED.contains(&name.as_str()) {
                problems.warnings.push(format!(
                    "{path}[{index}]: {name:?}: has no effect: objects of this kind are not queued, and run at once"
                ));
            } else {
                let known: Vec<String> = all.iter().map(|known| format!("{known:?}")).collect();
                let known = known.join(", ");
                problems.errors.push(format!("{path}[{index}]: {name:?}: is not known; known are {known}"));
            }
        }
    }

    /// How long pods may take to be ready (G-4: the older version means something else by the same words).
    pub(super) fn pods_ready(&mut self, file: &mut Section, version: Version, problems: &mut Problems) {
        let off = version == Version::V1Beta1;
        let Some(mut section) = file.section("waitForPodsReady", problems) else {
            if off {
                self.without_pods_ready();
            }
            return;
        };
        let enabled = if off { section.value("enable", problems).unwrap_or(false) } else { true };
        let usual = if off { SignedDuration::from_mins(5) } else { SignedDuration::from_mins(30) };
        // None at all is as good as not said.
        let timeout = section.duration("timeout", problems).filter(|it| !it.is_zero()).unwrap_or(usual);
        let recovery = section.duration("recoveryTimeout", problems).unwrap_or(timeout);
        let block = section.value("blockAdmission", problems).unwrap_or(off);
        let mut back_off = BackOff::default();
        if let Some(mut requeuing) = section.section("requeuingStrategy", problems) {
            let timestamps =
                [("Eviction", RequeuingTimestamp::Eviction), ("Creation", RequeuingTimestamp::Creation)];
            if let Some(from) = requeuing.choice("timestamp", &timestamps, problems) {
                self.settings.requeuing_timestamp = from;
            }
            back_off.limit = requeuing.count("backoffLimitCount", problems);
            if let Some(seconds) = requeuing.count("backoffBaseSeconds", problems) {
                back_off.base_seconds = seconds;
            }
            if let Some(seconds) = requeuing.count("backoffMaxSeconds", problems) {
                back_off.max_seconds = seconds;
            }
            requeuing.done(problems);
        }
        section.done(problems);
        if !enabled {
            return self.without_pods_ready();
        }
        self.settings.quota.block_admission = block;
        self.settings.jobs.pods_ready = true;
        self.settings.workloads.pods_ready = Some(PodsReady {
            timeout,
            recovery_timeout: Some(recovery).filter(|recovery| !recovery.is_zero()),
            back_off,
        });
    }

    fn without_pods_ready(&mut self) {
        self.settings.workloads.pods_ready = None;
        self.settings.jobs.pods_ready = false;
    }

    /// How quota is shared, and what is counted.
    pub(super) fn quota(&mut self, file: &mut Section, version: Version, problems: &mut Problems) {
        if let Some(mut sharing) = file.section("fairSharing", problems) {
            let enabled = version == Version::V1Beta2 || sharing.value("enable", problems) == Some(true);
            self.fair_sharing(&mut sharing, enabled, version, problems);
            sharing.done(problems);
        }
        let Some(mut resources) = file.section("resources", problems) else { return };
        let strategies = [("BlockUndeclared", Undeclared::Block), ("IgnoreUndeclared", Undeclared::Ignore)];
        if let Some(undeclared) = resources.choice("quotaCheckStrategy", &strategies, problems) {
            self.settings.quota.undeclared = undeclared;
        }
        if let Some(prefixes) = resources.value("excludeResourcePrefixes", problems) {
            self.settings.accounting.exclude_prefixes = prefixes;
        }
        if self.settings.quota.undeclared == Undeclared::Ignore
            && !self.settings.accounting.exclude_prefixes.is_empty()
        {
            let path = resources.path("quotaCheckStrategy");
            let why = "IgnoreUndeclared cannot be used together with excludeResourcePrefixes";
            problems.errors.push(format!("{path}: {why}"));
        }
        self.transformations(&mut resources, problems);
        resources.refuse("deviceClassMappings", "devices that Pods claim are not counted", problems);
        resources.done(problems);
    }

    fn fair_sharing(
        &mut self,
        sharing: &mut Section,
        enabled: bool,
        version: Version,
        problems: &mut Problems,
    ) {
        use Strategy::{LessThanInitialShare as Initial, LessThanOrEqualToFinalShare as Final};
        let path = sharing.path("preemptionStrategies");
        let names: Option<Vec<String>> = sharing.value("preemptionStrategies", problems);
        let names: Vec<&str> = names.iter().flatten().map(String::as_str).collect();
        let strategies = match names.as_slice() {
            [] if version == Version::V1Beta1 => vec![Final, Initial],
            ["LessThanOrEqualToFinalShare"] => vec![Final],
            ["LessThanInitialShare"] => vec![Initial],
            ["LessThanOrEqualToFinalShare", "LessThanInitialShare"] => vec![Final, Initial],
            _ => {
                let why = "must be LessThanOrEqualToFinalShare, LessThanInitialShare, or both in this order";
                problems.errors.push(format!("{path}: [{}]: {why}", names.join(", ")));
                return;
            }
        };
        if enabled {
            self.settings.quota.fair_sharing = Some(strategies);
        }
    }

    /// How LocalQueues share a ClusterQueue by what they used (QU-20 to QU-22).
    pub(super) fn sharing_by_usage(&mut self, file: &mut Section, problems: &mut Problems) {
        let Some(mut section) = file.section("admissionFairSharing", problems) else { return };
        let half_life = section.duration("usageHalfLifeTime", problems).unwrap_or_default();
        let interval = section.duration("usageSamplingInterval", problems).unwrap_or_default();
        let interval = if interval.is_zero() { SAMPLING_INTERVAL } else { interval };
        let path = section.path("resourceWeights");
        let weights: BTreeMap<String, f64> = section.value("resourceWeights", problems).unwrap_or_default();
        for (resource, weight) in weights.iter().filter(|(_, weight)| **weight < 0.0) {
            problems.errors.push(format!("{path}.{resource}: {weight}: must not be negative"));
        }
        section.done(problems);
        self.settings.quota.by_usage = Some(usage::Settings { half_life, interval, weights });
    }

    fn transformations(&mut self, resources: &mut Section, problems: &mut Problems) {
        let path = resources.path("transformations");
        let all: Option<Vec<Value>> = resources.value("transformations", problems);
        let mut inputs = BTreeSet::new();
        for (index, value) in all.into_iter().flatten().enumerate() {
            let mut here = Problems::default();
            let mut section = Section::whole(value, &mut here);
            let input: String = section.value("input", &mut here).unwrap_or_default();
            if input.is_empty() || !inputs.insert(input.clone()) {
                here.errors.push(format!("input: {input:?}: must be there, and only once"));
            }
            let keep_input = section
                .choice("strategy", &[("Retain", true), ("Replace", false)], &mut here)
                .unwrap_or(true);
            let multiply_by: Option<String> = section.value("multiplyBy", &mut here);
            let outputs: BTreeMap<String, Value> = section.value("outputs", &mut here).unwrap_or_default();
            let outputs = outputs.into_iter().filter_map(|(name, amount)| {
                // Numbers are quantities, too.
                let read = Quantity::deserialize(&amount).ok();
                if read.is_none() {
                    here.errors.push(format!("outputs.{name}: {amount}: is no quantity"));
                }
                read.map(|read| (name, read))
            });
            let outputs = outputs.collect();
            section.done(&mut here);
            problems.errors.extend(here.errors.into_iter().map(|error| format!("{path}[{index}].{error}")));
            let multiply_by = multiply_by.filter(|name| !name.is_empty());
            let transformation = Transformation { input, keep_input, multiply_by, outputs };
            self.settings.accounting.transformations.push(transformation);
        }
    }

    /// How Workloads run on other clusters.
    pub(super) fn multikueue(&mut self, file: &mut Section, problems: &mut Problems) {
        let Some(mut section) = file.section("multiKueue", problems) else { return };
        let dispatch = &mut self.settings.dispatch;
        let path = section.path("gcInterval");
        if let Some(interval) = section.duration("gcInterval", problems) {
            match Duration::try_from(interval) {
                Ok(interval) if !interval.is_zero() => dispatch.clean_up = interval,
                _ => problems.errors.push(format!(
                    "{path}: 0 is not supported: what workers hold of ours is always looked at from time to time"
                )),
            }
        }
        let path = section.path("origin");
        if let Some(origin) = section.value::<String>("origin", problems).filter(|it| !it.is_empty()) {
            for why in names::label_value(&origin) {
                problems.errors.push(format!("{path}: {origin:?}: {why}"));
            }
            dispatch.origin = origin;
        }
        if let Some(timeout) = section.duration("workerLostTimeout", problems) {
            dispatch.policy.worker_lost_timeout = Some(timeout);
        }
        let name: Option<String> = section.value("dispatcherName", problems);
        let incremental = name.as_deref() == Some(INCREMENTAL);
        let mut step = STEP;
        if let Some(mut config) = section.section("incrementalDispatcherConfig", problems) {
            let path = config.path("stepSize");
            if let Some(said) = config.value::<i32>("stepSize", problems) {
                step = said;
            }
            if step < 1 {
                problems.errors.push(format!("{path}: {step}: must be 1 or more"));
            }
            if !incremental {
                problems.errors.push(format!("{path}: goes only with dispatcherName {INCREMENTAL:?}"));
            }
            config.done(problems);
        }
        dispatch.policy.dispatcher = match name.as_deref() {
            None | Some("" | ALL_AT_ONCE) => Dispatcher::AllAtOnce,
            Some(INCREMENTAL) => Dispatcher::Incremental { step: usize::try_from(step).unwrap_or(1) },
            Some(LEAST_LOADED) => Dispatcher::LeastLoaded,
            Some(_) => Dispatcher::External,
        };
        self.external_kinds(&mut section, problems);
        section.refuse("clusterProfile", "name clusters by their kubeconfigs", problems);
        section.done(problems);
    }

    /// Kinds that others queue and that run on other clusters all the same (MK-EXT-01).
    fn external_kinds(&mut self, section: &mut Section, problems: &mut Problems) {
        let path = section.path("externalFrameworks");
        let all: Option<Vec<BTreeMap<String, String>>> = section.value("externalFrameworks", problems);
        for (index, entry) in all.into_iter().flatten().enumerate() {
            let name = entry.get("name").map(String::as_str).unwrap_or_default();
            let path = format!("{path}[{index}].name");
            let Some((kind, version, group)) = external(name) else {
                problems.errors.push(format!("{path}: {name:?}: must be in 'kind.version.group' format"));
                continue;
            };
            let kinds = &mut self.settings.dispatch.kinds;
            let same = |it: &&Adapter| it.kind == kind && it.version == version && it.group == group;
            if kinds.iter().any(&same) {
                problems.errors.push(format!("{path}: {name:?}: is there already"));
                continue;
            }
            match adapter::ALL.iter().find(same).filter(|it| it.integration == name) {
                Some(known) => kinds.push(known),
                None => problems.errors.push(format!(
                    "{path}: {name:?}: is not supported: its plural and its end are not known"
                )),
            }
        }
    }

    /// How long things are kept.
    pub(super) fn retention(&mut self, file: &mut Section, problems: &mut Problems) {
        let Some(mut policies) = file.section("objectRetentionPolicies", problems) else { return };
        if let Some(mut workloads) = policies.section("workloads", problems) {
            self.settings.workloads.retention = workloads.duration("afterFinished", problems);
            self.settings.jobs.retention = workloads.duration("afterDeactivatedByKueue", problems);
            workloads.done(problems);
        }
        policies.done(problems);
    }
}

/// The parts of `Kind.version.group`.
fn external(name: &str) -> Option<(&str, &str, &str)> {
    let (kind, rest) = name.split_once('.')?;
    let (version, group) = rest.split_once('.')?;
    (!kind.is_empty() && !version.is_empty() && !group.is_empty()).then_some((kind, version, group))
}
