//! What an API server was asked to do, by its own count.

use std::collections::BTreeMap;

use anyhow::Context as _;
use kube::Client;

/// How many requests there were, by what they were: `PATCH workloads/status`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Requests(BTreeMap<String, u64>);

impl Requests {
    /// Since the API server started.
    pub(super) async fn so_far(client: &Client) -> anyhow::Result<Requests> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text =
            client.request_text(request).await.context("failed to read the metrics of the API server")?;
        Ok(Requests::read(&text))
    }

    fn read(metrics: &str) -> Requests {
        let mut counts = BTreeMap::new();
        for line in metrics.lines() {
            let Some(rest) = line.strip_prefix("apiserver_request_total{") else { continue };
            let Some((labels, count)) = rest.rsplit_once("} ") else { continue };
            let label = |name: &str| {
                let from = labels.find(&format!("{name}=\""))? + name.len() + 2;
                labels.get(from..)?.split('"').next()
            };
            let (Some(verb), Some(resource)) = (label("verb"), label("resource")) else { continue };
            let resource = match label("subresource") {
                Some(part) if !part.is_empty() => format!("{resource}/{part}"),
                _ => resource.to_owned(),
            };
            // Counts are floating point by nature, and whole.
            let Ok(count) = count.parse::<f64>() else { continue };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are whole")]
            let count = count as u64;
            *counts.entry(format!("{verb} {resource}")).or_insert(0) += count;
        }
        Requests(counts)
    }

    /// What was asked since `earlier`, for each of `number`, the most frequent first. Watches and leases, which are not
    /// asked for more often when there is more to do, and what was asked less than once in a hundred are left out.
    pub(super) fn per(&self, earlier: &Requests, number: usize) -> String {
        let since = |(what, count): (&String, &u64)| {
            let count = count.saturating_sub(earlier.0.get(what).copied().unwrap_or(0));
            (count, what.clone())
        };
        let mut all: Vec<(u64, String)> = self.0.iter().map(since).collect();
        all.retain(|(count, what)| {
            let standing =
                ["WATCH", "LIST"].iter().any(|verb| what.starts_with(verb)) || what.contains("leases");
            !standing && usize::try_from(*count).unwrap_or(usize::MAX) * 100 > number
        });
        all.sort_by(|one, other| other.cmp(one));
        #[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
        let each = |count: u64| count as f64 / number.max(1) as f64;
        let parts: Vec<String> =
            all.iter().map(|(count, what)| format!("{:.2} {what}", each(*count))).collect();
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = r#"
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="kueue.x-k8s.io",resource="workloads",scope="resource",subresource="status",verb="PATCH",version="v1beta2"} 30
apiserver_request_total{code="409",component="apiserver",dry_run="",group="kueue.x-k8s.io",resource="workloads",scope="resource",subresource="status",verb="PATCH",version="v1beta2"} 2
apiserver_request_total{code="201",component="apiserver",dry_run="",group="",resource="events",scope="resource",subresource="",verb="POST",version="v1"} 7
apiserver_request_total{code="0",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="WATCH",version="v1"} 9
apiserver_request_duration_seconds_count{resource="workloads",verb="PATCH"} 5
"#;

    #[test]
    fn requests_are_counted_by_what_they_ask_for() {
        let (none, all) = (Requests::default(), Requests::read(METRICS));
        assert_eq!(all.per(&none, 10), "3.20 PATCH workloads/status, 0.70 POST events");
        assert_eq!(all.per(&all, 10), "");
    }
}
