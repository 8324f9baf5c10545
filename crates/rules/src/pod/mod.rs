//! The pod template, as far as users of Jobs meet it.

use k8s_openapi::api::core::v1::PodTemplateSpec;

use crate::field::{Errors, Path};

/// What a pod template may hold.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether label values in selectors may be malformed.
    pub allow_invalid_label_value_in_selector: bool,
}

impl Options {
    /// For a template, next to the stored one.
    pub fn for_template(_new: &PodTemplateSpec, _old: Option<&PodTemplateSpec>) -> Self {
        Options { allow_invalid_label_value_in_selector: false }
    }
}

/// Validates a template.
pub fn validate_template(_template: &PodTemplateSpec, _options: &Options, _path: &Path) -> Errors {
    Errors::new()
}

pub mod defaults {
    //! Defaults.
    use k8s_openapi::api::core::v1::PodTemplateSpec;

    /// Defaults of a template.
    pub fn apply_template_defaults(template: &mut PodTemplateSpec) {
        template.spec.get_or_insert_default();
    }
}

pub mod gates {
    //! Gates.
    use k8s_openapi::api::core::v1::PodTemplateSpec;

    /// Drops what is switched off.
    pub fn drop_disabled(_new: &mut PodTemplateSpec, _old: Option<&PodTemplateSpec>) {}
}

pub mod warnings {
    //! Warnings.
    use k8s_openapi::api::core::v1::PodTemplateSpec;

    use crate::field::Path;

    /// Warnings about a template.
    pub fn for_template(_t: &PodTemplateSpec, _old: Option<&PodTemplateSpec>, _path: &Path) -> Vec<String> {
        Vec::new()
    }
}
