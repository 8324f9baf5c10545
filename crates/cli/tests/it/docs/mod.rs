//! What the documents say is so: every command block is run, and prints what stands below it.

mod blocks;

use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::json;
use testkit::Binary;

use crate::administration::site::{Sites, apply};
use crate::terminal::on_terminal;
use blocks::{Step, matches, steps};

/// How long the commands of one document may take together.
const PATIENCE: Duration = Duration::from_secs(300);

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Runs the commands of a document.
fn run(document: &str, kubeconfig: Option<&Path>) -> anyhow::Result<()> {
    run_steps(document, &steps(&std::fs::read_to_string(docs().join(document))?), kubeconfig)
}

/// Runs commands in one shell, in an empty home. Ends everything that they started.
fn run_steps(document: &str, steps: &[Step], kubeconfig: Option<&Path>) -> anyhow::Result<()> {
    anyhow::ensure!(!steps.is_empty(), "{document} has no commands");
    let home = tempfile::tempdir()?;
    let mut script = "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n".to_owned();
    for (i, step) in steps.iter().enumerate() {
        writeln!(
            script,
            "{{ {}\n}} > \"$OUT/{i}\" 2>&1 || {{ echo $? > \"$OUT/failed\"; exit 1; }}",
            step.command
        )?;
    }
    std::fs::write(home.path().join("script"), script)?;
    let out = home.path().join("out");
    std::fs::create_dir(&out)?;
    // Where there is no kubectl to be had, there are no real clusters either, and only those need it.
    let programs = [Some(PathBuf::from(env!("CARGO_BIN_EXE_ferry"))), Binary::Kubectl.ensure().ok()];
    let directories = programs.iter().flatten().filter_map(|program| program.parent());
    let path: Vec<String> = directories.map(|directory| directory.display().to_string()).collect();
    let path = path.join(":");
    let mut command = Command::new("bash");
    command
        .arg(home.path().join("script"))
        .current_dir(home.path())
        .env("PATH", format!("{path}:{}", std::env::var("PATH").unwrap_or_default()))
        .env("HOME", home.path())
        .env("OUT", &out)
        .env_remove("XDG_DATA_HOME")
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null());
    if let Some(kubeconfig) = kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    let mut shell = command.spawn()?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = shell.try_wait()? {
            break Some(status);
        }
        if begun.elapsed() > PATIENCE {
            rustix::process::kill_process(
                rustix::process::Pid::from_child(&shell),
                rustix::process::Signal::TERM,
            )?;
            shell.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut wrong = String::new();
    for (i, step) in steps.iter().enumerate() {
        let printed = std::fs::read_to_string(out.join(i.to_string()));
        let Ok(printed) = printed else { bail!("{document}: `{}` was not reached", step.command) };
        let was_last = !out.join((i + 1).to_string()).exists();
        if was_last && status.is_none_or(|status| !status.success()) {
            let how = if status.is_some() { "failed" } else { "did not end" };
            bail!("{document}: `{}` {how}, and printed:\n{printed}", step.command);
        }
        let lines: Vec<&str> = printed.lines().collect();
        if let Some(expected) = &step.expected
            && !matches(expected, &lines)
        {
            writeln!(
                wrong,
                "`{}` printed:\n{printed}\ninstead of:\n{}\n",
                step.command,
                expected.join("\n")
            )?;
        }
    }
    anyhow::ensure!(wrong.is_empty(), "{document}: {wrong}");
    Ok(())
}

#[test]
fn the_tour() -> anyhow::Result<()> {
    run("tour.md", None)
}

/// What the demonstration says to do next can be done, wherever one is.
#[test]
fn what_to_do_after_the_demonstration() -> anyhow::Result<()> {
    let recorded = std::fs::read_to_string(docs().join("demo.txt"))?;
    let (up, then) = recorded.split_once("and then").expect("what to do next");
    assert!(up.ends_with("  ferry up\n"), "{up}");
    let commands: Vec<&str> = then.lines().skip(1).collect();
    assert!(commands.len() > 5, "{commands:?}");
    let step = |command: &str| Step { command: command.to_owned(), expected: None };
    let fleet = "ferry up > up.log 2>&1 &\nuntil grep -qs 'fleet is ready' up.log; do sleep 0.1; done";
    run_steps("demo.txt", &[step(fleet), step(&commands.join("\n"))], None)
}

