//! The suite: what it is built from, how it is run, and what it reports.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context as _;
use serde_json::Value;
use testkit::{Binary, Process, go::Tools};

use crate::{kinds, settings::Which, verdict};

/// The suite, and the node that its pods need.
pub(crate) struct Suite {
    pub(crate) node: PathBuf,
    which: Which,
    tests: PathBuf,
    /// Kueue's own sources.
    sources: PathBuf,
}

/// What became of the specs.
pub(crate) struct Outcome {
    pub(crate) ran: Vec<Spec>,
    /// Those that were not asked for, by name.
    pub(crate) skipped: Vec<String>,
}

/// What became of one spec.
pub(crate) struct Spec {
    pub(crate) name: String,
    pub(crate) passed: bool,
    pub(crate) took: Duration,
    /// Where it failed, and what it said.
    pub(crate) failure: Option<String>,
}

impl Suite {
    pub(crate) fn build(which: Which) -> anyhow::Result<Suite> {
        let tools = |name| Tools::for_test(name).context("there is no Go toolchain on PATH");
        Ok(Suite {
            node: tools("kubernetes/node")?.program(".")?.path().to_owned(),
            which,
            tests: match which {
                Which::Baseline => Binary::KueueSuite.ensure()?,
                Which::Extended => Binary::KueueExtendedSuite.ensure()?,
            },
            sources: tools("kubernetes/kueue")?.module("sigs.k8s.io/kueue"),
        })
    }

    /// The configuration of Kueue that the suite is made for.
    pub(crate) fn configuration(&self) -> PathBuf {
        // The first shard has all kinds but Ray's.
        let name = match self.which {
            Which::Baseline => "baseline",
            Which::Extended => "extended-shard-0",
        };
        self.sources.join("test/e2e/config/multikueue").join(name).join("controller_manager_config.yaml")
    }

    /// Runs the specs that match, or all, and says what became of each.
    pub(crate) async fn run(&self, kubeconfig: &Path, focus: Option<&str>) -> anyhow::Result<Outcome> {
        let folder = tempfile::Builder::new().prefix("ferry-kueue-e2e-").tempdir()?.keep();
        let (log, report) = (folder.join("suite.log"), folder.join("report.json"));
        println!("the suite writes to {}", log.display());
        let mut command = Command::new(&self.tests);
        command.args(["--ginkgo.v", "--ginkgo.no-color", "--ginkgo.timeout=40m"]);
        command.arg(format!("--ginkgo.json-report={}", report.display())).current_dir(&folder);
        command.args(focus.map(|focus| format!("--ginkgo.focus={focus}")));
        // One that fails would take those along that come after it.
        if self.which == Which::Extended {
            command.args(verdict::not_here().map(|name| format!("--ginkgo.skip={name}")));
        }
        command.args(kinds::filter(self.which).map(|filter| format!("--ginkgo.label-filter={filter}")));
        command.env("KUBECONFIG", kubeconfig);
        // It takes the folder above this one for its sources, and an image for what the simulated pods would run.
        command.env("PROJECT_DIR", self.sources.join("test"));
        command.env("E2E_TEST_AGNHOST_IMAGE", "agnhost:simulated");
        command.env("KUBERAY_RAY_IMAGE", "ray:simulated");
        let tests = Process::spawn(&mut command, &log)?;
        tokio::task::spawn_blocking(move || tests.wait()).await??;
        let read =
            fs::read(&report).with_context(|| format!("the suite did not report, see {}", log.display()))?;
        Ok(outcome(&serde_json::from_slice(&read)?))
    }
}

fn outcome(report: &Value) -> Outcome {
    let suites = report.as_array().into_iter().flatten();
    let reports: Vec<&Value> =
        suites.flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten()).collect();
    let skipped = reports.iter().filter(|report| report["State"] == "skipped");
    let skipped = skipped.filter_map(|report| report["LeafNodeText"].as_str().map(str::to_owned)).collect();
    Outcome { ran: reports.iter().filter_map(|report| spec(report)).collect(), skipped }
}

/// One spec. What happens around all of them counts, too, if it went wrong.
fn spec(report: &Value) -> Option<Spec> {
    let passed = report["State"] == "passed";
    let kind = report["LeafNodeType"].as_str()?;
    if report["State"] == "skipped" || report["State"] == "pending" || (kind != "It" && passed) {
        return None;
    }
    let name = if kind == "It" { report["LeafNodeText"].as_str()? } else { kind };
    let failure = &report["Failure"];
    let failure = failure["Message"].as_str().map(|message| {
        let file = failure["Location"]["FileName"].as_str().unwrap_or_default().rsplit('/').next();
        let said: String =
            message.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect();
        format!("{}:{}: {said}", file.unwrap_or_default(), failure["Location"]["LineNumber"])
    });
    let took = Duration::from_nanos(report["RunTime"].as_u64().unwrap_or_default());
    Some(Spec { name: name.to_owned(), passed, took, failure })
}
