//! What goes on until it is told to stop: how it looks, and how it ends.

use std::io::{BufRead as _, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::terminal::on_terminal;
use crate::verbs::{Fleet, command};

/// A command that goes on, and the lines that it prints.
struct Watching {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watching {
    fn start(command: &mut Command) -> Watching {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("ferry starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Watching { child, lines }
    }

    /// The next lines, up to one with this in it.
    fn until(&mut self, text: &str) -> Vec<String> {
        let mut seen = Vec::new();
        for line in &mut self.lines {
            seen.push(line.expect("text"));
            if seen.last().is_some_and(|line| line.contains(text)) {
                return seen;
            }
        }
        panic!("{text} never came: {seen:?}")
    }

    /// Its exit status when the user has had enough.
    fn interrupted(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("a signal");
        self.child.wait().expect("ferry ends").code()
    }
}

fn ferry(fleet: &Fleet, arguments: &[&str]) -> Command {
    let mut command = command(fleet.home.path());
    command.args(arguments);
    command
}

#[test]
fn watching_and_what_ends_it() {
    let fleet = Fleet::start();
    a_line_for_each_change(&fleet);
    exit_statuses_of_interruptions(&fleet);
    events_of_a_job_that_has_no_worker_yet(&fleet);
    nobody_reads(&fleet);
    colour_only_on_terminals(&fleet);
}

fn a_line_for_each_change(fleet: &Fleet) {
    let mut watching = Watching::start(&mut ferry(fleet, &["get", "jobs", "-w"]));
    let mut json = Watching::start(&mut ferry(fleet, &["get", "jobs", "-w", "-o", "json"]));
    let headings = watching.until("STATUS").pop().expect("headings");
    let mut some =
        Watching::start(&mut ferry(fleet, &["get", "jobs", "-w", "--status", "running", "--queue", "fleet"]));
    some.until("STATUS");
    fleet.submit("watched", "100m", "sleep 3");
    let mut lines = watching.until("Complete");
    // Who is slower would not see its end before it is deleted.
    let chosen = some.until("Complete");
    assert_eq!(fleet.run(&["cancel", "watched"]).expect(0), "watched is gone\n");
    lines.extend(watching.until("Deleted"));

    assert!(chosen[..chosen.len() - 1].iter().all(|line| line.contains(" Running ")), "{chosen:?}");
    assert_eq!(some.interrupted(), Some(130));

    let column = headings.find("STATUS").expect("a column");
    let statuses: Vec<&str> =
        lines.iter().map(|line| line[column..].split_whitespace().next().expect("a status")).collect();
    let has = |status| statuses.contains(&status);
    assert!(has("Running") && has("Complete") && statuses.last() == Some(&"Deleted"), "{statuses:?}");
    let age = headings.find("AGE").expect("a column");
    for (line, next) in lines.iter().zip(lines.iter().skip(1)) {
        assert_ne!(line[..age], next[..age], "a line says something new: {lines:?}");
    }
    let last: serde_json::Value = serde_json::from_str(&json.until("\"Deleted\"").pop().expect("a line"))
        .expect("an object in each line");
    assert_eq!((&last["name"], &last["queue"]), (&"watched".into(), &"fleet".into()));
    assert_eq!((watching.interrupted(), json.interrupted()), (Some(130), Some(130)));
}

fn exit_statuses_of_interruptions(fleet: &Fleet) {
    fleet.submit("long", "100m", "echo it begins; sleep 300");
    let mut logs = Watching::start(&mut ferry(fleet, &["logs", "long", "-f", "--no-prefix"]));
    logs.until("it begins");
    assert_eq!(logs.interrupted(), Some(130));
    let mut top = Watching::start(&mut ferry(fleet, &["top", "-w"]));
    top.until("long");
    assert_eq!(top.interrupted(), Some(130));
    let mut events = Watching::start(&mut ferry(fleet, &["events", "long", "-w"]));
    events.until("CreatedWorkload");
    assert_eq!(events.interrupted(), Some(130));
    // One of both is there, so that it says something before it waits for the other.
    let mut wait = Watching::start(&mut ferry(fleet, &["wait", "long", "--for", "running"]));
    wait.until("long is Running");
    assert!(wait.child.wait().expect("ferry ends").success());
    fleet.submit("short", "100m", "true");
    let mut wait = Watching::start(&mut ferry(fleet, &["wait", "short", "long"]));
    wait.until("short is Complete");
    assert_eq!(wait.interrupted(), Some(130));
}

/// What is told on a worker is shown although nobody knew of the worker when the watch began.
fn events_of_a_job_that_has_no_worker_yet(fleet: &Fleet) {
    fleet.submit("later", "100m", "sleep 300");
    fleet.run(&["hold", "later"]).expect(0);
    let is_nowhere = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let shown = fleet.run(&["get", "jobs", "later", "-o", "json"]).expect(0);
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        let item = &shown["items"][0];
        item["status"] == "Held" && item["cluster"].is_null()
    });
    assert!(is_nowhere, "what is held is on no worker");
    let mut events = Watching::start(&mut ferry(fleet, &["events", "later", "-w"]));
    events.until("CreatedWorkload");
    fleet.run(&["release", "later"]).expect(0);
    let seen = events.until("SuccessfulCreate");
    let last = seen.last().expect("a line");
    assert!(last.contains(" east ") || last.contains(" west "), "{seen:?}");
    assert_eq!(events.interrupted(), Some(130));
    fleet.run(&["cancel", "later"]).expect(0);
}

/// Who reads a line and goes ends what would go on; what has an end of its own just goes unread.
fn nobody_reads(fleet: &Fleet) {
    for arguments in
        [["get", "jobs", "-w"].as_slice(), &["top", "-w"], &["logs", "long", "-f"], &["events", "-w"]]
    {
        let mut watching = Watching::start(&mut ferry(fleet, arguments));
        watching.lines.next().expect("a line").expect("text");
        drop(watching.lines);
        assert!(watching.child.wait().expect("ferry ends").success(), "{arguments:?}");
    }
    for arguments in [["get", "jobs"].as_slice(), &["describe", "long"], &["completion", "bash"], &["crds"]] {
        let mut command = ferry(fleet, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("ferry starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("ferry ends");
        assert_eq!(
            (output.status.code(), output.stderr.as_slice()),
            (Some(0), b"".as_slice()),
            "{arguments:?}"
        );
    }
}

fn colour_only_on_terminals(fleet: &Fleet) {
    let get = || ferry(fleet, &["get", "jobs", "short"]);
    let (code, shown) = on_terminal(get().env_remove("NO_COLOR"), 80, None);
    assert!(code == Some(0) && shown.contains("\x1b[32mComplete\x1b[0m"), "{shown:?}");
    let (code, shown) = on_terminal(get().env("NO_COLOR", "1"), 80, None);
    assert!(code == Some(0) && shown.contains("Complete") && !shown.contains('\x1b'), "{shown:?}");
    let piped = get().env_remove("NO_COLOR").output().expect("ferry runs");
    assert!(!String::from_utf8_lossy(&piped.stdout).contains('\x1b'));
}