/// What has to be there for the questions in the README to have the answers that stand below them.
const BEFORE_THE_README: &str = r#"
```sh
ferry up --worker east --worker west > up.log 2>&1 &
until grep -qs 'fleet is ready' up.log; do sleep 0.1; done
job() { # NAME CPU COMMAND
    printf '%s\n' 'apiVersion: batch/v1' 'kind: Job' "metadata: {name: $1}" 'spec:' '  template:' '    spec:' \
        '      restartPolicy: Never' '      terminationGracePeriodSeconds: 1' '      containers:' \
        "      - {name: c, image: busybox, command: [sh, -c, $3], resources: {requests: {cpu: '$2'}}}"
}
job small 1 'echo done' > job.yaml
ferry cordon west
job render 7 'sleep 600' | ferry submit - --queue fleet
ferry wait render --for running --timeout 120s
ferry uncordon west
job train 7 'sleep 600' | ferry submit - --queue fleet
ferry wait train --for running --timeout 120s
job later 4 'sleep 600' | ferry submit - --queue fleet
```
"#;

/// Questions and answers in the README are those of a fleet with work on it. What is watched goes on until it is stopped.
#[test]
fn the_readme_asks_and_is_answered() -> anyhow::Result<()> {
    let readme = std::fs::read_to_string(docs().join("../README.md"))?;
    let asked = steps(&readme).into_iter().filter(|step| step.command.starts_with("ferry ")).map(|step| {
        let command = step.command.split(" #").next().unwrap_or_default().trim_end().to_owned();
        let expected = step.expected.filter(|lines| !lines.is_empty());
        // How long the Job has waited when it is asked about is nobody's promise.
        let expected = expected.map(|lines| lines.iter().map(|line| line.replace("20s", "…")).collect());
        match command.strip_suffix(" -w") {
            Some(_) => Step { command: format!("timeout 2 {command} || test $? = 124"), expected: None },
            None => Step { command, expected },
        }
    });
    let steps: Vec<Step> = steps(BEFORE_THE_README).into_iter().chain(asked).collect();
    anyhow::ensure!(steps.iter().any(|step| step.expected.is_some()), "the README shows no answer");
    run_steps("README.md", &steps, None)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_clusters() -> anyhow::Result<()> {
    let Some(sites) = Sites::start(&["manager", "east", "west"]).await? else { return Ok(()) };
    let kubeconfig = sites.kubeconfig();
    tokio::task::spawn_blocking(move || run("real-clusters.md", Some(&kubeconfig))).await?
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moving_from_kueue() -> anyhow::Result<()> {
    let Some(sites) = Sites::start(&["manager"]).await? else { return Ok(()) };
    // What Kueue leaves when it is installed, as far as the document touches it.
    let client = sites.client("manager");
    apply(
        &client,
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kueue-system" } }),
    )
    .await?;
    let labels = json!({ "control-plane": "controller-manager" });
    let container = json!({ "name": "manager", "image": "kueue" });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [container] } });
    apply(
        &client,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "kueue-controller-manager", "namespace": "kueue-system" },
            "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": template },
        }),
    )
    .await?;
    let kubeconfig = sites.kubeconfig();
    tokio::task::spawn_blocking(move || run("moving-from-kueue.md", Some(&kubeconfig))).await?
}

/// Every document with commands is one of those above.
#[test]
fn no_document_is_left_out() {
    let run = ["tour.md", "real-clusters.md", "moving-from-kueue.md"];
    for entry in std::fs::read_dir(docs()).expect("documents") {
        let path = entry.expect("a file").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_some_and(|it| it == "md") && !run.contains(&name.as_str()) {
            let text = std::fs::read_to_string(&path).expect("a readable file");
            assert!(steps(&text).is_empty(), "the commands of docs/{name} are run by nobody");
        }
    }
}

