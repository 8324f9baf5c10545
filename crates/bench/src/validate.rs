//! A verdict about a Job: our rules as a library, beside what one can use without Ferry, a dry-run create on a real
//! kube-apiserver.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use http::Request;
use kube::{Client, client::Body};
use rules::{
    job::{Settings, endpoints},
    meta::system::Identity,
    wire,
    write::Refused,
};
use serde_json::Value;
use testkit::ControlPlane;

use crate::{
    report::{Report, Samples},
    usage::Cpu,
};

/// Jobs that were recorded for the tests of `rules`: good ones and such with every kind of mistake.
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rules/tests/data/job-api-v1.35.8.jsonl");

const NAMESPACE: &str = "default";

/// How often each side judges every Job. The first rounds warm caches and connections and are not counted; ours goes
/// round more often, because the kernel counts processor time in hundredths of a second.
const WARM_UP: usize = 2;
const OUR_ROUNDS: usize = 200;
const THEIR_ROUNDS: usize = 8;

pub(crate) async fn run() -> anyhow::Result<Report> {
    let jobs = read_jobs(Path::new(CASES))?;
    eprintln!("starting kube-apiserver");
    let cluster = ControlPlane::builder().start().await?;
    let client = cluster.client();

    eprintln!("{} Jobs, {THEIR_ROUNDS} times on kube-apiserver", jobs.len());
    let mut their_codes = Vec::new();
    for _ in 0..WARM_UP {
        their_codes = ask_all(&client, &jobs, &mut Vec::new()).await?;
    }
    let (mut theirs, before) = (Vec::new(), Cpu::of(&cluster.process_ids())?);
    for _ in 0..THEIR_ROUNDS {
        ask_all(&client, &jobs, &mut theirs).await?;
    }
    let their_cpu = Cpu::of(&cluster.process_ids())? - before;
    let their_count = u32::try_from(theirs.len())?;
    drop(cluster); // so that it does not compete with what is measured next

    eprintln!("{} Jobs, {OUR_ROUNDS} times by our rules", jobs.len());
    let mut our_codes = Vec::new();
    for _ in 0..WARM_UP {
        our_codes = judge_all(&jobs, &mut Vec::new());
    }
    let (mut ours, me) = (Vec::new(), [std::process::id()]);
    let before = Cpu::of(&me)?;
    for _ in 0..OUR_ROUNDS {
        judge_all(&jobs, &mut ours);
    }
    let our_cpu = Cpu::of(&me)? - before;
    let our_count = u32::try_from(ours.len())?;

    let mut agreed = 0;
    for ((job, ours), theirs) in jobs.iter().zip(&our_codes).zip(&their_codes) {
        if ours == theirs {
            agreed += 1;
        } else {
            eprintln!("ours {ours}, theirs {theirs}: {}", String::from_utf8_lossy(job));
        }
    }
    let refused = their_codes.iter().filter(|code| **code != 201).count();
    let (ours, theirs) = (Samples::new(ours), Samples::new(theirs));
    let about = format!("a verdict about each of {} Jobs ({refused} of them refused)", jobs.len());
    Ok(Report::new(
        "validate",
        about,
        "rules, in this process",
        "kube-apiserver v1.35.8, POST with dryRun=All over TLS",
    )
    .measure("one at a time, median", ours.percentile(50), theirs.percentile(50))
    .measure("one at a time, 99 of 100 within", ours.percentile(99), theirs.percentile(99))
    .measure("processor time of the judge, mean", our_cpu / our_count, their_cpu / their_count)
    .note(format!("the verdicts agree on {agreed} of {} Jobs", jobs.len()))
    .note("a dry run does not reach the store, which would refuse a Job that brings a resourceVersion")
    .note("ours is the rules alone, from bytes to bytes; theirs is also TLS, authentication and admission"))
}

/// The body of every recorded create, except where it is the kind that is wrong: rules are for Jobs.
fn read_jobs(path: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
    let mut jobs = Vec::new();
    for line in text.lines() {
        let case: Value = serde_json::from_str(line)?;
        let body = &case["steps"][0]["body"];
        anyhow::ensure!(body.is_object(), "{} does not begin with a body", case["id"]);
        if body["kind"] == "Job" {
            jobs.push(body.to_string().replace("NAME", "bench").into_bytes());
        }
    }
    Ok(jobs)
}

/// Judges every Job by our rules; the codes that an API server would answer with.
fn judge_all(jobs: &[Vec<u8>], times: &mut Vec<Duration>) -> Vec<u16> {
    let judge = |job: &Vec<u8>| {
        let started = Instant::now();
        let (code, answer) = judge(job);
        std::hint::black_box(answer);
        times.push(started.elapsed());
        code
    };
    jobs.iter().map(judge).collect()
}

/// A verdict with its text, from the bytes of a request.
fn judge(job: &[u8]) -> (u16, String) {
    let decoded = match schema::decode(wire::named(wire::JOB), job) {
        Ok(decoded) => decoded,
        Err(error) => return (400, error.to_string()),
    };
    let identity = Identity {
        uid: "00000000-0000-0000-0000-000000000000".to_owned(),
        now: jiff::Timestamp::UNIX_EPOCH,
        suffix: "xxxxx".to_owned(),
    };
    match endpoints::create(&decoded.value, NAMESPACE, identity, &Settings::default()) {
        Ok(accepted) => (201, accepted.object.to_string()),
        Err(refused) => {
            let code = match &refused {
                Refused::BadRequest(_) => 400,
                Refused::Conflict(_) => 409,
                Refused::Invalid(_) => 422,
                Refused::Internal(_) => 500,
            };
            (code, refused.to_string())
        }
    }
}

/// Asks an API server about every Job, one after the other; its codes.
async fn ask_all(client: &Client, jobs: &[Vec<u8>], times: &mut Vec<Duration>) -> anyhow::Result<Vec<u16>> {
    let mut codes = Vec::new();
    for job in jobs {
        let uri = format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs?dryRun=All");
        let request =
            Request::post(uri).header("Content-Type", "application/json").body(Body::from(job.clone()))?;
        let started = Instant::now();
        let response = client.send(request).await?;
        codes.push(response.status().as_u16());
        response.into_body().collect_bytes().await?;
        times.push(started.elapsed());
    }
    Ok(codes)
}
