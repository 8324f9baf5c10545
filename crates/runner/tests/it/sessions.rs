//! Commands in containers that run, and logs while they are written.

use std::net::Ipv4Addr;

use futures::{StreamExt as _, TryStreamExt as _};
use runner::{LogOptions, Streams, Unreachable};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::bed::Bed;

#[tokio::test]
async fn commands_run_in_the_container_with_its_streams() {
    let Some(bed) = Bed::new("exec").await else { return };
    let local = bed.local(|_| {}).await;
    let own = json!({ "env": [{ "name": "OWN", "value": "variable" }], "workingDir": "/var/tmp" });
    bed.create(bed.script("exec", "touch /var/tmp/mark; exec sleep 1000", own, json!({}))).await;
    bed.until_phase("exec", "Running").await;
    let (code, text) = bed
        .exec(
            &local,
            "exec",
            "echo $OWN; pwd; until ls mark; do sleep 0.1; done 2>/dev/null; cat /proc/1/comm; exit 5",
        )
        .await;
    assert_eq!((code, text.as_str()), (5, "variable\n/var/tmp\nmark\nsleep\n"));

    let command: Vec<String> = ["sh", "-c", "cat; echo err >&2"].map(str::to_owned).into();
    let (mut typing, input) = tokio::io::duplex(1024);
    let (output, mut out) = tokio::io::duplex(1024);
    let (errors, mut err) = tokio::io::duplex(1024);
    let streams = Streams {
        input: Some(Box::new(input)),
        output: Some(Box::new(output)),
        errors: Some(Box::new(errors)),
        ..Streams::default()
    };
    let key = bed.key("exec");
    let talk = async {
        typing.write_all(b"typed").await.expect("room");
        drop(typing);
        let (mut text, mut error) = (String::new(), String::new());
        out.read_to_string(&mut text).await.expect("text");
        err.read_to_string(&mut error).await.expect("text");
        (text, error)
    };
    let (code, (text, error)) = tokio::join!(local.node.exec(&key, "main", &command, streams), talk);
    assert_eq!((code.expect("it ran"), text.as_str(), error.as_str()), (0, "typed", "err\n"));

    let command: Vec<String> = ["no-such-program".to_owned()].into();
    let code = local.node.exec(&key, "main", &command, Streams::default()).await.expect("it ended");
    assert_eq!(code, 127);
    assert!(local.node.exec(&bed.key("other"), "main", &command, Streams::default()).await.is_err());
}

