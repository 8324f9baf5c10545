//! The oracle in `tools/apply-oracle`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// Whether there is a Go toolchain. Says so if not, and panics if there has to be one.
pub(crate) fn is_here(test: &str) -> bool {
    static HERE: OnceLock<bool> = OnceLock::new();
    let here =
        *HERE.get_or_init(|| Command::new("go").arg("version").output().is_ok_and(|it| it.status.success()));
    if !here {
        let required = std::env::var_os("FERRY_REQUIRE_KUBERNETES").is_some_and(|value| !value.is_empty());
        assert!(!required, "{test} needs a Go toolchain, which FERRY_REQUIRE_KUBERNETES asks for");
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: there is no Go toolchain");
    }
    here
}

/// Puts all questions to Kubernetes' own code.
pub(crate) fn ask(questions: &[Value]) -> Vec<Value> {
    let mut oracle = Command::new(oracle())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the oracle was built and starts");
    let mut input = oracle.stdin.take().expect("the oracle's input is a pipe");
    let mut lines = questions.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    lines.push('\n');
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = oracle.wait_with_output().expect("the oracle answers");
    writer.join().expect("writing does not panic").expect("the oracle reads everything");
    assert!(output.status.success(), "the oracle failed: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("the oracle prints UTF-8");
    let answers: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("the oracle prints JSON")).collect();
    assert_eq!(answers.len(), questions.len(), "the oracle answers every question");
    answers
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/apply-oracle")
}

/// The oracle, built once a test run; Go keeps what has not changed.
fn oracle() -> &'static Path {
    static ORACLE: OnceLock<PathBuf> = OnceLock::new();
    ORACLE.get_or_init(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
        let path = cache.expect("XDG_CACHE_HOME or HOME is set").join("ferry/apply/oracle");
        let _ = writeln!(std::io::stderr(), "building {} (a minute the first time)", path.display());
        let mut build = Command::new("go");
        build.args(["build", "-trimpath", "-buildvcs=false", "-o"]).arg(&path).arg(".").current_dir(source());
        let output = build.env("CGO_ENABLED", "0").env("GOWORK", "off").output().expect("go starts");
        assert!(output.status.success(), "go build failed:\n{}", String::from_utf8_lossy(&output.stderr));
        path
    })
}
