//! Records how a real kube-apiserver answers cases that have no answers yet.
//!
//! ```text
//! cargo run -p testkit --example record -- CASES.jsonl OUT.jsonl
//! ```
//!
//! Cases are as [`testkit::corpus`] tells; answers that they already have are replaced. Each is played twice, and one
//! that does not get the same answers again is not recorded.

use std::path::Path;
use std::{env, fs};

use anyhow::Context as _;
use testkit::{ControlPlane, corpus};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [cases, out] = arguments.as_slice() else { anyhow::bail!("usage: record CASES.jsonl OUT.jsonl") };
    let cases = corpus::read(Path::new(cases)).context("failed to read the cases")?;
    let plane = ControlPlane::builder().start().await?;
    let server = corpus::Server::at(&plane.kubeconfig()).await?;
    let mut recorded = Vec::new();
    for outcome in corpus::record(&server, &cases, 4, &mut recorded).await? {
        eprintln!("{} could not be played:\n    {}", outcome.id, outcome.differences.join("\n    "));
    }
    let text = String::from_utf8(recorded)?;
    let cases = text.lines().map(serde_json::from_str).collect::<Result<Vec<_>, _>>()?;
    let again = corpus::play(&server, &cases, 4).await;
    let is_steady = |id: &serde_json::Value| {
        again.iter().any(|outcome| *id == outcome.id.as_str() && outcome.differences.is_empty())
    };
    for outcome in again.iter().filter(|outcome| !outcome.differences.is_empty()) {
        eprintln!("{} differs from run to run:\n    {}", outcome.id, outcome.differences.join("\n    "));
    }
    let steady: Vec<String> =
        cases.iter().filter(|case| is_steady(&case["id"])).map(|case| format!("{case}\n")).collect();
    fs::write(out, steady.concat()).context("failed to write the recording")?;
    println!("{} cases recorded", steady.len());
    Ok(())
}
