//! Its containers: how they are started, accompanied and stopped, and what becomes of them.

use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container as Specified, PodSpec, Probe};
use rules::node::{Ending, Exit, State, ending, image, namespaces, probe::Purpose};
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{
    Actor, Happening,
    retries::{self, Attempt},
};
use crate::{
    init::Processes,
    logs::Log,
    process::{
        cgroups::Cgroup,
        instance::{End, Error, Instance, LEAST},
        launch::Launch,
        probes::{self, Found},
        sandbox::Sandbox,
        volumes,
    },
};

/// The most of a termination message that is read, from its end, and of a log that stands for one.
const MESSAGE: u64 = 4096;
const LOG_MESSAGE: usize = 2048;
const LOG_LINES: usize = 80;

/// The reason of events of hooks that were to speak TLS with who does not.
const FALLBACK: &str = "LifecycleHTTPFallback";

impl Actor {
    pub(super) async fn start(&mut self, index: usize) {
        let now = self.now();
        let Some(specified) = self.specified(index) else { return };
        let container = &self.containers[index];
        let number = container.restarts + i32::from(container.latest_exit().is_some());
        let processes = self.processes(&specified.name);
        let launch = Launch {
            shared: &self.shared,
            pod: &self.pod,
            container: &specified,
            number,
            ip: &self.ip,
            interface: self.interface.as_ref(),
            processes,
            ipc: self.sandbox.as_ref().map(Sandbox::ipc).unwrap_or_default(),
            volumes: &self.volumes,
            directories: &self.directories,
        };
        let prepared = launch.prepare().await;
        let (start, image) = match prepared {
            Ok(prepared) => prepared,
            Err(refusal) => {
                debug!(pod = %self.key, container = specified.name, ?refusal, "cannot be started now");
                let is_pull = refusal.reason == image::NOT_PULLED;
                let event = format!("Error: {}", refusal.message);
                self.shared.events.warning(&self.pod, Some(&specified.name), "Failed", event);
                self.containers[index].wait(refusal.reason, refusal.message);
                let longest = if is_pull { retries::LONGEST_PULL } else { retries::LONGEST };
                self.retries.failed(Attempt::Container(index), longest, now);
                self.register_logs();
                return;
            }
        };
        let (tell, cgroup, directory) = (self.tell.clone(), start.cgroup.clone(), start.directory.clone());
        // Nobody listens any more only if the pod is gone.
        let ended = move |end| drop(tell.send((index, number, Happening::Ended(end))));
        let started = Instance::start(start, ended).await;
        self.retries.succeeded(Attempt::Container(index));
        let (now, id) = (self.now(), self.id_of(&specified.name, number));
        let container = &mut self.containers[index];
        if let Some(ended) = container.latest_exit().map(|exit| exit.to.unwrap_or(now)) {
            container.backoff.next(ended);
        }
        match started {
            Ok(instance) => {
                container.start(id, image, now);
                container.resources.clone_from(&specified.resources);
                for (reason, message) in [("Created", "Container created"), ("Started", "Container started")]
                {
                    let events = &self.shared.events;
                    events.normal(&self.pod, Some(&specified.name), reason, message.to_owned());
                }
                self.instances.insert(index, instance);
                self.accompany(index, &specified);
            }
            Err(error) => {
                let (code, message) = match error {
                    Error::Failed { code, message } => (code, message),
                    Error::Guard(source) => (128, format!("failed to start a process: {source}")),
                };
                self.shared.events.warning(
                    &self.pod,
                    Some(&specified.name),
                    "Failed",
                    format!("Error: {message}"),
                );
                container.id = Some(id);
                let reason = "ContainerCannotRun".to_owned();
                container.end(Exit { message, reason, ..Exit::with_code(code, now, now) });
                self.removals.spawn_blocking(move || remove_instance(cgroup.as_ref(), &directory));
            }
        }
        self.register_logs();
    }

