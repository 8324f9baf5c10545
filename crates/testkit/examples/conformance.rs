//! Runs Kubernetes' conformance tests against `ferry cluster`.
//!
//! ```text
//! cargo build -p cli && cargo run -p testkit --example conformance -- --focus 'sig-apps. Job'
//! ```
//!
//! Without `--all` or `--list` only those run that are known to pass. Ends with 1 if one of them does not.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    thread,
    time::Instant,
};

use anyhow::Context as _;
use clap::Parser as _;
use testkit::conformance::{Cluster, Known, Outcome, State, Suite, images};

/// Run Kubernetes' conformance tests against `ferry cluster`.
#[derive(clap::Parser)]
struct Arguments {
    /// Run only tests whose name this regular expression finds.
    #[arg(long, value_name = "REGEX")]
    focus: Option<regex::Regex>,

    /// Run the tests of this file, one name per line, whether they are known to pass or not.
    #[arg(long, value_name = "FILE")]
    list: Option<PathBuf>,

    /// Run also those that are known to fail.
    #[arg(long)]
    all: bool,

    /// Run nothing, and print what would be run.
    #[arg(long)]
    count: bool,

    /// How many clusters share the work. Most of it is waiting.
    #[arg(long, value_name = "N", default_value_t = 5)]
    clusters: usize,

    /// How many nodes each cluster has.
    #[arg(long, value_name = "N", default_value_t = 2)]
    nodes: usize,

    /// The program to be judged [default: the one that was built beside this one].
    #[arg(long, value_name = "PROGRAM")]
    ferry: Option<PathBuf>,

    /// Keep logs and reports there [default: nowhere].
    #[arg(long, value_name = "DIR")]
    logs: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let suite = Suite::ensure()?;
    let names = suite.names()?;
    let mut known = read_known()?;
    if let Some(stranger) = known.strangers(&names).first() {
        anyhow::bail!("{} names {stranger:?}, which is no conformance test", known_file().display());
    }
    let chosen = choose(&arguments, &names, &known)?;
    if arguments.count {
        for name in &chosen {
            println!("{name}");
        }
        eprintln!("{} of {} tests", chosen.len(), names.len());
        return Ok(ExitCode::SUCCESS);
    }
    let began = Instant::now();
    let outcomes = run(&arguments, &suite, &chosen)?;
    let passed: BTreeSet<String> = outcomes
        .iter()
        .filter(|outcome| outcome.state == State::Passed)
        .map(|outcome| outcome.name.clone())
        .collect();
    let mut broken = 0;
    for name in chosen.iter().filter(|name| !passed.contains(*name)) {
        let said = outcomes.iter().find(|outcome| outcome.name == *name).map_or("it was not run", first_line);
        let reason = known.reason(name);
        broken += usize::from(reason.is_none());
        println!(
            "FAILED {name}\n       {said}{}",
            reason.map_or(String::new(), |it| format!("\n       known: {it}"))
        );
    }
    println!("{} of {} passed", passed.len(), chosen.len());
    if known.remove(&passed) {
        fs::write(known_file(), known.file())?;
    }
    if broken > 0 {
        eprintln!("{broken} failed that are not known to fail");
        return Ok(ExitCode::FAILURE);
    }
    // A page about all tests is written by who ran all of them.
    if arguments.focus.is_none() && arguments.list.is_none() {
        let minutes = began.elapsed().as_secs().div_ceil(60);
        let run = format!(
            "on {}, at commit {}, in {minutes} minutes",
            jiff::Timestamp::now().strftime("%Y-%m-%d"),
            commit()?
        );
        fs::write(repository().join("docs/conformance.md"), known.page(&names, &passed, &run))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is judged, with a mark if it was changed since.
fn commit() -> anyhow::Result<String> {
    let arguments = ["describe", "--always", "--dirty", "--exclude=*"];
    let output = Command::new("git").arg("-C").arg(repository()).args(arguments).output()?;
    anyhow::ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn choose(arguments: &Arguments, names: &[String], known: &Known) -> anyhow::Result<Vec<String>> {
    let mut chosen = match &arguments.list {
        Some(path) => {
            let text =
                fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
            let listed: Vec<String> = text.lines().map(str::trim).map(str::to_owned).collect();
            listed.into_iter().filter(|name| !name.is_empty() && !name.starts_with('#')).collect()
        }
        None => names.to_vec(),
    };
    if let Some(stranger) = chosen.iter().find(|name| !names.contains(name)) {
        anyhow::bail!("{stranger:?} is no conformance test");
    }
    if arguments.list.is_none() && !arguments.all {
        chosen.retain(|name| known.reason(name).is_none());
    }
    if let Some(focus) = &arguments.focus {
        chosen.retain(|name| focus.is_match(name));
    }
    Ok(chosen)
}

/// All clusters work at the same time, each on its share.
fn run(arguments: &Arguments, suite: &Suite, chosen: &[String]) -> anyhow::Result<Vec<Outcome>> {
    let scratch = tempfile::tempdir()?;
    let logs = arguments.logs.clone().unwrap_or_else(|| scratch.path().to_owned());
    let logs = std::path::absolute(logs)?;
    let images = images::make(&scratch.path().join("images"))?;
    let ferry = arguments.ferry.clone().map_or_else(beside_this, Ok)?;
    let clusters = arguments.clusters.clamp(1, chosen.len().max(1));
    let shares: Vec<Vec<String>> = (0..clusters)
        .map(|cluster| chosen.iter().skip(cluster).step_by(clusters).cloned().collect())
        .collect();
    let judge = |cluster: usize, share: &[String]| {
        let directory = logs.join(format!("cluster-{cluster}"));
        fs::create_dir_all(&directory)?;
        let running = Cluster::start(&ferry, &images, arguments.nodes, &directory)?;
        suite.run(&running, share, &directory)
    };
    let outcomes = thread::scope(|scope| {
        let started: Vec<_> = shares
            .iter()
            .enumerate()
            .map(|(number, share)| scope.spawn(move || judge(number, share)))
            .collect();
        started.into_iter().map(|thread| thread.join().expect("judging does not panic")).collect::<Vec<_>>()
    });
    let outcomes: Vec<Vec<Outcome>> = outcomes.into_iter().collect::<Result<_, _>>()?;
    Ok(outcomes.into_iter().flatten().collect())
}

/// `target/debug/ferry` for `target/debug/examples/conformance`.
fn beside_this() -> anyhow::Result<PathBuf> {
    let this = env::current_exe()?;
    let ferry =
        this.parent().and_then(Path::parent).context("this program is in no directory")?.join("ferry");
    anyhow::ensure!(ferry.is_file(), "there is no {}\nhint: cargo build -p cli, or --ferry", ferry.display());
    Ok(ferry)
}

fn first_line(outcome: &Outcome) -> &str {
    outcome.message.lines().find(|line| !line.trim().is_empty()).unwrap_or("it did not say why")
}

fn read_known() -> anyhow::Result<Known> {
    let path = known_file();
    let text = fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
    Known::parse(&text).map_err(anyhow::Error::msg).with_context(|| format!("{} is wrong", path.display()))
}

fn known_file() -> PathBuf {
    repository().join("tools/kubernetes/e2e/failing.txt")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
