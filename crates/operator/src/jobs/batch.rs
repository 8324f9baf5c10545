//! The Job that Kubernetes brings along.

use k8s_openapi::api::batch::v1::Job;
use kube::{Api, Client};
use reconcile::Cache;
use rules::framework::{self, Kind, Observed};

use super::Framework;
use crate::Context;

/// Its framework.
pub(crate) struct Batch;

impl Framework for Batch {
    type Object = Job;

    fn kind(&self) -> Kind {
        framework::batch::JOB
    }

    fn objects(&self, context: &Context) -> Option<Cache<Job>> {
        Some(context.caches.jobs.clone())
    }

    fn api(&self, client: Client, namespace: &str) -> Api<Job> {
        Api::namespaced(client, namespace)
    }

    fn observe<'a>(&'a self, object: &'a Job, _: &Context) -> Box<dyn Observed + 'a> {
        Box::new(framework::batch::Batch(object))
    }
}