    /// Lets containers whose image could not be had, which was said, wait until that is tried again; true if there are any.
    pub(super) fn back_off_pulls(&mut self) -> bool {
        let mut some = false;
        for container in &mut self.containers {
            let failure = match &container.state {
                State::Waiting { reason, message } if reason == image::NOT_PULLED => message,
                _ => continue,
            };
            let (event, message) = image::back_off(&container.image, failure);
            let (events, name) = (&self.shared.events, Some(container.name.as_str()));
            events.normal(&self.pod, name, "BackOff", event);
            events.warning(&self.pod, name, "Failed", format!("Error: {}", image::BACK_OFF));
            container.wait(image::BACK_OFF, message);
            some = true;
        }
        some
    }

    /// What goes along with an instance: hooks and probes.
    fn accompany(&mut self, index: usize, specified: &Specified) {
        let Some(instance) = self.instances.get_mut(&index) else { return };
        let number = instance.number;
        let hook = specified.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.clone());
        let waits_for_hook = hook.is_some();
        if let Some(handler) = hook {
            let (tell, place) = (self.tell.clone(), instance.place.clone());
            let (specified, ip) = (specified.clone(), self.ip.clone());
            instance.tasks.spawn(async move {
                let done = probes::hook(handler, specified, ip, place).await;
                let _ = tell.send((index, number, Happening::HookDone(done)));
            });
        }
        let all: [(Purpose, Option<&Probe>); 3] = [
            (Purpose::Startup, specified.startup_probe.as_ref()),
            (Purpose::Liveness, specified.liveness_probe.as_ref()),
            (Purpose::Readiness, specified.readiness_probe.as_ref()),
        ];
        for (purpose, probe) in all.into_iter().filter_map(|(purpose, probe)| Some((purpose, probe?.clone())))
        {
            let (tell, started) = (self.tell.clone(), instance.started.subscribe());
            let (specified, ip, place) = (specified.clone(), self.ip.clone(), instance.place.clone());
            instance.tasks.spawn(probes::watch(
                purpose,
                probe,
                specified,
                ip,
                place,
                started,
                move |found| drop(tell.send((index, number, Happening::Probed(purpose, found)))),
            ));
        }
        let container = &mut self.containers[index];
        container.ready = specified.readiness_probe.is_none();
        container.started = !waits_for_hook && specified.startup_probe.is_none();
        instance.started.send_replace(container.started);
    }

    /// Tells that a container will be stopped, and has it do what it does before.
    pub(super) fn pre_stop(&mut self, index: usize) {
        let Some(specified) = self.specified(index) else { return };
        let is_at_once = self.is_at_once();
        let Some(instance) = self.instances.get_mut(&index).filter(|one| !one.is_prepared()) else { return };
        let name = specified.name.clone();
        let message = format!("Stopping container {name}");
        self.shared.events.normal(&self.pod, Some(&name), "Killing", message);
        let hook = specified.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.clone());
        let hook = hook.filter(|_| !is_at_once);
        let (place, ip) = (instance.place.clone(), self.ip.clone());
        let (events, pod) = (self.shared.events.clone(), Arc::clone(&self.pod));
        instance.prepare_stop(async move {
            let Some(handler) = hook else { return };
            match probes::hook(handler, specified, ip, place).await {
                Ok(None) => {}
                Ok(Some(warning)) => events.warning(&pod, None, FALLBACK, warning),
                // What it wrote is not told to everybody: there may be secrets in it.
                Err(message) => {
                    debug!(container = name, message, "a hook before the stop failed");
                    events.warning(&pod, Some(&name), "FailedPreStopHook", "PreStopHook failed".to_owned());
                }
            }
        });
    }

    pub(super) fn stop(&mut self, index: usize, grace: Option<Duration>) {
        self.pre_stop(index);
        let left = match (grace, self.deadline) {
            _ if self.is_at_once() => Duration::ZERO,
            (Some(grace), _) => grace.max(LEAST),
            (None, Some(deadline)) => deadline.saturating_duration_since(Instant::now()).max(LEAST),
            (None, None) => ending::grace(&self.pod, &Ending::DeadlineExceeded).max(LEAST),
        };
        if let Some(instance) = self.instances.get_mut(&index) {
            instance.stop(left);
        }
    }

    /// Whether nothing of the pod is given any time to end.
    fn is_at_once(&self) -> bool {
        self.ending.is_some() && self.grace.is_zero()
    }

    pub(super) async fn happen(&mut self, index: usize, number: i32, happening: Happening) {
        // What is said of an instance that is no more is late.
        if self.instances.get(&index).is_none_or(|instance| instance.number != number) {
            return;
        }
        match happening {
            Happening::Ended(end) => self.end(index, &end).await,
            Happening::HookDone(Ok(warning)) => {
                if let Some(warning) = warning {
                    self.shared.events.warning(&self.pod, None, FALLBACK, warning);
                }
                let no_probe =
                    self.specified(index).is_none_or(|specified| specified.startup_probe.is_none());
                if no_probe {
                    self.come_up(index);
                }
            }
            Happening::HookDone(Err(message)) => {
                let name = &self.containers[index].name;
                debug!(pod = %self.key, container = name, message, "a hook after the start failed");
                let message = "PostStartHook failed".to_owned();
                self.shared.events.warning(&self.pod, Some(name), "FailedPostStartHook", message);
                self.containers[index].unhealthy = true;
                self.stop(index, None);
            }
            Happening::Probed(purpose, found) => self.probed(index, purpose, found),
        }
    }

    fn come_up(&mut self, index: usize) {
        self.containers[index].started = true;
        if let Some(instance) = self.instances.get(&index) {
            instance.started.send_replace(true);
        }
    }

    fn probed(&mut self, index: usize, purpose: Purpose, found: Found) {
        // A pod that is being ended is not started again.
        if self.ending.is_some() && purpose != Purpose::Readiness {
            return;
        }
        let told = match &found.outcome {
            Ok(None) => None,
            Ok(Some(warning)) => {
                Some(("ProbeWarning", format!("{} probe warning: {warning}", purpose.as_str())))
            }
            Err(message) => Some(("Unhealthy", format!("{} probe failed: {message}", purpose.as_str()))),
        };
        if let Some((reason, message)) = told {
            self.shared.events.warning(&self.pod, Some(&self.containers[index].name), reason, message);
        }
        if !found.counts {
            return;
        }
        match (purpose, found.outcome.is_ok()) {
            (Purpose::Readiness, ready) => self.containers[index].ready = ready,
            (Purpose::Startup, true) => self.come_up(index),
            (Purpose::Liveness, true) => {}
            (Purpose::Liveness | Purpose::Startup, false) => {
                self.containers[index].unhealthy = true;
                let specified = self.specified(index);
                let probe = specified.and_then(|specified| match purpose {
                    Purpose::Startup => specified.startup_probe,
                    Purpose::Liveness | Purpose::Readiness => specified.liveness_probe,
                });
                let grace = probe.and_then(|probe| probe.termination_grace_period_seconds);
                let grace = grace.and_then(|grace| u64::try_from(grace).ok()).map(Duration::from_secs);
                self.stop(index, grace);
            }
        }
    }

    async fn end(&mut self, index: usize, end: &End) {
        let now = self.now();
        let Some(instance) = self.instances.remove(&index) else { return };
        let State::Running { since } = self.containers[index].state else { return };
        let mut exit = Exit { signal: end.signal, ..Exit::with_code(end.code, since, now) };
        if instance.cgroup.as_ref().is_some_and(Cgroup::had_no_memory) && end.code != 0 {
            "OOMKilled".clone_into(&mut exit.reason);
        }
        // Kubernetes tells of a signal by the code alone.
        exit.signal = None;
        if let Some(specified) = self.specified(index) {
            exit.message = self.message(&specified, &instance, end.code).await;
        }
        self.containers[index].end(exit);
        let (cgroup, directory) = (instance.cgroup.clone(), instance.directory.clone());
        drop(instance);
        self.removals.spawn_blocking(move || remove_instance(cgroup.as_ref(), &directory));
        self.register_logs();
    }

    /// What the container has to say at its end: what it wrote into a file, or if it failed without, the end of its log.
    async fn message(&self, specified: &Specified, instance: &Instance, code: i32) -> String {
        let path = self.directories.message(&specified.name, instance.number);
        let message = end_of(&path, MESSAGE).unwrap_or_default();
        let fallback = specified.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if !message.is_empty() || !fallback || code == 0 {
            return String::from_utf8_lossy(&message).into_owned();
        }
        let options = crate::logs::Options { tail: Some(LOG_LINES), ..crate::logs::Options::default() };
        let log = Log::ended(instance.log.path().to_owned());
        let pieces: Vec<_> = futures::StreamExt::collect(crate::logs::read(log, options)).await;
        let text: Vec<u8> = pieces.into_iter().filter_map(Result::ok).flatten().collect();
        let from = text.len().saturating_sub(LOG_MESSAGE);
        String::from_utf8_lossy(&text[from..]).into_owned()
    }

    fn specified(&self, index: usize) -> Option<Specified> {
        let name = &self.containers.get(index)?.name;
        let spec = self.pod.spec.as_ref()?;
        let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        all.find(|one| one.name == *name).cloned().or_else(|| ephemeral(spec, name))
    }

    /// Whose processes a container that is to be started sees. Where the one that it should look at does not run, it sees
    /// its own.
    fn processes(&mut self, container: &str) -> Processes {
        let Some(spec) = &self.pod.spec else { return Processes::Own };
        let of = match namespaces::processes(spec, container) {
            namespaces::Processes::Own => None,
            namespaces::Processes::Host => Some(Processes::Host),
            namespaces::Processes::Pod => self.sandbox.as_mut().and_then(Sandbox::processes),
            namespaces::Processes::Of(target) => {
                let index = self.containers.iter().position(|one| one.name == target);
                let instance = index.and_then(|index| self.instances.get(&index));
                instance.and_then(|instance| instance.place.process).map(Processes::Of)
            }
        };
        of.unwrap_or_default()
    }

    fn id_of(&self, container: &str, number: i32) -> String {
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        format!("process://{uid}-{container}-{number}")
    }
}

