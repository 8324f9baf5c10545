//! `ferry up`: a fleet to keep.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use fleet::{Fleet, Quota, Runtime, Settings};

use crate::arguments::{self, PodRuntime};
use crate::failure::{self, Code, Failure, Hint as _};
use crate::kubeconfig;
use crate::output;
use crate::place::{self, Place};
use crate::process;

/// How many workers there are if nobody says.
const WORKERS: usize = 2;

/// What helps whose workers cannot be called so.
const NAMES: &str = "--worker NAME, once for each, or --workers N";

/// Runs a fleet until SIGTERM or SIGINT. Prints how to reach it when it can be used.
pub(crate) fn run(arguments: &arguments::Up) -> anyhow::Result<ExitCode> {
    process::serve(async {
        let stopped = process::stopped()?;
        let data = match (&arguments.data, arguments.ephemeral) {
            (Some(data), _) => Some(data.clone()),
            (None, true) => None,
            (None, false) => Some(default_data()?),
        };
        let workers = workers(arguments, data.as_deref())?;
        let clusters = workers.iter().map(String::as_str).chain([fleet::MANAGER]);
        let place = Place::of(data.as_deref(), clusters)?;
        let path = arguments.kubeconfig.clone().unwrap_or_else(|| place.kubeconfig());
        let path = std::path::absolute(&path).unwrap_or(path);
        let mut settings = settings(arguments, workers, data, &place);
        settings.hidden.push(path.clone());
        expect_ports(&settings)?;
        if arguments.kubeconfig.is_some() {
            kubeconfig::expect_writable(&path, &contexts(&settings), arguments.merge)?;
        }
        let fleet = advised(Fleet::start(&settings).await, "--port-base")?;
        let mut config = fleet.kubeconfig();
        if let Runtime::Processes(nodes) = &settings.runtime {
            kubeconfig::note_nodes(&mut config, nodes);
        }
        let told = kubeconfig::write(&path, &config, arguments.merge);
        if told.is_ok() {
            announce(&fleet, &path, arguments.merge);
            stopped.await;
        }
        fleet.stop().await;
        place.leave()?;
        told.hint("--kubeconfig FILE says where to write it")?;
        Ok(ExitCode::SUCCESS)
    })
}

fn announce(fleet: &Fleet, kubeconfig: &Path, is_merged: bool) {
    let clusters = || std::iter::once(fleet.manager()).chain(fleet.workers());
    let width = clusters().map(|cluster| cluster.name().len()).max().unwrap_or(0);
    for cluster in clusters() {
        let context = fleet::context(cluster.name());
        output::announce(format!("{:<width$}   {}   context {context}", cluster.name(), cluster.url()));
    }
    if is_merged {
        let file = kubeconfig.display();
        let manager = fleet::context(fleet::MANAGER);
        output::announce(format!(
            "fleet is ready: its contexts are in {file}, for example --context {manager}"
        ));
    } else {
        output::announce(format!("fleet is ready: export KUBECONFIG={}", kubeconfig.display()));
    }
}

fn contexts(settings: &Settings) -> Vec<String> {
    let names = std::iter::once(fleet::MANAGER).chain(settings.workers.iter().map(String::as_str));
    names.map(fleet::context).collect()
}

/// That there is a port for each cluster.
fn expect_ports(settings: &Settings) -> anyhow::Result<()> {
    let last = usize::from(settings.port_base) + settings.workers.len();
    if settings.port_base == 0 || u16::try_from(last).is_ok() {
        return Ok(());
    }
    let message = format!("--port-base {}: there is no port {last} for the last worker", settings.port_base);
    let hint = format!("at most {}, or 0 for any free ports", usize::from(u16::MAX) - settings.workers.len());
    Err(Failure::new(Code::Error, message).hint(hint).into())
}

/// What to do about a cluster that did not start; `port` is the option that chooses where it listens.
pub(crate) fn advised<T>(started: Result<T, fleet::Error>, port: &str) -> anyhow::Result<T> {
    use fleet::{Error as E, Open};
    let hint = match &started {
        // What the error says by itself helps more: that a disk is full, or that a file is another user's.
        Ok(_) | Err(E::Nodes { source: runner::Error::Prepare { .. } | runner::Error::Register { .. }, .. }) => {
            return Ok(started?);
        }
        Err(error) if failure::is_about_files(error) => return Ok(started?),
        Err(E::Nodes { source: runner::Error::Network { .. }, .. }) => {
            "--network host lets pods use the network of this machine".to_owned()
        }
        Err(E::Store { source: Open::Locked { .. }, .. }) => {
            "if it runs already, use it or stop it first; --data DIR keeps another one elsewhere, --ephemeral nothing"
                .to_owned()
        }
        Err(E::Store { source: Open::Version { found, known, .. }, .. }) if found > known => {
            "a newer ferry wrote it: use that one; or --data DIR begins anew elsewhere".to_owned()
        }
        Err(E::Serve { .. }) => format!("another {port}, or 0 for any free one; or stop who listens there"),
        Err(E::Name { .. } | E::NoWorkers) => NAMES.to_owned(),
        Err(
            E::Store { .. }
            | E::Credentials { .. }
            | E::Nodes { .. }
            | E::Signer { .. }
            | E::Prepare { .. }
            | E::Definitions { .. }
            | E::LayOut { .. },
        ) => {
            "what it has kept may be damaged, or changed so that it is in the way; --data DIR begins anew elsewhere"
                .to_owned()
        }
    };
    started.hint(hint)
}