#[tokio::test]
async fn a_terminal_is_one_and_has_a_size() {
    let Some(bed) = Bed::new("tty").await else { return };
    let local = bed.local(|_| {}).await;
    bed.create(bed.script("tty", "exec sleep 1000", json!({}), json!({}))).await;
    bed.until_phase("tty", "Running").await;
    let command: Vec<String> =
        ["sh", "-c", "test -t 0 && echo terminal; read line; echo got $line; stty size"]
            .map(str::to_owned)
            .into();
    let (mut typing, input) = tokio::io::duplex(1024);
    let (output, mut out) = tokio::io::duplex(1 << 16);
    let (resize, sizes) = tokio::sync::mpsc::channel(1);
    let streams = Streams {
        input: Some(Box::new(input)),
        output: Some(Box::new(output)),
        terminal: true,
        sizes: Some(sizes),
        ..Streams::default()
    };
    let key = bed.key("tty");
    let talk = async {
        resize.send((100, 40)).await.expect("a listener");
        let mut text = String::new();
        let mut buffer = [0; 1024];
        while !text.contains("terminal") {
            let count = out.read(&mut buffer).await.expect("text");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        typing.write_all(b"words\n").await.expect("room");
        out.read_to_string(&mut text).await.expect("text");
        text
    };
    let (code, text) = tokio::join!(local.node.exec(&key, "main", &command, streams), talk);
    assert_eq!(code.expect("it ran"), 0);
    assert!(text.contains("got words") && text.contains("40 100"), "{text}");
}

#[tokio::test]
async fn logs_are_followed_until_the_container_ends() {
    let Some(bed) = Bed::new("follow").await else { return };
    let local = bed.local(|_| {}).await;
    let script = "echo one; until [ -e /var/tmp/go ]; do sleep 0.05; done; echo two >&2; echo three";
    bed.create(bed.script("follow", script, json!({}), json!({}))).await;
    bed.until_phase("follow", "Running").await;
    let options = LogOptions { follow: true, timestamps: true, ..LogOptions::default() };
    let mut lines = Box::pin(local.node.logs(&bed.key("follow"), "main", options).expect("a log"));
    let first = lines.next().await.expect("a line").expect("a line");
    assert!(String::from_utf8_lossy(&first).ends_with("Z one\n"), "{first:?}");
    bed.exec(&local, "follow", "touch /var/tmp/go").await;
    let rest: Vec<bytes::Bytes> = lines.try_collect().await.expect("lines");
    let rest = String::from_utf8(rest.concat()).expect("text");
    assert!(rest.contains(" two\n") && rest.contains(" three\n"), "{rest}");
    let tail = LogOptions { tail: Some(1), stream: Some("stdout".to_owned()), ..LogOptions::default() };
    assert_eq!(bed.log(&local, "follow", "main", tail).await, "three\n");
}

#[tokio::test]
async fn the_input_of_a_container_can_be_written_and_ends_with_the_first_writer() {
    let Some(bed) = Bed::new("attach").await else { return };
    let local = bed.local(|_| {}).await;
    let script = "echo hello; while read line; do echo got $line; done; echo end";
    let own = json!({ "command": ["sh", "-c", script], "stdin": true, "stdinOnce": true });
    bed.create(bed.script("attach", "", own, json!({}))).await;
    bed.until_phase("attach", "Running").await;
    // What was said before anybody came is not lost.
    let said = LogOptions { follow: true, ..LogOptions::default() };
    let mut log = std::pin::pin!(local.node.logs(&bed.key("attach"), "main", said).expect("a log"));
    assert_eq!(log.next().await.expect("a line").expect("it is read"), "hello\n");
    let (mut typing, input) = tokio::io::duplex(1024);
    let (output, mut out) = tokio::io::duplex(1024);
    let streams =
        Streams { input: Some(Box::new(input)), output: Some(Box::new(output)), ..Streams::default() };
    let key = bed.key("attach");
    let talk = async {
        typing.write_all(b"one\ntwo\n").await.expect("room");
        drop(typing);
        let mut text = String::new();
        out.read_to_string(&mut text).await.expect("text");
        text
    };
    let (attached, text) = tokio::join!(local.node.attach(&key, "main", streams), talk);
    attached.expect("a container that ran");
    assert_eq!(text, "hello\ngot one\ngot two\nend\n");
    bed.until_phase("attach", "Succeeded").await;
}

#[tokio::test]
async fn ports_of_a_pod_are_those_of_the_machine_whose_network_it_is_in() {
    let Some(bed) = Bed::new("ports").await else { return };
    let local = bed.local(|_| {}).await;
    let pod = bed.create(bed.script("ports", "exec sleep 1000", json!({}), json!({}))).await;
    let uid = pod.metadata.uid.expect("a uid");
    bed.until_phase("ports", "Running").await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let key = bed.key("ports");
    let (ours, theirs) = tokio::join!(listener.accept(), local.node.connect(&key, &uid, port));
    let ((mut ours, _), mut theirs) = (ours.expect("a connection"), theirs.expect("a connection"));
    theirs.write_all(b"hello").await.expect("written");
    let mut heard = [0; 5];
    ours.read_exact(&mut heard).await.expect("read");
    assert_eq!(&heard, b"hello");
    drop(listener);
    let refused = local.node.connect(&key, &uid, port).await;
    assert!(matches!(refused, Err(Unreachable::Connect { .. })), "{refused:?}");
    let stranger = local.node.connect(&key, "another", port).await;
    assert!(matches!(stranger, Err(Unreachable::Nothing { .. })), "{stranger:?}");
}
