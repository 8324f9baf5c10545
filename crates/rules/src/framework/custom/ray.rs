//! The kinds of KubeRay: a head, groups of workers, and what KubeRay adds to them by itself.

use k8s_openapi::{
    api::core::v1::{Container, PodSpec, PodTemplateSpec, ResourceRequirements},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use serde::Deserialize as _;
use serde_json::Value;

use super::{
    super::{Finished, annotation},
    json::{count, text},
    places::{Place, template},
};

/// The pod set of the head. No group of workers may be called so.
pub(crate) const HEAD: &str = "head";
const SUBMITTER: &str = "ray-job-submitter";
const SUBMITTER_SET: &str = "submitter";
const SUBMITTER_TEMPLATE: &str = "/spec/submitterPodTemplate";
const FAULT_TOLERANT: &str = "ray.io/ft-enabled";

/// The pods of a Ray cluster whose spec is `at`, and of the pod that hands in its Job, if there is one.
pub(super) fn places(object: &Value, at: &str, metadata: &ObjectMeta) -> Result<Vec<Place>, String> {
    let none = Value::Null;
    let spec = object.pointer(at).unwrap_or(&none);
    let mut head = template(spec.pointer("/headGroupSpec/template"), HEAD)?;
    let image = containers(&mut head).first().and_then(|container| container.image.clone());
    added_to_head(&mut head, object, spec, metadata);
    let mut places = vec![Place {
        name: HEAD.to_owned(),
        template: head,
        count: 1,
        replicas: 1,
        at: format!("{at}/headGroupSpec/template"),
        ..Place::default()
    }];
    let groups =
        spec.get("workerGroupSpecs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (index, group) in groups.iter().enumerate() {
        let name = text(group, "/groupName");
        let hosts = count(group, "/numOfHosts").unwrap_or(1).max(1);
        places.push(Place {
            name: name.to_lowercase(),
            template: template(group.get("template"), name)?,
            count: count(group, "/replicas").unwrap_or(1).saturating_mul(hosts),
            replicas: 1,
            at: format!("{at}/workerGroupSpecs/{index}/template"),
            ..Place::default()
        });
    }
    if text(object, "/spec/submissionMode") == "K8sJobMode" {
        let own = object.pointer(SUBMITTER_TEMPLATE).filter(|own| !own.is_null());
        places.push(Place {
            name: SUBMITTER_SET.to_owned(),
            template: match own {
                Some(own) => template(Some(own), SUBMITTER_SET)?,
                None => submitter_template(image),
            },
            count: 1,
            replicas: 1,
            at: SUBMITTER_TEMPLATE.to_owned(),
            ..Place::default()
        });
    }
    Ok(places)
}

/// What KubeRay puts into the head's pod, or starts in its place: it counts, too.
fn added_to_head(head: &mut PodTemplateSpec, object: &Value, spec: &Value, metadata: &ObjectMeta) {
    let tolerant = annotation(metadata, FAULT_TOLERANT).is_some_and(|said| said.eq_ignore_ascii_case("true"));
    if (tolerant || spec.get("gcsFaultToleranceOptions").is_some_and(|options| !options.is_null()))
        && let Some(ray) = containers(head).first_mut()
    {
        let requests = ray.resources.get_or_insert_default().requests.get_or_insert_default();
        for (name, least) in [("cpu", "200m"), ("memory", "256Mi")] {
            let asked = requests.entry(name.to_owned()).or_insert_with(|| Quantity(least.to_owned()));
            if is_less(asked, least) {
                *asked = Quantity(least.to_owned());
            }
        }
    }
    if spec.get("enableInTreeAutoscaling") == Some(&Value::Bool(true)) {
        let own = spec.pointer("/autoscalerOptions/resources").filter(|own| !own.is_null());
        let resources = own.and_then(|own| ResourceRequirements::deserialize(own).ok());
        let resources = resources.unwrap_or_else(|| asking("500m", "512Mi", "500m", "512Mi"));
        containers(head).push(container("autoscaler", resources));
    }
    if text(object, "/spec/submissionMode") == "SidecarMode" {
        containers(head).push(container(SUBMITTER, submitter_resources()));
    }
}

fn is_less(asked: &Quantity, least: &str) -> bool {
    let read = |text: &str| text.parse::<types::Quantity>().ok();
    read(&asked.0).zip(read(least)).is_some_and(|(asked, least)| asked < least)
}

fn submitter_template(image: Option<String>) -> PodTemplateSpec {
    let submitter = Container { image, ..container(SUBMITTER, submitter_resources()) };
    let spec = PodSpec {
        containers: vec![submitter],
        restart_policy: Some("Never".to_owned()),
        ..PodSpec::default()
    };
    PodTemplateSpec { metadata: None, spec: Some(spec) }
}

fn submitter_resources() -> ResourceRequirements {
    asking("500m", "200Mi", "1", "1Gi")
}

fn asking(cpu: &str, memory: &str, cpu_limit: &str, memory_limit: &str) -> ResourceRequirements {
    let list = |cpu: &str, memory: &str| {
        let both = [("cpu", cpu), ("memory", memory)];
        Some(both.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).into())
    };
    ResourceRequirements {
        requests: list(cpu, memory),
        limits: list(cpu_limit, memory_limit),
        ..ResourceRequirements::default()
    }
}

fn container(name: &str, resources: ResourceRequirements) -> Container {
    Container { name: name.to_owned(), resources: Some(resources), ..Container::default() }
}

fn containers(template: &mut PodTemplateSpec) -> &mut Vec<Container> {
    &mut template.spec.get_or_insert_default().containers
}

/// How a RayJob ended.
pub(super) fn finished(object: &Value) -> Option<Finished> {
    matches!(text(object, "/status/jobDeploymentStatus"), "Failed" | "Complete").then(|| Finished {
        success: text(object, "/status/jobStatus") == "SUCCEEDED",
        message: text(object, "/status/message").to_owned(),
    })
}
