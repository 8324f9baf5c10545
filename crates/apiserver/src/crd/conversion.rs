//! From one version of a custom resource to another (3.30).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookConversion,
};
use serde_json::Value;

use super::version::Version;
use crate::status::Refusal;

/// How it is done.
#[derive(Debug)]
pub enum Conversion {
    /// All versions are alike but for the name of the version.
    None,
    /// Somebody else does it.
    Webhook(Box<WebhookConversion>),
}

impl Conversion {
    /// What a definition says.
    pub fn of(definition: &CustomResourceDefinition) -> Conversion {
        match &definition.spec.conversion {
            Some(conversion) if conversion.strategy == "Webhook" => {
                Conversion::Webhook(Box::new(conversion.webhook.clone().unwrap_or_default()))
            }
            _ => Conversion::None,
        }
    }

    /// Objects in another version.
    #[expect(clippy::unused_async, reason = "somebody else may have to be asked")]
    pub async fn convert(&self, mut objects: Vec<Value>, to: &Version) -> Result<Vec<Value>, Refusal> {
        match self {
            Conversion::None => {
                for object in &mut objects {
                    object["apiVersion"] = to.api_version().into();
                }
                Ok(objects)
            }
            Conversion::Webhook(_) => Err(Refusal::internal("conversion webhooks are not called yet")),
        }
    }
}
