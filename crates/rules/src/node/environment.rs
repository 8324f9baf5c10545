//! The variables that a container starts with.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret, Service};

use super::{
    downward::{self, Place},
    env_file,
    expand::expand,
};

/// The ConfigMaps, Secrets and files that a pod's containers and volumes name, as far as they exist.
#[derive(Clone, Debug, Default)]
pub struct Data {
    /// By name.
    pub config_maps: BTreeMap<String, ConfigMap>,
    /// By name.
    pub secrets: BTreeMap<String, Secret>,
    /// What files say, by their volume and their path in there.
    pub files: BTreeMap<(String, String), String>,
}

/// The names of ConfigMaps and Secrets that the variables of a container come from.
pub fn sources(container: &Container) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut config_maps, mut secrets) = (BTreeSet::new(), BTreeSet::new());
    for from in container.env_from.iter().flatten() {
        config_maps.extend(from.config_map_ref.as_ref().map(|source| source.name.clone()));
        secrets.extend(from.secret_ref.as_ref().map(|source| source.name.clone()));
    }
    for from in container.env.iter().flatten().filter_map(|one| one.value_from.as_ref()) {
        config_maps.extend(from.config_map_key_ref.as_ref().map(|source| source.name.clone()));
        secrets.extend(from.secret_key_ref.as_ref().map(|source| source.name.clone()));
    }
    (config_maps, secrets)
}

/// The files that the variables of a container come from: their volumes, and their paths in there.
pub fn files(container: &Container) -> BTreeSet<(String, String)> {
    let sources = container.env.iter().flatten().filter_map(|one| one.value_from.as_ref());
    let files = sources.filter_map(|source| source.file_key_ref.as_ref());
    files.map(|file| (file.volume_name.clone(), file.path.clone())).collect()
}

/// All variables of a container, or why it cannot be created. Later declarations see earlier ones by `$(NAME)`.
pub fn of(
    pod: &Pod,
    container: &Container,
    data: &Data,
    services: &BTreeMap<String, String>,
    place: &Place<'_>,
) -> Result<BTreeMap<String, String>, String> {
    let mut variables: BTreeMap<String, String> = BTreeMap::new();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        if let Some(source) = &from.config_map_ref {
            let optional = source.optional == Some(true);
            let Some(map) = found(data.config_maps.get(&source.name), optional, "configmap", &source.name)?
            else {
                continue;
            };
            let values = map.data.iter().flatten();
            variables.extend(values.map(|(key, value)| (format!("{prefix}{key}"), value.clone())));
        } else if let Some(source) = &from.secret_ref {
            let optional = source.optional == Some(true);
            let Some(secret) = found(data.secrets.get(&source.name), optional, "secret", &source.name)?
            else {
                continue;
            };
            let values = secret.data.iter().flatten();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            variables.extend(values.map(|(key, value)| (format!("{prefix}{key}"), text(&value.0))));
        }
    }
    for variable in container.env.iter().flatten() {
        let value = match (variable.value.as_deref().filter(|value| !value.is_empty()), &variable.value_from)
        {
            (Some(value), _) => {
                expand(value, |name| variables.get(name).or_else(|| services.get(name)).map(String::as_str))
            }
            (None, Some(source)) => match from_source(source, pod, container, data, place)? {
                Some(value) => value,
                None => continue,
            },
            (None, None) => String::new(),
        };
        variables.insert(variable.name.clone(), value);
    }
    for (name, value) in services {
        variables.entry(name.clone()).or_insert_with(|| value.clone());
    }
    Ok(variables)
}

fn found<'a, T>(
    value: Option<&'a T>,
    optional: bool,
    kind: &str,
    name: &str,
) -> Result<Option<&'a T>, String> {
    if value.is_none() && !optional {
        return Err(format!("{kind} {name:?} not found"));
    }
    Ok(value)
}

/// `None` for what is optional and not there.
fn from_source(
    source: &EnvVarSource,
    pod: &Pod,
    container: &Container,
    data: &Data,
    place: &Place<'_>,
) -> Result<Option<String>, String> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(selector) = &source.field_ref {
        return downward::field(selector, pod, place).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        return downward::resource(selector, pod, Some(container), place).map(Some);
    }
    if let Some(key) = &source.config_map_key_ref {
        let optional = key.optional == Some(true);
        let Some(map) = found(data.config_maps.get(&key.name), optional, "configmap", &key.name)? else {
            return Ok(None);
        };
        let value = map.data.as_ref().and_then(|values| values.get(&key.key)).cloned();
        if value.is_none() && !optional {
            return Err(format!("couldn't find key {} in ConfigMap {namespace}/{}", key.key, key.name));
        }
        return Ok(value);
    }
    if let Some(key) = &source.secret_key_ref {
        let optional = key.optional == Some(true);
        let Some(secret) = found(data.secrets.get(&key.name), optional, "secret", &key.name)? else {
            return Ok(None);
        };
        let value = secret.data.as_ref().and_then(|values| values.get(&key.key));
        if value.is_none() && !optional {
            return Err(format!("couldn't find key {} in Secret {namespace}/{}", key.key, key.name));
        }
        return Ok(value.map(|value| String::from_utf8_lossy(&value.0).into_owned()));
    }
    if let Some(key) = &source.file_key_ref {
        let text = data.files.get(&(key.volume_name.clone(), key.path.clone()));
        let text = text.ok_or_else(|| format!("couldn't read env file {:?}", key.path))?;
        let value = env_file::value(text, &key.key)
            .map_err(|why| format!("couldn't parse env file {:?}: {why}", key.path))?;
        if value.is_none() && key.optional != Some(true) {
            return Err(format!("environment variable key {:?} not found in file {:?}", key.key, key.path));
        }
        return Ok(value);
    }
    Err("this source of a variable is not supported by this node".to_owned())
}

