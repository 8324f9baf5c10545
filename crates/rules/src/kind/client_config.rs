//! Where a webhook is asked: at a URL, or at a service of the cluster.

use serde_json::Value;

use super::text;
use crate::field::{Errors, Path};
use crate::names;

/// Every error of a client configuration: a URL or a service, and only one of them.
pub fn validate(config: &Value, path: &Path) -> Errors {
    let (url, service) = (config["url"].as_str(), &config["service"]);
    match (url, service.is_null()) {
        (None, true) | (Some(_), false) => vec![path.required("exactly one of url or service is required")],
        (Some(url), true) => self::url(url, &path.child("url")),
        (None, false) => self::service(service, &path.child("service")),
    }
}

fn url(url: &str, path: &Path) -> Errors {
    const FORM: &str = "; desired format: https://host[/path]";
    let url = match super::url::parse(url) {
        Ok(url) => url,
        Err(why) => return vec![path.required(format!("url must be a valid URL: {why}{FORM}"))],
    };
    let mut errors = Errors::new();
    if url.scheme != "https" {
        let why = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(path.invalid(url.scheme.as_str(), why));
    }
    if url.host.is_empty() {
        errors.push(path.invalid("", format!("host must be specified{FORM}")));
    }
    if let Some(user) = &url.user {
        errors.push(path.invalid(user, "user information is not permitted in the URL"));
    }
    if !url.fragment.is_empty() {
        errors.push(path.invalid(&url.fragment, "fragments are not permitted in the URL"));
    }
    if !url.query.is_empty() {
        errors.push(path.invalid(&url.query, "query parameters are not permitted in the URL"));
    }
    errors
}

/// Every error of a service that is asked.
fn service(service: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    // Kubernetes confuses the two: what is missing is reported at the other one.
    if text(service, "namespace").is_empty() {
        errors.push(path.child("name").required(""));
    }
    if text(service, "name").is_empty() {
        errors.push(path.child("namespace").required(""));
    }
    let port = i32::try_from(service["port"].as_i64().unwrap_or(0)).unwrap_or(-1);
    let problems = names::port_number(port);
    if !problems.is_empty() {
        errors.push(path.child("port").invalid(port, format!("port is not valid: {}", problems.join(", "))));
    }
    let at_path = path.child("path");
    match service["path"].as_str() {
        None | Some("" | "/") => {}
        Some("//") => errors.push(at_path.invalid("//", "segment[0] may not be empty")),
        Some(url) => {
            if !url.starts_with('/') {
                errors.push(at_path.invalid(url, "must start with a '/'"));
            }
            // Half a character is left where the first byte of one is taken away.
            let steps = match url.chars().next() {
                Some(first) if first.len_utf8() > 1 => url.replacen(first, "\u{fffd}", 1),
                _ => url[1..].to_owned(),
            };
            for (i, step) in steps.strip_suffix('/').unwrap_or(&steps).split('/').enumerate() {
                if step.is_empty() {
                    errors.push(at_path.invalid(url, format!("segment[{i}] may not be empty")));
                    continue;
                }
                let problems = names::dns_subdomain(step).into_iter();
                errors
                    .extend(problems.map(|problem| at_path.invalid(url, format!("segment[{i}]: {problem}"))));
            }
        }
    }
    errors
}
