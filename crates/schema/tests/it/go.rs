//! Go programs and modules, pinned in `tools/schema`.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde::Deserialize;

/// The flags with which `testkit` builds Kubernetes, too, so that Go compiles their common packages once.
const TRIMPATH: &str = "-trimpath";
const READONLY: &str = "-mod=readonly";

/// What the oracle says about one document.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Answer {
    pub(crate) error: Option<String>,
    pub(crate) strict: Vec<String>,
    pub(crate) json: String,
    pub(crate) internal: Option<String>,
    pub(crate) returned: Option<String>,
    pub(crate) protobuf: Option<String>,
    pub(crate) from_protobuf: Option<String>,
}

/// A document to ask about.
pub(crate) struct Question {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) body: Vec<u8>,
    /// The body is protobuf, not JSON.
    pub(crate) protobuf: bool,
}

/// Whether there is a Go toolchain. Says so if not, and panics if there has to be one.
pub(crate) fn is_here(test: &str) -> bool {
    static HERE: OnceLock<bool> = OnceLock::new();
    let here =
        *HERE.get_or_init(|| Command::new("go").arg("version").output().is_ok_and(|it| it.status.success()));
    if !here {
        let required = std::env::var_os("FERRY_REQUIRE_KUBERNETES").is_some_and(|value| !value.is_empty());
        assert!(!required, "{test} needs a Go toolchain, which FERRY_REQUIRE_KUBERNETES asks for");
        eprintln!("SKIPPED {test}: there is no Go toolchain");
    }
    here
}

/// The folder of a module that `tools/schema` pins, fetched if need be.
pub(crate) fn module(path: &str) -> PathBuf {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Module {
        dir: PathBuf,
    }
    let output = go(["mod", "download", "-json", path]);
    let module: Module = serde_json::from_slice(&output).expect("go mod download prints JSON");
    module.dir
}

/// What the pack's generator prints.
pub(crate) fn pack_lines() -> Vec<u8> {
    go(["run", TRIMPATH, READONLY, "./pack"])
}

/// Puts all documents to Kubernetes' own decoder, converter and encoders.
pub(crate) fn ask(questions: &[Question]) -> Vec<Answer> {
    let mut oracle = Command::new(oracle())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the oracle was built and starts");
    let mut input = oracle.stdin.take().expect("the oracle's input is a pipe");
    let lines: String = questions.iter().map(line).collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = oracle.wait_with_output().expect("the oracle answers");
    writer.join().expect("writing does not panic").expect("the oracle reads everything");
    assert!(output.status.success(), "the oracle failed: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("the oracle prints UTF-8");
    let answers: Vec<Answer> =
        text.lines().map(|line| serde_json::from_str(line).expect("the oracle prints JSON")).collect();
    assert_eq!(answers.len(), questions.len(), "the oracle answers every question");
    answers
}

fn line(question: &Question) -> String {
    let Question { group, version, kind, body, protobuf } = question;
    let body = base64(body);
    let json = serde_json::json!({"group": group, "version": version, "kind": kind, "body": body, "protobuf": protobuf});
    format!("{json}\n")
}

pub(crate) fn from_base64(text: &str) -> Vec<u8> {
    // The crate's own reader is not public, and Go's JSON for bytes is what it reads.
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().map_while(digit).collect();
    let mut bytes = Vec::new();
    for group in digits.chunks(4) {
        let joined = (0..4).fold(0, |joined, place| joined << 6 | group.get(place).copied().unwrap_or(0));
        bytes.extend_from_slice(&joined.to_be_bytes()[1..group.len()]);
    }
    bytes
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let at = |place: usize| u32::from(group.get(place).copied().unwrap_or(0));
        let joined = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = (joined >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit <= group.len() { char::from(ALPHABET[value]) } else { '=' });
        }
    }
    text
}

/// The oracle, built once a test run; Go keeps what has not changed, and a lock keeps other runs from building at once.
fn oracle() -> &'static Path {
    static ORACLE: OnceLock<PathBuf> = OnceLock::new();
    ORACLE.get_or_init(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
        let folder = cache.expect("XDG_CACHE_HOME or HOME is set").join("ferry/schema");
        fs::create_dir_all(&folder).expect("the cache can be written");
        let lock = File::create(folder.join("lock")).expect("the cache can be written");
        lock.lock().expect("the cache can be locked");
        let path = folder.join("oracle");
        eprintln!("building {} (minutes the first time)", path.display());
        go([
            "build",
            TRIMPATH,
            READONLY,
            "-o",
            path.to_str().expect("the cache's path is UTF-8"),
            "./oracle",
        ]);
        path
    })
}

fn go<const N: usize>(arguments: [&str; N]) -> Vec<u8> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/schema");
    let output = Command::new("go").args(arguments).current_dir(tools).output().expect("go starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "go {} failed:\n{said}", arguments.join(" "));
    output.stdout
}