/// A container that was added to a pod that runs, in the words of any other: it has the same fields, and one more.
fn ephemeral(spec: &PodSpec, name: &str) -> Option<Specified> {
    let added = spec.ephemeral_containers.iter().flatten().find(|one| one.name == name)?;
    serde_json::from_value(serde_json::to_value(added).ok()?).ok()
}

/// The last so many bytes of a file, which a container may have made of anything.
fn end_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    // Nobody waits for whoever may write to a pipe.
    let no_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let mut file = fs::File::options().read(true).custom_flags(no_waiting).open(path)?;
    let metadata = file.metadata()?;
    let mut end = Vec::new();
    if metadata.is_file() {
        file.seek(SeekFrom::Start(metadata.len().saturating_sub(most)))?;
        file.take(most).read_to_end(&mut end)?;
    }
    Ok(end)
}

/// Removes what an instance needed. Blocks: what was killed takes a moment to leave its cgroup.
fn remove_instance(cgroup: Option<&Cgroup>, directory: &Path) {
    if let Some(cgroup) = cgroup
        && let Err(error) = cgroup.remove()
    {
        warn!(%error, "failed to remove the cgroup of a container");
    }
    if let Err(error) = volumes::remove_tree(directory) {
        warn!(directory = %directory.display(), %error, "failed to remove the files of a container");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_message_the_end_counts() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("message");
        assert!(end_of(&path, 4).is_err(), "there is none");
        for (text, end) in [("", ""), ("abc", "abc"), ("abcd", "abcd"), ("abcdefg", "defg")] {
            fs::write(&path, text).expect("a message");
            assert_eq!(end_of(&path, 4).expect("an end"), end.as_bytes());
        }
        let pipe = directory.path().join("pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        assert_eq!(end_of(&pipe, 4).expect("nothing"), b"");
    }
}
