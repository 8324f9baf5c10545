//! Go programs and modules, pinned in `tools/schema`.

use std::path::PathBuf;
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use testkit::go::{Program, Tools};

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
pub(crate) fn is_here() -> bool {
    Tools::for_test("schema").is_some()
}

fn tools() -> Tools {
    Tools::for_test("schema").expect("a test asks first whether there is Go")
}

/// The folder of a module that `tools/schema` pins, fetched if need be.
pub(crate) fn module(path: &str) -> PathBuf {
    tools().module(path)
}

/// What the pack's generator prints.
pub(crate) fn pack_lines() -> Vec<u8> {
    tools().go(["run", "-trimpath", "-mod=readonly", "./pack"])
}

/// Puts all documents to Kubernetes' own decoder, converter and encoders.
pub(crate) fn ask(questions: &[Question]) -> Vec<Answer> {
    static ORACLE: OnceLock<Program> = OnceLock::new();
    let oracle = ORACLE.get_or_init(|| tools().program("./oracle").expect("the oracle is built"));
    let answers = oracle.ask(questions.iter().map(line));
    answers.iter().map(|answer| serde_json::from_str(answer).expect("the oracle prints JSON")).collect()
}

fn line(question: &Question) -> String {
    let Question { group, version, kind, body, protobuf } = question;
    let body = STANDARD.encode(body);
    serde_json::json!({"group": group, "version": version, "kind": kind, "body": body, "protobuf": protobuf})
        .to_string()
}

pub(crate) fn from_base64(text: &str) -> Vec<u8> {
    STANDARD.decode(text).expect("the oracle writes base64")
}
