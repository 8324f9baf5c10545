//! The oracle in `tools/apply-oracle`.

use std::sync::OnceLock;

use serde_json::Value;
use testkit::go::{Program, Tools};

/// Whether there is a Go toolchain. Says so if not, and panics if there has to be one.
pub(crate) fn is_here() -> bool {
    Tools::for_test("apply-oracle").is_some()
}

/// Puts all questions to Kubernetes' own code.
pub(crate) fn ask(questions: &[Value]) -> Vec<Value> {
    static ORACLE: OnceLock<Program> = OnceLock::new();
    let oracle = ORACLE.get_or_init(|| {
        let tools = Tools::for_test("apply-oracle").expect("a test asks first whether there is Go");
        tools.program(".").expect("the oracle is built")
    });
    let answers = oracle.ask(questions.iter().map(Value::to_string));
    answers.iter().map(|answer| serde_json::from_str(answer).expect("the oracle prints JSON")).collect()
}