/// What the services of a pod's namespace tell it: where they are, in the way of Docker's links.
pub fn of_services<'a>(services: impl IntoIterator<Item = &'a Service>) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for service in services {
        let Some(spec) = &service.spec else { continue };
        let ip = spec.cluster_ip.as_deref().unwrap_or_default();
        let ports = spec.ports.as_deref().unwrap_or_default();
        let Some(first) = ports.first().filter(|_| !matches!(ip, "" | "None")) else { continue };
        let name = variable(service.metadata.name.as_deref().unwrap_or_default());
        variables.insert(format!("{name}_SERVICE_HOST"), ip.to_owned());
        variables.insert(format!("{name}_SERVICE_PORT"), first.port.to_string());
        let url = |protocol: &str, port: i32| format!("{}://{ip}:{port}", protocol.to_lowercase());
        for (index, port) in ports.iter().enumerate() {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            if let Some(port_name) = port.name.as_deref().filter(|name| !name.is_empty()) {
                variables
                    .insert(format!("{name}_SERVICE_PORT_{}", variable(port_name)), port.port.to_string());
            }
            if index == 0 {
                variables.insert(format!("{name}_PORT"), url(protocol, port.port));
            }
            let prefix = format!("{name}_PORT_{}_{protocol}", port.port);
            variables.insert(prefix.clone(), url(protocol, port.port));
            variables.insert(format!("{prefix}_PROTO"), protocol.to_lowercase());
            variables.insert(format!("{prefix}_PORT"), port.port.to_string());
            variables.insert(format!("{prefix}_ADDR"), ip.to_owned());
        }
    }
    variables
}

fn variable(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(container: Value, expected: Result<&[(&str, &str)], &str>) {
        let container: Container = serde_json::from_value(container).expect("a container");
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "n" }, "spec": { "containers": [] } }))
        .expect("a pod");
        let mut data = Data::default();
        let map = json!({ "data": { "a": "1", "b": "2" } });
        data.config_maps.insert("map".to_owned(), serde_json::from_value(map).expect("a ConfigMap"));
        let secret = json!({ "data": { "s": "c2VjcmV0" } });
        data.secrets.insert("secret".to_owned(), serde_json::from_value(secret).expect("a Secret"));
        data.files.insert(("v".to_owned(), "all.env".to_owned()), "A='1'\nB='2".to_owned());
        let services = [("DB_SERVICE_HOST".to_owned(), "10.0.0.9".to_owned())].into();
        let place = Place { ip: "127.0.0.2", host_ip: "127.0.0.1", allocatable: &BTreeMap::new() };
        let variables = of(&pod, &container, &data, &services, &place).map(|mut variables| {
            variables.remove("DB_SERVICE_HOST");
            variables
        });
        let expected = expected
            .map(|pairs| {
                pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
            })
            .map_err(str::to_owned);
        assert_eq!(variables, expected);
    }

    #[test]
    fn variables() {
        check(
            json!({ "name": "c", "env": [{ "name": "A", "value": "x" }, { "name": "B", "value": "$(A)/$(DB_SERVICE_HOST)/$(C)" },
                { "name": "C", "value": "later" }, { "name": "N", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }] }),
            Ok(&[("A", "x"), ("B", "x/10.0.0.9/$(C)"), ("C", "later"), ("N", "p")]),
        );
        check(
            json!({ "name": "c", "envFrom": [{ "prefix": "M_", "configMapRef": { "name": "map" } }, { "secretRef": { "name": "secret" } }],
                "env": [{ "name": "M_a", "value": "own" }] }),
            Ok(&[("M_a", "own"), ("M_b", "2"), ("s", "secret")]),
        );
        check(
            json!({ "name": "c", "envFrom": [{ "configMapRef": { "name": "none" } }] }),
            Err("configmap \"none\" not found"),
        );
        check(
            json!({ "name": "c", "envFrom": [{ "configMapRef": { "name": "none", "optional": true } }] }),
            Ok(&[]),
        );
        check(
            json!({ "name": "c", "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "secret", "key": "t" } } }] }),
            Err("couldn't find key t in Secret n/secret"),
        );
        let file = |path: &str, key: &str, optional: bool| {
            let file = json!({ "volumeName": "v", "path": path, "key": key, "optional": optional });
            json!({ "name": "c", "env": [{ "name": "F", "valueFrom": { "fileKeyRef": file } }] })
        };
        check(file("all.env", "A", false), Ok(&[("F", "1")]));
        let why = "couldn't parse env file \"all.env\": line 2: the quotes are not closed";
        check(file("all.env", "C", true), Err(why));
        check(file("none.env", "A", true), Err("couldn't read env file \"none.env\""));
    }
}
