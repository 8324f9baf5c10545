//! Where the pods of a template should be, relative to each other (TA-9); and how they are numbered (JF-15).

use k8s_openapi::api::core::v1::PodTemplateSpec;
use types::{go, kueue::PodSetTopologyRequest};

use super::annotation;

/// How the pods of a template are numbered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Numbered<'a> {
    /// The label with a pod's number in its group.
    pub index_label: Option<&'a str>,
    /// The label with the number of a pod's group.
    pub group_label: Option<&'a str>,
    /// How many groups there are.
    pub groups: Option<i32>,
}

impl Numbered<'_> {
    fn is_silent(&self) -> bool {
        self.index_label.is_none() && self.group_label.is_none() && self.groups.is_none()
    }
}

/// What a template asks for; `None` if that is nothing and its pods have no numbers either.
pub fn request(
    template: &PodTemplateSpec,
    numbered: &Numbered<'_>,
) -> Result<Option<PodSetTopologyRequest>, String> {
    let metadata = template.metadata.clone().unwrap_or_default();
    let of = |key: &str| annotation(&metadata, &format!("kueue.x-k8s.io/{key}")).map(str::to_owned);
    let mut request = PodSetTopologyRequest {
        required: of("podset-required-topology"),
        ..PodSetTopologyRequest::default()
    };
    if request.required.is_none() {
        request.preferred = of("podset-preferred-topology");
    }
    if request.required.is_none() && request.preferred.is_none() {
        let unconstrained = of("podset-unconstrained-topology");
        request.unconstrained = unconstrained.map(|value| go::parse_bool(&value)).transpose()?;
    }
    if let Some(constraints) = of("podset-slice-required-topology-constraints") {
        request.podset_slice_required_topology_constraints =
            serde_json::from_str(&constraints).map_err(|error| error.to_string())?;
    } else if let (Some(level), Some(size)) = (of("podset-slice-required-topology"), of("podset-slice-size"))
    {
        request.pod_set_slice_required_topology = Some(level);
        let size = size.parse().map_err(|_| format!("podset-slice-size is {size:?} and no number"))?;
        request.pod_set_slice_size = Some(size);
    }
    if request == PodSetTopologyRequest::default() && numbered.is_silent() {
        return Ok(None);
    }
    request.pod_index_label = numbered.index_label.map(str::to_owned);
    request.sub_group_index_label = numbered.group_label.map(str::to_owned);
    request.sub_group_count = numbered.groups;
    if request.required.is_some() || request.preferred.is_some() {
        request.pod_set_group_name = of("podset-group-name");
    }
    Ok(Some(request))
}
