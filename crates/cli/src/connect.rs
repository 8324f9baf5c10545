//! How a verb reaches clusters: the management cluster by a kubeconfig, the workers by what the management cluster knows.
//!
//! A verb flattens [`Options`] into its arguments and calls [`Options::manager`]; [`Manager::worker`] connects to a worker
//! by name, as the operator does, or by a context of the same kubeconfig.

mod contexts;
mod way;
mod worker;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::failure::{Code, Failure, Hint as _};
use crate::kubeconfig;
use crate::names;
use crate::place;
use crate::shell;
use crate::up;

pub(crate) use contexts::uid_of;
use way::Source;
pub(crate) use way::Unreachable;
pub(crate) use worker::within;

/// What helps whose kubeconfig cannot be read.
const WHICH_FILE: &str = "--kubeconfig and KUBECONFIG say which file to use";

/// What helps whose kubeconfig can be read, and not used.
pub(crate) const WHAT_IS_WRONG: &str =
    "look at the server, certificates and keys that it names: one of them cannot be used";

/// Which management cluster is meant, and which namespace.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Which cluster")]
pub(crate) struct Options {
    /// The kubeconfig to use [default: that of `ferry up` if there is one and KUBECONFIG is not set, else as kubectl;
    /// as a plugin of kubectl, as kubectl first].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context to use [default: the current one].
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// The namespace to use [default: that of the context].
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,

    /// The namespace of the operator, where the Secrets with the kubeconfigs of workers are.
    #[arg(long, value_name = "NAME", default_value = "kueue-system")]
    pub(crate) operator_namespace: String,
}

/// The management cluster.
#[derive(Clone)]
pub(crate) struct Manager {
    pub(crate) client: Client,
    /// The namespace that is meant if none is named.
    pub(crate) namespace: String,
    /// Where Secrets with kubeconfigs of workers are.
    pub(crate) operator_namespace: String,
    /// The context that is used, if there is one.
    context: Option<String>,
    /// The kubeconfigs that were read.
    files: Vec<PathBuf>,
    /// What else the user can reach.
    kubeconfig: Kubeconfig,
}

impl Manager {
    /// The same cluster with another namespace.
    pub(crate) fn in_namespace(&self, namespace: &str) -> Manager {
        Manager { namespace: namespace.to_owned(), ..self.clone() }
    }

    /// What a command needs beside the name of a Job to find it in this namespace: nothing where it would look by itself.
    pub(crate) fn flags(&self, namespace: &str) -> String {
        if namespace == self.client.default_namespace() { String::new() } else { format!(" -n {namespace}") }
    }

    /// Where the nodes of an embedded fleet of this machine may have their files: where its kubeconfig says, else beside it.
    pub(crate) fn nodes(&self) -> Vec<PathBuf> {
        let noted = self.context.as_deref().and_then(|it| kubeconfig::nodes_of(&self.kubeconfig, it));
        match noted {
            Some(nodes) => vec![nodes],
            None => self.files.iter().filter_map(|file| file.parent()).map(place::nodes_in).collect(),
        }
    }
}

impl Options {
    /// Prepares to talk to the management cluster. Nothing is sent yet.
    pub(crate) async fn manager(&self) -> anyhow::Result<Manager> {
        let Some((kubeconfig, files)) = self.read()? else {
            let config = Config::incluster().map_err(|_| no_cluster())?;
            return self.connect(config, Kubeconfig::default(), Vec::new());
        };
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await;
        let config = config.map_err(|error| {
            let contexts: Vec<String> = kubeconfig.contexts.iter().map(|it| it.name.clone()).collect();
            let wanted = self.context.as_ref().or(kubeconfig.current_context.as_ref());
            if let Some(wanted) = wanted.filter(|wanted| !contexts.contains(wanted)) {
                return no_context(wanted, &contexts);
            }
            let message = format!("failed to use the kubeconfig: {}", reconcile::chain(&error));
            let hint = if contexts.is_empty() { WHICH_FILE } else { WHAT_IS_WRONG };
            Failure::new(Code::Error, message).hint(hint)
        })?;
        self.connect(config, kubeconfig, files)
    }

