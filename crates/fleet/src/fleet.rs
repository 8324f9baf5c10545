//! A management cluster and its workers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::try_join_all;
use kube::Client;
use rules::dispatch::Dispatcher;
use serde_json::{Value, json};

use crate::layout::{self, Quota};
use crate::{Cluster, Error, cluster};

/// The name of the management cluster.
pub const MANAGER: &str = "manager";

/// Of how many pods that are gone a node keeps the logs, unless it is told otherwise: Jobs are asked for them after their
/// end, when their pods on the worker are gone.
pub const KEPT_LOGS: usize = 500;

/// What a fleet is to be.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The names of its workers.
    pub workers: Vec<String>,
    /// Where its clusters keep what they hold; without it nothing is kept.
    pub data: Option<PathBuf>,
    /// The port of the manager, followed by those of the workers; 0 is any free ones.
    pub port_base: u16,
    /// What becomes of pods.
    pub runtime: Runtime,
    /// What pods do not see of the machine besides the directories that are named here: where it is said how the clusters
    /// are reached.
    pub hidden: Vec<PathBuf>,
    /// What every node offers.
    pub quota: Quota,
    /// Of how many pods that are gone each node keeps the logs.
    pub kept_logs: usize,
}

/// What becomes of the pods of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runtime {
    /// They only pretend to run.
    Simulated,
    /// They are processes of this machine, whose files are below this directory.
    Processes(PathBuf),
}

/// A management cluster and its workers, in this process until it is stopped or dropped.
pub struct Fleet {
    manager: Cluster,
    workers: Vec<Cluster>,
}

impl Fleet {
    /// Starts a fleet; Jobs can be submitted to its manager as soon as this returns.
    pub async fn start(settings: &Settings) -> Result<Self, Error> {
        expect_names(&settings.workers)?;
        let starting =
            settings.workers.iter().zip(1..).map(|(name, i)| {
                Cluster::start(of_cluster(settings, name, i, operator::Settings::default()))
            });
        // What a future needs of stack is kept on the heap: a cluster is much to start.
        let workers = try_join_all(starting.map(FutureExt::boxed)).await?;
        for worker in &workers {
            layout::worker(&worker.client(), worker.name(), &settings.quota).await?;
        }

        // A worker in this process is reached without a socket; any other as its kubeconfig says.
        let near: BTreeMap<String, Client> =
            workers.iter().map(|worker| (worker.url(), worker.lean_client())).collect();
        let mut operator = operator::Settings::default();
        // All share one machine, so that asking a worker in vain is not free.
        operator.dispatch.policy.dispatcher = Dispatcher::LeastLoaded;
        let far = Arc::clone(&operator.dispatch.connect);
        operator.dispatch.connect = Arc::new(move |config: Value| {
            let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default();
            match near.get(server) {
                Some(client) => futures::future::ready(Ok(client.clone())).boxed(),
                None => far(config),
            }
        });
        let manager = Cluster::start(of_cluster(settings, MANAGER, 0, operator)).boxed().await?;
        let known: Vec<(String, Value)> = workers
            .iter()
            .map(|worker| (worker.name().to_owned(), worker.kubeconfig(worker.name())))
            .collect();
        let total = times(&settings.quota, workers.len());
        layout::manager(&manager.client(), manager.name(), &total, &known).await?;
        layout::settled(&manager.client(), &settings.workers).await;
        Ok(Fleet { manager, workers })
    }

    /// The management cluster.
    pub fn manager(&self) -> &Cluster {
        &self.manager
    }

    /// The workers, in the order in which they were named.
    pub fn workers(&self) -> &[Cluster] {
        &self.workers
    }

    /// A kubeconfig with a context for each cluster, `ferry-NAME`; the manager's is the current one.
    pub fn kubeconfig(&self) -> Value {
        let mut all = self.manager.kubeconfig(&context(self.manager.name()));
        for worker in &self.workers {
            let one = worker.kubeconfig(&context(worker.name()));
            for part in ["clusters", "users", "contexts"] {
                let more = one[part].as_array().cloned().unwrap_or_default();
                all[part].as_array_mut().expect("a kubeconfig has lists").extend(more);
            }
        }
        all["current-context"] = json!(context(self.manager.name()));
        all
    }

    /// Stops all clusters, the manager first, and returns when what they acknowledged is on disk.
    pub async fn stop(self) {
        self.manager.stop().await;
        for worker in self.workers {
            worker.stop().await;
        }
    }
}

