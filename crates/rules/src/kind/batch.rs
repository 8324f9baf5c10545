//! CronJobs (3.11). Jobs have their own endpoints.

use k8s_openapi::api::batch::v1::JobSpec;
use serde_json::Value;

use super::workloads::{drop_disabled, name_is_no_label, template};
use super::{Counts, It, Kind, at, text};
use crate::cron::{Schedule, time_zone};
use crate::field::{self, Errors, Path};
use crate::job::{validate, warnings};
use crate::meta::not_negative;
use crate::{pod, wire};

pub(super) struct CronJobs;

const TEMPLATE: &str = "spec.jobTemplate.spec.template";
/// Eleven characters are needed for the minute of a Job, and its name is a label.
const MAX_NAME: usize = 52;
const POLICIES: [&str; 3] = ["Allow", "Forbid", "Replace"];

impl CronJobs {
    fn spec(it: &It<'_>) -> Errors {
        let (path, spec) = (Path::new("spec"), at(it.new, "spec"));
        let mut errors = Errors::new();
        match text(spec, "schedule") {
            "" => errors.push(path.child("schedule").required("")),
            schedule => errors.extend(self::schedule(it, schedule, &path.child("schedule"))),
        }
        let number = |field: &str| {
            let number = spec[field].as_i64();
            number.map(|number| not_negative(number, &path.child(field))).unwrap_or_default()
        };
        errors.extend(number("startingDeadlineSeconds"));
        if it.old.is_null() || at(it.old, "spec.timeZone") != &spec["timeZone"] {
            errors.extend(zone(spec["timeZone"].as_str(), &path.child("timeZone")));
        }
        match text(spec, "concurrencyPolicy") {
            "" => errors.push(path.child("concurrencyPolicy").required("")),
            policy if !POLICIES.contains(&policy) => {
                let value = field::Value::json(&policy);
                errors.push(path.child("concurrencyPolicy").not_supported(value, &POLICIES));
            }
            _ => {}
        }
        errors.extend(job_template(it, &path.child("jobTemplate").child("spec")));
        errors.extend(number("successfulJobsHistoryLimit"));
        errors.extend(number("failedJobsHistoryLimit"));
        errors
    }
}

fn job_spec(object: &Value) -> JobSpec {
    match at(object, "spec.jobTemplate.spec") {
        Value::Null => JobSpec::default(),
        spec => wire::typed(spec),
    }
}

fn job_template(it: &It<'_>, path: &Path) -> Errors {
    let spec = job_spec(it.new);
    let old = template(it.old, TEMPLATE);
    let options = validate::Options {
        pod: pod::Options::for_template(&spec.template, (!it.old.is_null()).then_some(&old))
            .with_privileged(it.allow_privileged),
        require_prefixed_labels: false,
        tolerate_selector_values: false,
    };
    let mut errors = validate::validate_spec(&spec, &options, path);
    if let Some(selector) = &spec.selector {
        let value = field::Value::internal(wire::LABEL_SELECTOR, selector);
        errors.push(path.child("selector").invalid(value, "`selector` will be auto-generated"));
    }
    if spec.manual_selector == Some(true) {
        errors.push(path.child("manualSelector").not_supported(true, &["nil", "false"]));
    }
    errors
}

fn schedule(it: &It<'_>, schedule: &str, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Err(why) = Schedule::parse(schedule) {
        errors.push(path.invalid(schedule, why));
    }
    let may_have_zone = text(it.old, "spec.schedule").contains("TZ");
    if schedule.contains("TZ") {
        if !may_have_zone {
            let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.push(path.invalid(schedule, why));
        } else if !at(it.new, "spec.timeZone").is_null() {
            let why = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
            errors.push(path.invalid(schedule, why));
        }
    }
    errors
}

fn zone(name: Option<&str>, path: &Path) -> Errors {
    let Some(name) = name else { return Errors::new() };
    let shown = || field::Value::json(&name);
    if name.is_empty() {
        return vec![path.invalid(shown(), "timeZone must be nil or non-empty string")];
    }
    let is_known_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_');
    let is_bad = |part: &str| {
        matches!(part, "" | "." | "..")
            || part.starts_with('-')
            || part.len() > 14
            || !part.chars().all(is_known_char)
    };
    if name.split('/').any(is_bad) {
        return vec![path.invalid(shown(), format!("unknown time zone {name}"))];
    }
    let mut errors = Errors::new();
    if name.eq_ignore_ascii_case("Local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.push(path.invalid(shown(), why));
    }
    // Go knows this one without its database.
    if name != "Local"
        && let Err(why) = time_zone(name)
    {
        errors.push(path.invalid(shown(), why));
    }
    errors
}

impl Kind for CronJobs {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        drop_disabled(new, &Value::Null, TEMPLATE);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled(new, old, TEMPLATE);
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(CronJobs::spec(it));
        let name = text(it.new, "metadata.name");
        if name.len() > MAX_NAME {
            let why = format!("must be no more than {MAX_NAME} characters");
            errors.push(Path::new("metadata").child("name").invalid(name, why));
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(CronJobs::spec(it));
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let mut warnings = name_is_no_label(new);
        warnings.extend(warn_of_jobs(new));
        warnings
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        let is_same = at(new, "metadata.generation") == at(old, "metadata.generation");
        let mut warnings = if is_same { Vec::new() } else { warn_of_jobs(new) };
        if text(new, "spec.schedule").contains("TZ") {
            warnings.push(
                "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
                 https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Whoever runs a CronJob is believed.
    fn validate_subresource(&self, _: &str, _: &It<'_>) -> Errors {
        Errors::new()
    }
}

fn warn_of_jobs(new: &Value) -> Vec<String> {
    warnings::on_spec(&job_spec(new), None, &Path::new("spec").child("jobTemplate").child("spec"))
}