/// Which workers there are to be: those that are asked for, else those that are there.
fn workers(arguments: &arguments::Up, data: Option<&Path>) -> anyhow::Result<Vec<String>> {
    let there = data.map(workers_in).unwrap_or_default();
    let workers = match arguments.workers {
        None if arguments.worker.is_empty() && !there.is_empty() => there.clone(),
        None if !arguments.worker.is_empty() => arguments.worker.clone(),
        count => (1..=count.unwrap_or(WORKERS)).map(|i| format!("worker{i}")).collect(),
    };
    advised(fleet::expect_names(&workers), "--port-base")?;
    if let Some(taken) = workers.iter().find(|name| place::BESIDE.contains(&name.as_str())) {
        let message = format!(
            "{taken:?} cannot be the name of a worker: there is something else of this name beside the data"
        );
        return Err(Failure::new(Code::Error, message).hint(NAMES).into());
    }
    if let (Some(missing), Some(data)) = (there.iter().find(|name| !workers.contains(name)), data) {
        let data = data.display();
        let message = format!("worker {missing} is in {data}, and would not run: its Jobs would wait for it");
        let hint = format!(
            "without --worker and --workers all that are there run; to do without {missing}: ferry drain {missing}, \
             ferry leave {missing} --force, and then remove its directory"
        );
        return Err(Failure::new(Code::Error, message).hint(hint).into());
    }
    Ok(workers)
}

fn settings(
    arguments: &arguments::Up,
    workers: Vec<String>,
    data: Option<PathBuf>,
    place: &Place,
) -> Settings {
    let runtime = match arguments.runtime {
        PodRuntime::Process => Runtime::Processes(place.nodes()),
        PodRuntime::Simulated => Runtime::Simulated,
    };
    let (port_base, kept_logs) = (arguments.port_base, arguments.kept_logs);
    let hidden = vec![place.directory().to_owned()];
    Settings { workers, data, port_base, runtime, hidden, quota: quota(), kept_logs }
}

/// The workers of an earlier start: each has a directory with its store. What cannot be read is refused by what starts.
fn workers_in(data: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(data).into_iter().flatten().flatten();
    let stores = entries.filter(|entry| entry.path().join("store").exists());
    let names = stores.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name != fleet::MANAGER).collect();
    // worker2 comes before worker10.
    names.sort_by_cached_key(|name| (name.len(), name.clone()));
    names
}

/// What every worker offers. Pods share one machine here, so that this is about order and not about its processors.
pub(crate) fn quota() -> Quota {
    Quota { cpu: "8".to_owned(), memory: "16Gi".to_owned() }
}

/// Where a user's programs keep their data.
pub(crate) fn default_data() -> anyhow::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    let found = home.map(|home| home.join("ferry")).context("found no place for data");
    found.hint("--data DIR names one, --ephemeral does without; else HOME or XDG_DATA_HOME have to be set")
}

#[cfg(test)]
mod tests {
    use std::io;

    use fleet::{Error as E, Open};

    use super::*;

    #[test]
    fn what_helps_against_data_that_cannot_be_used() {
        let store = |source| E::Store { cluster: "a".to_owned(), source };
        let (dir, file) = (PathBuf::from("d"), PathBuf::from("d/f"));
        let io = |kind: io::ErrorKind| {
            store(Open::Io { doing: "create", path: "d".into(), source: io::Error::from(kind) })
        };
        let version = |found| store(Open::Version { file: file.clone(), found, known: 2 });
        let corrupt = Open::Corrupt { file: file.clone(), offset: 0, what: String::new(), hint: "" };
        let full =
            apiserver::status::Refusal::internal("default was not made: 503: the disk is full: no space");
        let damaged = apiserver::credentials::Error::File {
            doing: "read",
            path: "credentials.json".to_owned(),
            source: io::Error::other("expected value at line 1 column 1"),
        };
        for (error, expected) in [
            (store(Open::Locked { dir, holder: "process 1".to_owned() }), "if it runs already"),
            (version(3), "a newer ferry wrote it"),
            (version(1), "may be damaged"),
            (store(corrupt), "may be damaged"),
            (io(io::ErrorKind::StorageFull), "make room on the disk"),
            (io(io::ErrorKind::ReadOnlyFilesystem), "write elsewhere"),
            (io(io::ErrorKind::PermissionDenied), "this user may not"),
            (E::Prepare { cluster: "a".to_owned(), source: Box::new(full) }, "make room on the disk"),
            (E::Credentials { cluster: "a".to_owned(), source: damaged }, "may be damaged"),
        ] {
            let error = advised(Err::<(), _>(error), "--port").expect_err("an error");
            let hint = failure::hint_of(&error);
            assert!(hint.contains(expected), "{error:#}: {hint}");
        }
    }
}