/// The name of a cluster's context.
pub fn context(cluster: &str) -> String {
    format!("ferry-{cluster}")
}

/// The name of a cluster's node, and of its directory.
pub fn node_of(cluster: &str) -> String {
    format!("{cluster}-node")
}

fn of_cluster(
    settings: &Settings,
    name: &str,
    index: u16,
    operator: operator::Settings,
) -> cluster::Settings {
    let of_node = node_of(name);
    let mut node = match &settings.runtime {
        Runtime::Simulated => runner::Settings::simulated(&of_node),
        Runtime::Processes(directory) => runner::Settings::process(&of_node, directory.join(&of_node)),
    };
    if let runner::Runtime::Process(process) = &mut node.runtime {
        process.kept_logs = settings.kept_logs;
        process.hidden = hidden(settings);
    }
    node.capacity.insert("cpu".to_owned(), settings.quota.cpu.clone());
    node.capacity.insert("memory".to_owned(), settings.quota.memory.clone());
    cluster::Settings {
        port: if settings.port_base == 0 { 0 } else { settings.port_base.saturating_add(index) },
        data: settings.data.as_ref().map(|data| data.join(name)),
        nodes: vec![node],
        operator: Some(operator),
        ..cluster::Settings::ephemeral(name)
    }
}

/// What pods are not to see: the data of all clusters, among it the keys of their administrators, and what belongs to other
/// nodes.
fn hidden(settings: &Settings) -> Vec<PathBuf> {
    let nodes = match &settings.runtime {
        Runtime::Simulated => None,
        Runtime::Processes(directory) => Some(directory),
    };
    let all = settings.data.iter().chain(nodes).chain(&settings.hidden);
    all.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())).collect()
}

/// That workers can be called so. Names become names of objects, of directories and of contexts.
pub fn expect_names(workers: &[String]) -> Result<(), Error> {
    let mut seen = vec![MANAGER];
    for name in workers {
        let problems = rules::names::dns_label(name);
        if let Some(problem) = problems.first() {
            return Err(Error::Name { name: name.clone(), why: problem.clone() });
        }
        if seen.contains(&name.as_str()) {
            return Err(Error::Name {
                name: name.clone(),
                why: "there is already a cluster of this name".to_owned(),
            });
        }
        seen.push(name);
    }
    if workers.is_empty() {
        return Err(Error::NoWorkers);
    }
    Ok(())
}

/// What several nodes offer together.
fn times(quota: &Quota, count: usize) -> Quota {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let times = |text: &str| match text.parse::<types::Quantity>() {
        Ok(amount) => {
            let millis = amount.millis_saturating().saturating_mul(count);
            types::Quantity::from_millis(millis, amount.format()).to_string()
        }
        // What is no quantity is refused by the cluster, with its own words.
        Err(_) => text.to_owned(),
    };
    Quota { cpu: times(&quota.cpu), memory: times(&quota.memory) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clusters() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            expect_names(&names).map_err(|error| error.to_string())
        };
        assert_eq!(names(&["east", "west"]), Ok(()));
        assert!(names(&[]).is_err() && names(&["East"]).is_err() && names(&["a", "a"]).is_err());
        assert_eq!(
            names(&["manager"]),
            Err("\"manager\" cannot be the name of a worker: there is already a cluster of this name"
                .to_owned())
        );
    }

    #[test]
    fn pods_do_not_see_the_data_of_their_clusters() {
        let quota = Quota { cpu: "1".to_owned(), memory: "1Gi".to_owned() };
        let settings = Settings {
            workers: vec!["east".to_owned()],
            data: Some("/data".into()),
            port_base: 0,
            runtime: Runtime::Processes("/nodes".into()),
            hidden: vec!["/root/kubeconfig".into()],
            quota,
            kept_logs: 0,
        };
        let cluster = of_cluster(&settings, "east", 1, operator::Settings::default());
        let runner::Runtime::Process(process) = &cluster.nodes[0].runtime else {
            panic!("it runs processes")
        };
        let expected = ["/data", "/nodes", "/root/kubeconfig"].map(PathBuf::from);
        assert_eq!(process.hidden, expected);
        assert_eq!(process.directory, PathBuf::from("/nodes/east-node"));
    }

    #[test]
    fn quota_of_several_workers() {
        let quota = Quota { cpu: "1500m".to_owned(), memory: "4Gi".to_owned() };
        assert_eq!(times(&quota, 3), Quota { cpu: "4500m".to_owned(), memory: "12Gi".to_owned() });
    }
}
