//! What became of tests, from the report that ginkgo writes.

use serde_json::Value;

/// What became of one test.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The whole name of the test.
    pub name: String,
    /// How it ended.
    pub state: State,
    /// How long it took.
    pub seconds: f64,
    /// What it said, if it did not pass.
    pub message: String,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// As it should.
    Passed,
    /// Otherwise.
    Failed,
    /// It found that it cannot be run here.
    Skipped,
}

/// The tests of a report that were selected, in the order of the report.
pub(super) fn outcomes(report: &Value) -> Vec<Outcome> {
    let suites = report.as_array().into_iter().flatten();
    suites
        .flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten())
        .filter_map(outcome)
        .collect()
}

/// `None` for what is no test (what comes before all of them), and for those that were not selected.
fn outcome(spec: &Value) -> Option<Outcome> {
    if spec["LeafNodeType"] != "It" {
        return None;
    }
    let message = spec["Failure"]["Message"].as_str().unwrap_or_default();
    let state = match spec["State"].as_str()? {
        "passed" => State::Passed,
        // Those that were not selected are skipped without a word.
        "skipped" if message.is_empty() => return None,
        "skipped" | "pending" => State::Skipped,
        _ => State::Failed,
    };
    Some(Outcome {
        name: name(spec),
        state,
        seconds: spec["RunTime"].as_f64().unwrap_or_default() / 1e9,
        message: message.to_owned(),
    })
}

/// Why no test could begin, if so.
pub(super) fn beginning(report: &Value) -> Option<&str> {
    let suites = report.as_array().into_iter().flatten();
    let mut specs = suites.flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten());
    let before =
        specs.find(|spec| spec["LeafNodeType"] == "SynchronizedBeforeSuite" && spec["State"] == "failed")?;
    before["Failure"]["Message"].as_str()
}

/// The names of all tests that a report of a dry run has selected.
pub(super) fn selected(report: &Value) -> Vec<String> {
    let suites = report.as_array().into_iter().flatten();
    let specs = suites.flat_map(|suite| suite["SpecReports"].as_array().into_iter().flatten());
    specs.filter(|spec| spec["LeafNodeType"] == "It" && spec["State"] == "passed").map(name).collect()
}

fn name(spec: &Value) -> String {
    let above = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
    let texts = above.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
}

/// What a test is about, in brief: `[sig-apps] Job should …` belongs to `sig-apps`.
pub fn group_of(name: &str) -> &str {
    name.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or("others", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(state: &str, message: &str) -> Value {
        json!({
            "LeafNodeType": "It", "LeafNodeText": "should run [Conformance]", "ContainerHierarchyTexts": ["[sig-apps] Job"],
            "State": state, "RunTime": 1_500_000_000, "Failure": { "Message": message },
        })
    }

    #[test]
    fn a_report_tells_what_became_of_the_tests_that_were_selected() {
        let before = json!({ "LeafNodeType": "SynchronizedBeforeSuite", "State": "passed" });
        let specs = [
            before,
            spec("passed", ""),
            spec("skipped", ""),
            spec("skipped", "needs two nodes"),
            spec("panicked", "nil"),
        ];
        let report = json!([{ "SpecReports": specs }]);
        let states: Vec<State> = outcomes(&report).iter().map(|outcome| outcome.state).collect();
        assert_eq!(states, [State::Passed, State::Skipped, State::Failed]);
        let first = &outcomes(&report)[0];
        assert_eq!((first.name.as_str(), first.seconds), ("[sig-apps] Job should run [Conformance]", 1.5));
        assert_eq!(selected(&report), ["[sig-apps] Job should run [Conformance]"]);
        assert_eq!(group_of(&first.name), "sig-apps");
        assert_eq!(beginning(&report), None);
        let failed = json!({ "LeafNodeType": "SynchronizedBeforeSuite", "State": "failed", "Failure": { "Message": "no node" } });
        assert_eq!(beginning(&json!([{ "SpecReports": [failed] }])), Some("no node"));
    }
}
