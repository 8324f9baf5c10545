//! Watches pods, and leads each through its [`Life`].
//!
//! Every pod has a task that owns its life. What the watch says reaches it as the latest copy of the pod, so that a slow
//! pod holds up nobody and misses nothing that still matters.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};

use super::{
    Behaviour, Decide,
    life::{Change, Life, Step},
    node,
    requests::{Refused, Requests},
    status,
};

/// The namespace and name of a pod.
type Key = (String, String);

/// What a test wants of a pod.
pub(super) struct Order {
    pub(super) pod: Key,
    pub(super) behaviour: Behaviour,
    /// Told when the pod has done all that; dropped if it never will.
    pub(super) done: oneshot::Sender<()>,
}

/// The pods of a cluster, or of one of its namespaces.
pub(super) struct Cluster {
    requests: Arc<Requests>,
    pods: Api<Pod>,
    decide: Arc<Decide>,
    lives: HashMap<Key, Handle>,
    /// Orders for pods that were not seen yet.
    early: HashMap<Key, Vec<Order>>,
}

/// The way to the task of one pod. Dropping it ends the task.
struct Handle {
    uid: Option<String>,
    seen: watch::Sender<Pod>,
    orders: mpsc::Sender<Order>,
}

impl Cluster {
    pub(super) fn new(requests: Requests, pods: Api<Pod>, decide: Arc<Decide>) -> Cluster {
        Cluster { requests: Arc::new(requests), pods, decide, lives: HashMap::new(), early: HashMap::new() }
    }

    /// Runs until nobody can give orders any more.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let requests = self.requests.clone();
        let mut events = watcher(self.pods.clone(), watcher::Config::default()).default_backoff().boxed();
        let mut listed = HashSet::new();
        let keep_alive = node::keep_alive(requests.client());
        tokio::pin!(keep_alive);
        loop {
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(order) => self.order(order),
                    None => return,
                },
                () = &mut keep_alive => {}
                event = events.try_next() => match event {
                    Ok(Some(event)) => self.see(event, &mut listed),
                    Ok(None) => return,
                    Err(_) => {} // the API server is away; the watcher asks again, less and less often
                },
            }
        }
    }

    fn order(&mut self, order: Order) {
        match self.lives.get(&order.pod) {
            Some(life) => drop(life.orders.try_send(order)), // if full, the order is dropped, and whoever gave it told so
            None => self.early.entry(order.pod.clone()).or_default().push(order),
        }
    }

    fn see(&mut self, event: Event<Pod>, listed: &mut HashSet<Key>) {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(pod) => {
                listed.insert(key(&pod));
                self.see_pod(pod);
            }
            Event::InitDone => self.lives.retain(|key, _| listed.contains(key)),
            Event::Apply(pod) => self.see_pod(pod),
            Event::Delete(pod) => drop(self.lives.remove(&key(&pod))),
        }
    }

    fn see_pod(&mut self, pod: Pod) {
        let elsewhere = |node: &str| node != node::NODE;
        if pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(elsewhere) {
            return;
        }
        let key = key(&pod);
        match self.lives.get(&key) {
            Some(life) if life.uid == pod.metadata.uid => drop(life.seen.send_replace(pod)),
            _ => drop(self.lives.insert(key.clone(), self.begin(pod))),
        }
        for order in self.early.remove(&key).into_iter().flatten() {
            self.order(order);
        }
    }

    fn begin(&self, pod: Pod) -> Handle {
        let uid = pod.metadata.uid.clone();
        let life = Life::new(pod.clone(), (self.decide)(&pod), self.requests.new_address(), Instant::now());
        let (seen, latest) = watch::channel(pod);
        let (orders, receiver) = mpsc::channel(16);
        let player = Player {
            life,
            requests: self.requests.clone(),
            decide: self.decide.clone(),
            latest,
            orders: receiver,
            waiting: Vec::new(),
        };
        tokio::spawn(player.play());
        Handle { uid, seen, orders }
    }
}

fn key(pod: &Pod) -> Key {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

/// Leads one pod through its life.
struct Player {
    life: Life,
    requests: Arc<Requests>,
    decide: Arc<Decide>,
    latest: watch::Receiver<Pod>,
    orders: mpsc::Receiver<Order>,
    /// Who wants to know when the pod has done all it was told.
    waiting: Vec<oneshot::Sender<()>>,
}

/// The pod is gone, or nothing can be done for it any more.
struct Over;

impl Player {
    async fn play(mut self) {
        while let Ok(()) = self.step().await {}
    }

    async fn step(&mut self) -> Result<(), Over> {
        if self.latest.has_changed().map_err(|_| Over)? {
            self.see_latest();
        }
        match self.life.next(Instant::now()) {
            Step::Bind => match self.requests.bind(&self.life.pod).await {
                Ok(()) => self.life.bound(Instant::now()),
                Err(Refused::Conflict) => self.wait(None).await?,
                Err(Refused::Final) => return Err(Over),
            },
            Step::Change(change) => self.change(&change).await?,
            Step::Delete => {
                // Whatever the answer: the pod is gone, or it is another one, or waits for nothing but its finalizers.
                let _ = self.requests.delete(&self.life.pod).await;
                return Err(Over);
            }
            Step::Wait(until) => {
                if self.life.is_settled() {
                    for done in self.waiting.drain(..) {
                        let _ = done.send(()); // an error: the test does not wait any more
                    }
                }
                self.wait(until).await?;
            }
        }
        Ok(())
    }

    async fn change(&mut self, change: &Change) -> Result<(), Over> {
        let at = Timestamp::now();
        let restarted = self.life.change(change, Instant::now(), at);
        let patch = status::patch(&self.life, &Time(at));
        // A conflict is one of uids here: the pod that we knew is gone.
        let pod = self.requests.patch_status(&self.life.pod, patch).await.map_err(|_| Over)?;
        self.life.see(pod, Instant::now());
        if restarted {
            self.life.behave((self.decide)(&self.life.pod), Instant::now());
        }
        Ok(())
    }

    /// Waits for news of the pod, but no longer than `until`.
    async fn wait(&mut self, until: Option<Instant>) -> Result<(), Over> {
        tokio::select! {
            biased;
            order = self.orders.recv() => {
                let order = order.ok_or(Over)?;
                if !self.life.has_ended() {
                    self.life.behave(order.behaviour, Instant::now());
                    self.waiting.push(order.done);
                } // or else the order is dropped, and whoever gave it told so
            }
            changed = self.latest.changed() => {
                changed.map_err(|_| Over)?;
                self.see_latest();
            }
            () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
        }
        Ok(())
    }

    fn see_latest(&mut self) {
        let pod = self.latest.borrow_and_update().clone();
        self.life.see(pod, Instant::now());
    }
}
