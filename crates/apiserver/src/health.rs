//! `/healthz`, `/livez` and `/readyz`: whether the server is well, as a whole and part by part (1.8).

use http::{HeaderName, HeaderValue, StatusCode, request};
use store::Readiness;

use crate::answer::{self, Answer};
use crate::cluster::Cluster;
use crate::request::Query;

const NO_SNIFFING: HeaderName = HeaderName::from_static("x-content-type-options");

/// A part that can be asked about by its name. The store has the name that clients know for it.
struct Check {
    name: &'static str,
    /// What is wrong, if anything is.
    problem: Option<String>,
}

/// Answers a request below one of the three places.
pub(crate) fn answer(cluster: &Cluster, place: &str, rest: &[&str], head: &request::Parts) -> Answer {
    let checks = checks(place, &cluster.store().readiness());
    let query = Query::read(head.uri.query().unwrap_or(""));
    match rest {
        [] => all(place, &checks, &query),
        [name] => match checks.iter().find(|check| check.name == *name) {
            Some(Check { problem: None, .. }) => answer::text(StatusCode::OK, "ok"),
            Some(Check { problem: Some(why), .. }) => {
                answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
            }
            None => answer::text(StatusCode::NOT_FOUND, "404 page not found\n"),
        },
        _ => answer::text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

/// The parts that can be asked about below one of the three places.
pub(crate) fn parts(place: &str) -> impl Iterator<Item = &'static str> {
    checks(place, &Readiness::Ready).into_iter().map(|check| check.name)
}

fn checks(place: &str, store: &Readiness) -> Vec<Check> {
    let problem = match store {
        Readiness::Ready => None,
        other => Some(format!("the store takes no writes: {other:?}")),
    };
    let mut checks = vec![
        Check { name: "ping", problem: None },
        Check { name: "log", problem: None },
        Check { name: "etcd", problem: problem.clone() },
    ];
    if place == "readyz" {
        checks.push(Check { name: "etcd-readiness", problem });
    }
    checks
}

/// All at once: each in a line for who wants to know, or if one of them is not well.
fn all(place: &str, checks: &[Check], query: &Query) -> Answer {
    let mut lines = Vec::new();
    let mut unknown: Vec<&str> = query.all("exclude").collect();
    unknown.sort_unstable();
    unknown.dedup();
    let mut is_well = true;
    for Check { name, problem } in checks {
        if unknown.contains(name) {
            unknown.retain(|known| known != name);
            lines.push(format!("[+]{name} excluded: ok\n"));
        } else if let Some(why) = problem {
            tracing::warn!(check = name, why, "the server is not well");
            is_well = false;
            lines.push(format!("[-]{name} failed: reason withheld\n"));
        } else {
            lines.push(format!("[+]{name} ok\n"));
        }
    }
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(|name| types::go::quote(name)).collect();
        let names = names.join(", ");
        lines.push(format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    let text = lines.concat();
    let mut answer = match (is_well, query.get("verbose")) {
        (false, _) => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{text}{place} check failed\n"))
        }
        (true, None) => answer::text(StatusCode::OK, "ok"),
        (true, Some(_)) => answer::text(StatusCode::OK, format!("{text}{place} check passed\n")),
    };
    answer.headers_mut().insert(NO_SNIFFING, HeaderValue::from_static("nosniff"));
    answer
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn check(store: &Readiness, query: &str, code: u16, expected: &str) {
        let answer = all("readyz", &checks("readyz", store), &Query::read(query));
        assert_eq!(answer.status().as_u16(), code, "{query}");
        let bytes = answer.into_body().collect().await.expect("bodies do not fail").to_bytes();
        assert_eq!(String::from_utf8_lossy(&bytes), expected, "{query}");
    }

    #[tokio::test]
    async fn rule_1_8_parts_are_told_of_one_by_one() {
        let failed = Readiness::Failed { reason: "gone".into() };
        check(&Readiness::Ready, "", 200, "ok").await;
        check(
            &Readiness::Ready,
            "verbose",
            200,
            "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]etcd-readiness ok\nreadyz check passed\n",
        )
        .await;
        check(
            &failed,
            "",
            500,
            "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n[-]etcd-readiness failed: reason withheld\n\
             readyz check failed\n",
        )
        .await;
        check(
            &failed,
            "verbose=1&exclude=etcd&exclude=etcd-readiness&exclude=x",
            200,
            "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]etcd-readiness excluded: ok\n\
             warn: some health checks cannot be excluded: no matches for \"x\"\nreadyz check passed\n",
        )
        .await;
    }
}
