//! Whom a `clientConfig` names.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use serde_json::Value;

use crate::object;

/// A server to be asked, and who vouches for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    pub(super) place: Place,
    /// The certificates that sign its own, in PEM; without them those that this machine trusts do.
    pub(super) authority: Vec<u8>,
}

/// Where it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// At an address that somebody outside knows.
    Url { host: String, port: u16, path: String },
    /// Behind a Service of this cluster.
    Service { namespace: String, name: String, port: u16, path: String },
}

impl Target {
    /// Reads a `clientConfig`.
    pub(crate) fn read(config: &Value) -> Result<Target, String> {
        let authority = STANDARD.decode(object::text(config, &["caBundle"])).unwrap_or_default();
        let service = &config["service"];
        let place = if service.is_object() {
            let text = |field: &str| object::text(service, &[field]).to_owned();
            let path = Some(text("path")).filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned());
            let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
            Place::Service { namespace: text("namespace"), name: text("name"), port, path }
        } else {
            let url = object::text(config, &["url"]);
            if url.is_empty() {
                return Err("webhook configuration must have either service or URL".to_owned());
            }
            let uri: Uri = url.parse().map_err(|why| format!("Unparsable URL: {why}"))?;
            let host = uri.host().ok_or("Unparsable URL: no host")?.to_owned();
            Place::Url { host, port: uri.port_u16().unwrap_or(443), path: uri.path().to_owned() }
        };
        Ok(Target { place, authority })
    }

    /// The name that its certificate must have.
    pub(super) fn server_name(&self) -> String {
        match &self.place {
            Place::Url { host, .. } => host.trim_matches(['[', ']']).to_owned(),
            Place::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
        }
    }

    /// The URL as messages show it, without its query.
    pub(super) fn url(&self) -> String {
        match &self.place {
            Place::Url { host, port: 443, path } => format!("https://{host}{path}"),
            Place::Url { host, port, path } => format!("https://{host}:{port}{path}"),
            Place::Service { port, path, .. } => format!("https://{}:{port}{path}", self.server_name()),
        }
    }

    pub(super) fn path(&self) -> &str {
        match &self.place {
            Place::Url { path, .. } | Place::Service { path, .. } => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rule_3_18_targets() {
        for (config, url, name) in [
            (json!({"url": "https://h/p"}), "https://h/p", "h"),
            (json!({"url": "https://127.0.0.1:8443/p/q"}), "https://127.0.0.1:8443/p/q", "127.0.0.1"),
            (json!({"service": {"namespace": "n", "name": "s"}}), "https://s.n.svc:443/", "s.n.svc"),
            (
                json!({"service": {"namespace": "n", "name": "s", "port": 9, "path": "/p"}}),
                "https://s.n.svc:9/p",
                "s.n.svc",
            ),
        ] {
            let target = Target::read(&config).expect("a target");
            assert_eq!((target.url().as_str(), target.server_name().as_str()), (url, name));
        }
        assert!(Target::read(&json!({})).is_err());
    }
}
