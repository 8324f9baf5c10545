use rules::dispatch::Dispatcher;

use super::*;

fn read(text: &str) -> Configuration {
    let text = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{text}");
    Configuration::read(&text).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let text = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{text}");
    let error = Configuration::read(&text).err().expect("it is refused").to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn what_kueue_ships_is_accepted() {
    let Some(tools) = testkit::go::Tools::for_test("crds") else { return };
    let path =
        tools.module("sigs.k8s.io/kueue").join("config/components/manager/controller_manager_config.yaml");
    let text = std::fs::read_to_string(path).expect("the module has its configuration");
    let configuration = Configuration::read(&text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(configuration.webhooks, Some("0.0.0.0:9443".parse().expect("an address")));
    assert_eq!(configuration.listen.len(), 2);
    assert!(configuration.settings.frameworks.contains("jobset.x-k8s.io/jobset"));
    assert!(!configuration.settings.frameworks.contains("kubeflow.org/tfjob"));
    for of_pods in ["pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"] {
        assert!(configuration.settings.frameworks.contains(of_pods), "{of_pods}");
    }
    let ignored = |path: &str| configuration.warnings.iter().any(|warning| warning.starts_with(path));
    assert!(ignored("clientConnection: "), "{:?}", configuration.warnings);
    assert!(!ignored("integrations.frameworks"), "{:?}", configuration.warnings);
}

/// JF-70: what is made of pods brings them along, and pods that are part of nothing then run as they are.
#[test]
fn jf_70_what_is_made_of_pods_brings_them_along() {
    let sent = |frameworks: &str| {
        let settings = read(&format!("integrations: {{frameworks: [{frameworks}]}}")).settings;
        let kinds: Vec<&str> = settings.dispatch.kinds.iter().map(|adapter| adapter.kind).collect();
        (settings.queues_pods(), settings.frameworks.contains("pod"), kinds)
    };
    assert_eq!(sent("batch/job"), (false, false, vec!["Job"]));
    assert_eq!(sent("pod"), (true, true, vec!["Pod"]));
    assert_eq!(sent("deployment"), (true, false, vec!["Pod"]));
    assert_eq!(sent("statefulset"), (true, false, vec!["StatefulSet", "Pod"]));
    let sets = "leaderworkerset.x-k8s.io/leaderworkerset";
    assert_eq!(sent(sets), (true, false, vec!["LeaderWorkerSet", "Pod"]));
}

#[test]
fn metrics_of_resources_are_shown_on_request() {
    assert!(!read("").settings.resource_metrics);
    let shown = read("metrics: {enableClusterQueueResources: true, localQueueMetrics: {enable: true}}");
    assert!(shown.settings.resource_metrics);
    assert_eq!(shown.warnings, Vec::<String>::new());
    let hidden = read("metrics: {localQueueMetrics: {enable: false}}");
    assert_eq!(
        hidden.warnings,
        ["metrics.localQueueMetrics.enable: has no effect: LocalQueues are always counted"]
    );
}

#[test]
fn vi_1_where_it_is_said_who_waits() {
    let at = |text: &str| {
        let read = read(text);
        assert_eq!(read.warnings, Vec::<String>::new(), "{text}");
        (read.visibility.map(|at| at.to_string()), read.hides_visibility)
    };
    let on = |at: &str| (Some(at.to_owned()), false);
    assert_eq!(at(""), (None, false), "the arguments say where");
    assert_eq!(at("visibilityServer: {}"), on("0.0.0.0:8082"));
    assert_eq!(at("visibilityServer: {bindAddress: '::1', bindPort: 9}"), on("[::1]:9"));
    assert_eq!(at("featureGates: {VisibilityOnDemand: true}"), on("0.0.0.0:8082"));
    let off = "featureGates: {VisibilityOnDemand: false}";
    assert_eq!(at(off), (None, true));
    assert_eq!(at(&format!("{off}\nvisibilityServer: {{bindPort: 9}}")), (None, true));
    let where_to = "visibilityServer.bindAddress: \"here\": must be a valid IP address";
    refused("visibilityServer: {bindAddress: here}", where_to);
    for port in [0, -1, 65536] {
        let expected = format!("visibilityServer.bindPort: {port}: must be between 1 and 65535");
        refused(&format!("visibilityServer: {{bindPort: {port}}}"), &expected);
    }
    refused("visibilityServer: {port: 9}", "visibilityServer.port: is not known");
}

#[test]
fn gates_that_nobody_can_tell_are_taken_with_a_warning() {
    let read = read("featureGates: {TASCacheTopologyTree: true, PartialAdmission: true}");
    assert_eq!(
        read.warnings,
        ["featureGates.TASCacheTopologyTree: has no effect: nobody could tell the difference here"]
    );
}

#[test]
fn cf_1_unknown_settings_are_named_by_their_path() {
    refused("manageJobsWithoutQueueNames: true", "manageJobsWithoutQueueNames: is not known");
    refused(
        "waitForPodsReady: {requeuingStrategy: {backOff: 1}}",
        "waitForPodsReady.requeuingStrategy.backOff: is not known",
    );
    refused("waitForPodsReady: {timeout: -1s}", "waitForPodsReady.timeout: \"-1s\": must not be negative");
    refused(
        "integrations: {frameworks: [batch/job, batch/job]}",
        "integrations.frameworks[1]: \"batch/job\": is there twice",
    );
    refused(
        "integrations: {frameworks: [batch/jobs]}",
        "integrations.frameworks[0]: \"batch/jobs\": is not known",
    );
    refused(
        "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}",
        "fairSharing.preemptionStrategies: ",
    );
    refused(
        "resources: {transformations: [{input: a}, {input: a}]}",
        "resources.transformations[1].input: \"a\": must be there, and only once",
    );
    refused(
        "resources: {quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [x]}",
        "resources.quotaCheckStrategy: ",
    );
    refused(
        "multiKueue: {incrementalDispatcherConfig: {stepSize: 0}}",
        "multiKueue.incrementalDispatcherConfig.stepSize: 0",
    );
    refused("multiKueue: {origin: \"not a label\"}", "multiKueue.origin: ");
    refused("webhook: {port: 70000}", "webhook.port: 70000: must be between 1 and 65535");
    refused(
        "admissionFairSharing: {usageHalfLifeTime: -1h}",
        "admissionFairSharing.usageHalfLifeTime: \"-1h\": must not be negative",
    );
    refused(
        "admissionFairSharing: {usageSamplingInterval: -5m}",
        "admissionFairSharing.usageSamplingInterval: \"-5m\": must not be negative",
    );
    refused(
        "admissionFairSharing: {resourceWeights: {cpu: 1, memory: -0.5}}",
        "admissionFairSharing.resourceWeights.memory: -0.5: must not be negative",
    );
    refused("admissionFairSharing: {halfLife: 1h}", "admissionFairSharing.halfLife: is not known");
    refused(
        "featureGates: {PartialAdmission: false, NoSuchGate: true}",
        "featureGates.PartialAdmission: is not supported: it is always true here",
    );
    refused("featureGates: {NoSuchGate: true}", "featureGates.NoSuchGate: is not known here");
    // SM-44: whoever has the Lease stops before it ends, and has tried again before that.
    for (times, expected) in [
        ("leaseDuration: 500ms", "leaseDuration: 500ms: must be a whole number of seconds"),
        ("leaseDuration: 0s", "leaseDuration: 0ns: must be a whole number of seconds"),
        ("leaseDuration: 10s", "renewDeadline: 10s: must be less than leaseDuration, which is 10s"),
        ("renewDeadline: 30s", "renewDeadline: 30s: must be less than leaseDuration, which is 15s"),
        ("retryPeriod: 0s", "retryPeriod: 0ns: must not be zero"),
        ("retryPeriod: 60s", "renewDeadline: 10s: must be more than 1.2 times retryPeriod, which is 60s"),
        ("renewDeadline: 0s", "renewDeadline: 0ns: must be more than 1.2 times retryPeriod"),
    ] {
        refused(&format!("leaderElection: {{{times}}}"), &format!("leaderElection.{expected}"));
    }
    refused("leaderElection: {leaderElect: false}", "leaderElection.leaderElect: false is not supported");
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let text = "apiVersion: v1\nkind: Pod\nspec: {}";
    let error = Configuration::read(text).err().expect("it is refused").to_string();
    for part in ["apiVersion: \"v1\"", "kind: \"Pod\"", "spec: is not known"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn supported_settings_have_effect() {
    let read = read(
        "
namespace: home
manageJobsWithoutQueueName: true
managedJobsNamespaceSelector: {matchLabels: {batch: 'yes'}}
leaderElection: {leaderElect: true, leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 5s}
waitForPodsReady:
  timeout: 5m
  recoveryTimeout: 0s
  blockAdmission: true
  requeuingStrategy: {timestamp: Creation, backoffLimitCount: 3, backoffBaseSeconds: 10, backoffMaxSeconds: 20}
integrations: {frameworks: [batch/job, ray.io/rayjob], labelKeysToCopy: [team], externalFrameworks: [Foo.v1.example.com]}
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
resources:
  excludeResourcePrefixes: [networking.]
  transformations: [{input: gpu, strategy: Replace, multiplyBy: cpu, outputs: {credits: '5', points: 10}}]
objectRetentionPolicies: {workloads: {afterFinished: 1h, afterDeactivatedByKueue: 2h}}
multiKueue:
  gcInterval: 10s
  origin: here
  workerLostTimeout: 7m
  dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental
  incrementalDispatcherConfig: {stepSize: 2}
  externalFrameworks: [{name: PipelineRun.v1.tekton.dev}]
",
    );
    let settings = &read.settings;
    assert!(read.names_namespace && settings.namespace == "home" && settings.manage_jobs_without_queue_name);
    assert_eq!(settings.managed_namespaces.match_labels.as_ref().map(|it| it["batch"].as_str()), Some("yes"));
    assert_eq!(read.lease.duration, Some(Duration::from_secs(30)));
    assert_eq!(read.lease.period, Some(Duration::from_secs(5)));
    let ready = settings.workloads.pods_ready.clone().expect("pods have to be ready");
    assert_eq!(ready.timeout, jiff::SignedDuration::from_mins(5));
    assert_eq!((ready.recovery_timeout, ready.back_off.limit), (None, Some(3)));
    assert_eq!((ready.back_off.base_seconds, ready.back_off.max_seconds), (10, 20));
    assert!(settings.quota.block_admission);
    assert_eq!(settings.requeuing_timestamp, rules::quota::wire::RequeuingTimestamp::Creation);
    assert_eq!(settings.frameworks.iter().copied().collect::<Vec<_>>(), ["batch/job", "ray.io/rayjob"]);
    assert_eq!(settings.jobs.copied_labels, ["team"]);
    assert_eq!(settings.external_frameworks, [("example.com".to_owned(), "Foo".to_owned())]);
    assert_eq!(settings.quota.fair_sharing.as_ref().map(Vec::len), Some(1));
    assert_eq!(settings.accounting.exclude_prefixes, ["networking."]);
    let transformation = &settings.accounting.transformations[0];
    assert!(!transformation.keep_input && transformation.multiply_by.as_deref() == Some("cpu"));
    let outputs = transformation.outputs.iter().map(|(name, amount)| format!("{name}={amount}"));
    assert_eq!(outputs.collect::<Vec<_>>(), ["credits=5", "points=10"]);
    assert_eq!(settings.workloads.retention, Some(jiff::SignedDuration::from_hours(1)));
    assert_eq!(settings.jobs.retention, Some(jiff::SignedDuration::from_hours(2)));
    let dispatch = &settings.dispatch;
    assert_eq!((dispatch.clean_up, dispatch.origin.as_str()), (Duration::from_secs(10), "here"));
    assert_eq!(dispatch.policy.worker_lost_timeout, Some(jiff::SignedDuration::from_mins(7)));
    assert_eq!(dispatch.policy.dispatcher, rules::dispatch::Dispatcher::Incremental { step: 2 });
    let kinds: Vec<&str> = dispatch.kinds.iter().map(|kind| kind.kind).collect();
    assert_eq!(kinds, ["Job", "RayJob", "PipelineRun"]);
}

/// G-4: no time at all is as good as none said, but for recovery, for which it means that nobody waits for it.
#[test]
fn g_4_pods_have_time_to_be_ready() {
    let of = |text: &str| {
        let ready = read(text).settings.workloads.pods_ready.expect("pods have to be ready");
        (ready.timeout.as_mins(), ready.recovery_timeout.map(|it| it.as_mins()))
    };
    assert_eq!(of("waitForPodsReady: {timeout: 0s}"), (30, Some(30)));
    assert_eq!(of("waitForPodsReady: {timeout: 0s, recoveryTimeout: 0s}"), (30, None));
    assert_eq!(of("waitForPodsReady: {timeout: 2m}"), (2, Some(2)));
}

#[test]
fn qu_21_how_use_is_measured() {
    let of = |text: &str| read(text).settings.quota.by_usage;
    assert_eq!(of(""), None);
    let minutes = jiff::SignedDuration::from_mins;
    let default = of("admissionFairSharing: {}").expect("use is measured");
    assert_eq!((default.half_life, default.interval), (minutes(0), minutes(5)));
    let said =
        "{usageHalfLifeTime: 168h, usageSamplingInterval: 10m, resourceWeights: {cpu: 2, memory: 0.5}}";
    let said = of(&format!("admissionFairSharing: {said}")).expect("use is measured");
    assert_eq!((said.half_life, said.interval), (minutes(168 * 60), minutes(10)));
    assert_eq!(said.weights, [("cpu".to_owned(), 2.0), ("memory".to_owned(), 0.5)].into());
    let zero = of("admissionFairSharing: {usageSamplingInterval: 0s}").expect("use is measured");
    assert_eq!(zero.interval, minutes(5));
}

/// MK-DISP-01, MK-DISP-10, MK-DISP-17, MK-ORI-01, and section 9.1 of the rules.
#[test]
fn mk_disp_01_who_chooses_clusters() {
    let dispatcher = |text: &str| read(&format!("multiKueue: {text}")).settings.dispatch.policy.dispatcher;
    assert_eq!(dispatcher("{}"), Dispatcher::AllAtOnce);
    assert_eq!(
        dispatcher("{dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-all-at-once}"),
        Dispatcher::AllAtOnce
    );
    let incremental = "dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental";
    assert_eq!(dispatcher(&format!("{{{incremental}}}")), Dispatcher::Incremental { step: 3 });
    assert_eq!(
        dispatcher("{dispatcherName: ferry.dev/multikueue-dispatcher-least-loaded}"),
        Dispatcher::LeastLoaded
    );
    assert_eq!(dispatcher("{dispatcherName: \"Anything: at all\"}"), Dispatcher::External);
    refused(
        "multiKueue: {incrementalDispatcherConfig: {stepSize: 2}}",
        "multiKueue.incrementalDispatcherConfig.stepSize: goes only with dispatcherName",
    );
    assert_eq!(read("multiKueue: {origin: ''}").settings.dispatch.origin, "multikueue");
    assert_eq!(read("").settings.dispatch.clean_up, Duration::from_secs(60));
    refused("multiKueue: {gcInterval: -1s}", "multiKueue.gcInterval: ");
    refused("multiKueue: {workerLostTimeout: -1s}", "multiKueue.workerLostTimeout: ");
    // Kueue does without cleaning up if told so. What was forgotten on a worker then runs on: nobody is asked for that here.
    refused("multiKueue: {gcInterval: 0s}", "multiKueue.gcInterval: 0 is not supported");
    // Never twice: Kueue waits 15 minutes for a lost worker if it is not told otherwise, we do until we are.
    assert_eq!(read("").settings.dispatch.policy.worker_lost_timeout, None);
}

/// MK-EXT-01, MK-EXT-05, MK-FLOW-05, MK-CONN-07, MK-CONN-11: kinds of others, and gates that are no choice.
#[test]
fn mk_ext_01_kinds_that_others_queue() {
    let refused = |name: &str, why: &str| {
        refused(
            &format!("multiKueue: {{externalFrameworks: [{{name: {name}}}]}}"),
            &format!("multiKueue.externalFrameworks[0].name: \"{name}\": {why}"),
        );
    };
    refused("PipelineRun", "must be in 'kind.version.group' format");
    refused("Job.v1.batch", "is there already");
    refused("pipelinerun.v1.tekton.dev", "is not supported");
    super::tests::refused(
        "multiKueue: {externalFrameworks: [{name: PipelineRun.v1.tekton.dev}, {name: PipelineRun.v1.tekton.dev}]}",
        "multiKueue.externalFrameworks[1].name: \"PipelineRun.v1.tekton.dev\": is there already",
    );
    let kinds = |text: &str| -> Vec<&str> {
        read(text).settings.dispatch.kinds.iter().map(|kind| kind.kind).collect()
    };
    assert_eq!(kinds("integrations: {frameworks: [jobset.x-k8s.io/jobset]}"), ["JobSet"]);
    for (gate, default) in [
        ("MultiKueueAdaptersForCustomJobs", true),
        ("MultiKueueAllowInsecureKubeconfigs", false),
        ("MultiKueueClusterProfile", false),
        ("TopologyAwareScheduling", true),
        ("KueueDRAIntegration", false),
    ] {
        read(&format!("featureGates: {{{gate}: {default}}}"));
        super::tests::refused(
            &format!("featureGates: {{{gate}: {}}}", !default),
            &format!("featureGates.{gate}: is not supported: it is always {default} here"),
        );
    }
}

#[test]
fn g_4_the_older_version_waits_for_pods_only_if_told_so() {
    let of = |text: &str| {
        let text = format!("apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n{text}");
        Configuration::read(&text).unwrap_or_else(|error| panic!("{error}")).settings
    };
    let without = of("");
    assert!(without.workloads.pods_ready.is_none() && !without.jobs.pods_ready);
    let with = of("waitForPodsReady: {enable: true}\nfairSharing: {enable: true}");
    let ready = with.workloads.pods_ready.expect("pods have to be ready");
    assert_eq!(ready.timeout, jiff::SignedDuration::from_mins(5));
    assert!(with.quota.block_admission);
    assert_eq!(with.quota.fair_sharing.map(|it| it.len()), Some(2));
}