/// A text without what differs from one demonstration to the next.
fn shape(text: &str) -> String {
    let text = text.replace("east", "west");
    let digits = text.split(|character: char| character.is_ascii_digit()).filter(|part| !part.is_empty());
    digits.collect::<Vec<_>>().join("#").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The README shows the demonstration that was recorded, and no document names a verb that there is not.
#[test]
fn the_readme_is_true() {
    let readme = std::fs::read_to_string(docs().join("../README.md")).expect("a README");
    let recorded = std::fs::read_to_string(docs().join("demo.txt")).expect("a recording");
    let table = recorded.split("\n\n").next().expect("a table");
    let shown = readme.split("```\n").find(|block| block.starts_with("JOB ")).expect("a table");
    assert_eq!(shape(shown), shape(table), "the README shows another one");

    let help = Command::new(env!("CARGO_BIN_EXE_ferry")).arg("--help").output().expect("ferry runs");
    let help = String::from_utf8(help.stdout).expect("text");
    let verbs: Vec<&str> = help
        .lines()
        .filter(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let documents = ["README.md", "docs/tour.md", "docs/real-clusters.md", "docs/moving-from-kueue.md"];
    let mut count = 0;
    for document in documents {
        let text = std::fs::read_to_string(docs().join("..").join(document)).expect("a document");
        let commands = text.lines().flat_map(|line| match line.strip_prefix("$ ") {
            Some(command) => vec![command],
            None => line.split('`').skip(1).step_by(2).collect(),
        });
        for command in commands.filter_map(|command| command.strip_prefix("ferry ")) {
            let verb = command.split([' ', ',', '\'']).next().unwrap_or_default();
            assert!(verbs.contains(&verb), "{document}: ferry {verb}");
            count += 1;
        }
    }
    assert!(count > 50, "they are found: {count}");
}

/// `crate: name` in the failure semantics names a test that there is.
#[test]
fn tests_that_are_named_exist() {
    let text = std::fs::read_to_string(docs().join("failure-semantics.md")).expect("a document");
    let mut count = 0;
    for cell in text.split('`').skip(1).step_by(2) {
        let Some((package, name)) = cell.split_once(": ") else { continue };
        let directory = docs().join("../crates").join(package);
        assert!(directory.is_dir(), "there is no crate {package}");
        assert!(has_function(&directory, name), "there is no test {name} in {package}");
        count += 1;
    }
    assert!(count >= 14, "each invariant has tests: {count}");
}

fn has_function(directory: &Path, name: &str) -> bool {
    std::fs::read_dir(directory).expect("a directory").any(|entry| {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            return has_function(&path, name);
        }
        let is_code = path.extension().is_some_and(|it| it == "rs");
        is_code && std::fs::read_to_string(&path).expect("code").contains(&format!("fn {name}("))
    })
}

/// The demonstration as it was recorded by `UPDATE_DOCS=1 cargo test -p cli --test it docs::the_demonstration`.
#[test]
fn the_demonstration_is_the_one_that_is_shown() {
    let directory = tempfile::tempdir().expect("a directory");
    let answer = directory.path().join("answer");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_ferry"));
    // As it is called once it is installed; and its progress on a terminal that is narrower than its lines.
    demo.arg0("ferry").arg("demo").env_remove("NO_COLOR");
    let stdout = std::fs::File::create(&answer).expect("a file");
    let (code, progress) = on_terminal(&mut demo, 40, Some(stdout));
    assert_eq!(code, Some(0), "{progress}");
    assert!(progress.contains("[########################]") && progress.contains("\x1b[5A"), "{progress:?}");
    let wraps = progress.split("\x1b[?7l").skip(1).all(|bars| bars.contains("\x1b[?7h"));
    assert!(wraps, "a terminal is left as it was: {progress:?}");
    let printed = std::fs::read_to_string(&answer).expect("an answer");
    let path = docs().join("demo.txt");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &printed).expect("our own tree");
    }
    let shown = std::fs::read_to_string(&path).expect("a recording");
    assert_eq!(shape(&printed), shape(&shown), "docs/demo.txt shows another one");
}
