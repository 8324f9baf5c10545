//! Revisions of templates.

use std::task::{Context, Poll};

use apiserver::Cluster;
use apiserver::answer::Answer;
use futures::future::BoxFuture;
use http::Request;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use reconcile::Tasks;
use serde_json::json;
use tower_service::Service;

use crate::cluster::{api, api_server, create, eventually, start};

/// A way to a cluster on which nothing is heard of revisions after the first list.
#[derive(Clone)]
struct Deaf(Cluster);

impl Service<Request<Body>> for Deaf {
    type Response = Answer;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        if path.ends_with("/controllerrevisions") && query.contains("watch=true") {
            return Box::pin(std::future::pending());
        }
        self.0.call(request)
    }
}

/// Somebody else makes a revision, and no watch has told of it when the template changes: numbers go on after that one.
#[tokio::test]
async fn a_new_revision_is_newer_than_those_of_others() {
    let cluster = api_server().await;
    let client = Client::new(cluster.clone(), "default");
    let mut tasks = Tasks::new();
    start(&Client::new(Deaf(cluster), "default"), "daemonset-controller", &mut tasks);
    let revisions: Api<ControllerRevision> = api(&client);
    let labels = json!({"app": "x"});
    let spec = json!({
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    });
    create::<DaemonSet>(&client, json!({"metadata": {"name": "d"}, "spec": spec})).await;
    let all = || async { revisions.list(&ListParams::default()).await.expect("a list").items };
    let first = eventually("the first revision", || async { all().await.pop() }).await;
    assert_eq!(first.revision, 1);

    let mut theirs = first;
    theirs.metadata.name = Some("theirs".to_owned());
    theirs.metadata.resource_version = None;
    theirs.revision = 2;
    revisions.create(&PostParams::default(), &theirs).await.expect("a revision");
    let edit = json!({"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 10}}}});
    let edit = Patch::Strategic(edit);
    api::<DaemonSet>(&client).patch("d", &PatchParams::default(), &edit).await.expect("an edit");
    let mut numbers = eventually("the revision of the new template", || async {
        let all = all().await;
        (all.len() == 3).then(|| all.iter().map(|it| it.revision).collect::<Vec<i64>>())
    })
    .await;
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3], "no number is given twice");
}
