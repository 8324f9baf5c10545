//! The Job that Kubernetes brings along.

use k8s_openapi::api::batch::v1::Job;
use rules::framework::{self, Kind, Observed};

use super::Framework;

/// Its framework.
pub(crate) struct Batch;

impl Framework for Batch {
    type Object = Job;
    const KIND: Kind = framework::batch::JOB;

    fn observe(object: &Job) -> Box<dyn Observed + '_> {
        Box::new(framework::batch::Batch(object))
    }
}
