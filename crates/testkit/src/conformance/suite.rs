//! The tests themselves.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{
    Cluster,
    report::{self, Outcome},
};
use crate::{Binary, BinaryError, process::Process};

/// What all conformance tests have in their names.
const CONFORMANCE: &str = r"\[Conformance\]";

/// Kubernetes' end-to-end tests, and what they need.
#[derive(Clone, Debug)]
pub struct Suite {
    tests: PathBuf,
    kubectl: PathBuf,
}

impl Suite {
    /// Builds them if need be.
    pub fn ensure() -> Result<Suite, BinaryError> {
        Ok(Suite { tests: Binary::EndToEnd.ensure()?, kubectl: Binary::Kubectl.ensure()? })
    }

    /// The names of all conformance tests.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let directory = tempfile::tempdir()?;
        let mut command = Command::new(&self.tests);
        command.args(["--ginkgo.dry-run", "--provider=skeleton", &format!("--ginkgo.focus={CONFORMANCE}")]);
        let mut names = report::selected(&run(command, directory.path())?);
        names.sort();
        Ok(names)
    }

    /// Runs these tests, one after another, against the cluster. `directory` gets logs and reports.
    pub fn run(&self, cluster: &Cluster, names: &[String], directory: &Path) -> io::Result<Vec<Outcome>> {
        let mut command = cluster.command(&self.tests);
        command
            .arg(format!("--kubeconfig={}", cluster.kubeconfig().display()))
            .arg(format!("--kubectl-path={}", self.kubectl.display()))
            // Nobody made the cluster for the tests, and nothing runs in it that would have to come up first.
            .args(["--provider=skeleton", "--allowed-not-ready-nodes=-1", "--minStartupPods=0"])
            .args([
                "--dump-logs-on-failure=false",
                "--ginkgo.timeout=24h",
                "--ginkgo.no-color",
                "--ginkgo.v",
            ]);
        command.args(names.iter().map(|name| format!("--ginkgo.focus={}", regex::escape(name))));
        let mut outcomes = report::outcomes(&run(command, directory)?);
        // A name may be a part of another one.
        outcomes.retain(|outcome| names.contains(&outcome.name));
        Ok(outcomes)
    }
}

/// The report of a run. That tests fail is no error here, but that none could be run is.
fn run(mut command: Command, directory: &Path) -> io::Result<Value> {
    let (report, log) = (directory.join("report.json"), directory.join("tests.log"));
    command.arg(format!("--ginkgo.json-report={}", report.display())).current_dir(directory);
    Process::spawn(&mut command, &log)?.wait()?;
    let text = fs::read(&report);
    let text = text.map_err(|error| without_report(&format!("wrote no report ({error})"), &log))?;
    let report: Value = serde_json::from_slice(&text)?;
    if let Some(why) = report::beginning(&report) {
        return Err(without_report(&format!("could not begin: {why}"), &log));
    }
    Ok(report)
}

fn without_report(what: &str, log: &Path) -> io::Error {
    let said = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    let tail = lines[lines.len().saturating_sub(20)..].join("\n");
    io::Error::other(format!("the tests {what}; they said:\n{tail}"))
}
