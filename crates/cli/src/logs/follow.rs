//! Logs as they are written: of all pods of a Job, those to come included, until the Job has ended.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use reconcile::{Cache, Tasks};
use tokio::sync::mpsc;

use super::What;
use crate::connect::Manager;
use crate::live::Live;
use crate::output;
use crate::pods::{self, Place};
use crate::view::{Status, View};

/// How long pods of a Job that has ended may still have something to say.
const LAST_WORDS: Duration = Duration::from_secs(10);
/// How many lines wait to be printed before who reads them has to wait.
const LINES: usize = 1024;

/// Prints what the pods of a Job write, until it has ended or is gone.
pub(crate) async fn follow(manager: &Manager, view: &View, what: &What) -> anyhow::Result<()> {
    let live = Live::start(&manager.client, Some(&view.namespace)).await?;
    let (tell, mut lines) = mpsc::channel(LINES);
    let mut sources: BTreeMap<Option<String>, Source> = BTreeMap::new();
    let mut last = None;
    loop {
        let now = live.by_uid(&view.uid).map(|found| found.view);
        last = now.clone().or(last);
        if let Some(now) = &now
            && has_pods(now)
            && !sources.contains_key(&now.cluster)
        {
            let place = pods::place(manager, now).await?;
            sources.insert(now.cluster.clone(), Source::start(place, now, what, tell.clone()));
        }
        if now.is_none_or(|now| now.status.has_ended()) {
            break;
        }
        tokio::select! {
            biased;
            Some(line) = lines.recv() => output::line(line)?,
            () = live.changed() => {}
        }
    }
    // What still reads holds a sender; when the last of them is gone, everything was said.
    drop(tell);
    for source in sources.values() {
        source.no_more();
    }
    let rest = async {
        while let Some(line) = lines.recv().await {
            output::line(line)?;
        }
        anyhow::Ok(())
    };
    // A pod that does not end by itself is no reason to wait forever.
    tokio::time::timeout(LAST_WORDS, rest).await.unwrap_or(Ok(()))?;
    // Pods that were gone before they could be read.
    let read: HashSet<String> = sources.values().flat_map(Source::read).collect();
    let last = last.unwrap_or_else(|| view.clone());
    if super::is_being_kept(manager, &last, Timestamp::now()) {
        super::all_kept(manager, &last, what, &read).await;
    }
    super::print_kept(manager, &last, what, &read).await.map(|_| ())
}

/// Whether there may be pods to look for.
fn has_pods(view: &View) -> bool {
    let is_placed = view.cluster.is_some() || view.started.is_some();
    is_placed && !matches!(view.status, Status::Queued | Status::Held | Status::External)
}

/// The pods of one cluster, whose logs are read from the moment on that there are any.
struct Source {
    readers: Arc<Readers>,
    _tasks: Tasks,
}

struct Readers {
    pods: Api<Pod>,
    what: What,
    /// Containers that are read, each of their lives once.
    known: Mutex<HashSet<(String, String, i32)>>,
    /// Where lines go; `None` when no more pods are read.
    tell: Mutex<Option<mpsc::Sender<String>>>,
}

impl Source {
    fn start(place: Place, view: &View, what: &What, tell: mpsc::Sender<String>) -> Source {
        let mut tasks = Tasks::new();
        let pods = place.pods(view);
        let readers = Arc::new(Readers {
            pods: pods.clone(),
            what: what.clone(),
            known: Mutex::default(),
            tell: Mutex::new(Some(tell)),
        });
        let seeing = Arc::clone(&readers);
        let mut cache = Cache::new(pods);
        let selector = pods::selector(view);
        if selector.is_empty() {
            cache = cache.fields(&format!("metadata.name={}", view.name));
        } else {
            cache = cache.labels(&selector);
        }
        cache
            .on_change(move |change| change.new.into_iter().for_each(|pod| seeing.see(pod)))
            .start(&mut tasks);
        Source { readers, _tasks: tasks }
    }

    /// The uids of the pods that were read.
    fn read(&self) -> Vec<String> {
        let known = self.readers.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(uid, _, _)| uid.clone()).collect()
    }

    fn no_more(&self) {
        self.readers.tell.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Readers {
    /// Begins to read the containers of a pod that have begun to write.
    fn see(self: &Arc<Self>, pod: &Pod) {
        if !self.what.is_wanted(&pod.metadata) {
            return;
        }
        for container in self.what.containers(pod) {
            let Some(life) = life(pod, &container) else { continue };
            let key = (pod.uid().unwrap_or_default(), container.clone(), life);
            let tell = self.tell.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let is_new = self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
            if let (true, Some(tell)) = (is_new, tell) {
                let (readers, name) = (Arc::clone(self), pod.name_any());
                let several = pod.spec.as_ref().is_some_and(|spec| spec.containers.len() > 1);
                let prefix = self.what.prefix(&name, &container, several);
                tokio::spawn(async move { readers.read(&name, &container, &prefix, &tell).await });
            }
        }
    }

    async fn read(&self, pod: &str, container: &str, prefix: &str, tell: &mpsc::Sender<String>) {
        let params = self.what.params(container, true);
        let stream = match self.pods.log_stream(pod, &params).await {
            Ok(stream) => stream,
            Err(error) => {
                let why = crate::failure::text(&error.into());
                output::note(format!("failed to read the log of pod {pod}: {why}"));
                return;
            }
        };
        let mut lines = stream.lines();
        while let Ok(Some(line)) = lines.try_next().await {
            if tell.send(format!("{prefix}{line}")).await.is_err() {
                return;
            }
        }
    }
}

/// Which life of a container this is, if it has begun: one that was restarted writes a new log.
fn life(pod: &Pod, container: &str) -> Option<i32> {
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let status = all.into_iter().find(|status| status.name == container)?;
    let state = status.state.as_ref()?;
    (state.running.is_some() || state.terminated.is_some()).then_some(status.restart_count)
}
