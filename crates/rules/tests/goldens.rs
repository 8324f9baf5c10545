//! Plays recorded answers of a real API server against our rules and, where Kubernetes can be had, against a real API
//! server, so that neither our rules nor the recording can rot.
//!
//! Further recordings are named in `FERRY_GOLDENS`, separated by colons. The last line is `N passed, M failed` of our
//! rules.

mod chance;
mod judge;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use judge::{Answer, Case, Server, differences, play, without_source_file};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let cases = read_all()?;
    let mut failed = 0;
    if let Some(cluster) = testkit::ControlPlane::builder().for_test().await {
        println!("\nplaying {} cases against a real API server", cases.len());
        failed += run(&mut judge::live::Live::new(cluster.client()).await?, &cases).await;
    }
    println!("\nplaying {} cases against our rules", cases.len());
    failed += run(&mut judge::pure::Pure::default(), &cases).await;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read_all() -> anyhow::Result<Vec<Case>> {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut files: Vec<PathBuf> = vec![own.join("job-api-v1.35.8.jsonl"), own.join("found.jsonl")];
    files.extend(std::env::var_os("FERRY_GOLDENS").iter().flat_map(std::env::split_paths));
    let mut cases = Vec::new();
    for file in files {
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("failed to read {}", file.display()))?;
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let case = serde_json::from_str(line)
                .with_context(|| format!("line {} of {}", i + 1, file.display()))?;
            cases.push(case);
        }
    }
    Ok(cases)
}

/// Prints each difference and the count; returns how many failed.
async fn run(server: &mut impl Server, cases: &[Case]) -> usize {
    let mut failed = 0;
    for (i, case) in cases.iter().enumerate() {
        let got = play(server, &format!("g{i:010x}"), &case.steps).await;
        let want: Vec<Answer> = case.steps.iter().map(|step| comparable(step.expect.clone())).collect();
        let mut lines: Vec<String> =
            want.iter().zip(&got).flat_map(|(want, got)| differences(want, &silent(got))).collect();
        if got.len() != want.len() {
            lines.push(format!("steps: want {} got {}", want.len(), got.len()));
        }
        if !lines.is_empty() {
            failed += 1;
            println!("DIFFERS {}\n  {}", case.id, lines.join("\n  "));
        }
    }
    println!("{} passed, {failed} failed", cases.len() - failed);
    failed
}

/// A recorded answer in the form in which answers are compared.
fn comparable(mut answer: Answer) -> Answer {
    answer.causes.sort();
    answer.message = answer.message.as_deref().map(without_source_file);
    answer
}

/// Recordings have no warnings.
fn silent(answer: &Answer) -> Answer {
    Answer { warnings: Vec::new(), ..answer.clone() }
}