    fn connect(
        &self,
        config: Config,
        kubeconfig: Kubeconfig,
        files: Vec<PathBuf>,
    ) -> anyhow::Result<Manager> {
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let context = self.context.clone().or_else(|| kubeconfig.current_context.clone());
        let source = match &context {
            Some(name) => Source::Context { name: name.clone(), files: files.clone() },
            None => Source::Pod,
        };
        let client = way::client(config, source, way::ANSWER).context("failed to prepare a client");
        let client = client.hint(WHAT_IS_WRONG)?;
        let operator_namespace = self.operator_namespace.clone();
        Ok(Manager { client, namespace, operator_namespace, context, files, kubeconfig })
    }

    /// The kubeconfig that is meant and the files that it is from; `None` if there is none at all.
    fn read(&self) -> anyhow::Result<Option<(Kubeconfig, Vec<PathBuf>)>> {
        if let Some(path) = &self.kubeconfig {
            return read_from(path).map(Some);
        }
        if let Some(named) = named()? {
            return Ok(Some(named));
        }
        let home = home_kubeconfig().filter(|path| path.exists());
        // As a plugin it looks where kubectl looks.
        if !(shell::is_plugin() && home.is_some())
            && let Some(own) = self.of_own_fleet()?
        {
            return Ok(Some(own));
        }
        home.map(|path| read_from(&path)).transpose()
    }

    /// What `ferry up` wrote, unless a context is asked for that is elsewhere.
    fn of_own_fleet(&self) -> anyhow::Result<Option<(Kubeconfig, Vec<PathBuf>)>> {
        let path = up::default_data().ok().map(|data| place::kubeconfig_in(&data));
        let Some(path) = path.filter(|path| path.exists()) else { return Ok(None) };
        let read = read_from(&path)?;
        let has = |name: &String| read.0.contexts.iter().any(|context| context.name == *name);
        let is_alone = home_kubeconfig().is_none_or(|path| !path.exists());
        Ok((is_alone || self.context.as_ref().is_none_or(has)).then_some(read))
    }
}

/// The kubeconfig that kubectl would use here; `None` if there is none at all.
pub(crate) fn of_environment() -> anyhow::Result<Option<Kubeconfig>> {
    let home = || home_kubeconfig().filter(|path| path.exists()).map(|path| read_from(&path)).transpose();
    let found = named()?.map_or_else(home, |named| Ok(Some(named)))?;
    Ok(found.map(|(kubeconfig, _)| kubeconfig))
}

/// What KUBECONFIG names, if it names anything.
fn named() -> anyhow::Result<Option<(Kubeconfig, Vec<PathBuf>)>> {
    let named: Vec<PathBuf> = std::env::var_os("KUBECONFIG")
        .map(|value| std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect())
        .unwrap_or_default();
    if named.is_empty() {
        return Ok(None);
    }
    // Those that are not there are passed over, as kubectl does, unless there is none at all.
    let there: Vec<PathBuf> = named.iter().filter(|path| path.exists()).cloned().collect();
    let there = if there.is_empty() { named } else { there };
    let mut whole = Kubeconfig::default();
    for path in &there {
        let (next, _) = read_from(path)?;
        whole = whole.merge(next).context("failed to read what KUBECONFIG names").hint(WHICH_FILE)?;
    }
    Ok(Some((whole, there)))
}

pub(crate) fn read_from(path: &Path) -> anyhow::Result<(Kubeconfig, Vec<PathBuf>)> {
    let failed = || format!("failed to read {}", path.display());

    // The reason in the system's own words; what follows would wrap them.
    std::fs::read(path).with_context(failed).hint(WHICH_FILE)?;
    let kubeconfig = Kubeconfig::read_from(path).with_context(failed).hint(WHICH_FILE)?;
    Ok((kubeconfig, vec![path.to_owned()]))
}

fn home_kubeconfig() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(PathBuf::from(home).join(".kube/config"))
}

fn no_context(wanted: &str, there: &[String]) -> Failure {
    let hint = names::hint("contexts", wanted, there, "there is no context in the kubeconfig");
    let hint = format!("{hint}; KUBECONFIG=a:b puts two files together");
    Failure::new(Code::NotFound, format!("there is no context {wanted}")).hint(hint)
}

pub(crate) fn no_cluster() -> Failure {
    Failure::new(Code::Error, "found no cluster: neither a kubeconfig nor a service account")
        .hint("start a fleet with `ferry up`, or name a kubeconfig with --kubeconfig")
}
