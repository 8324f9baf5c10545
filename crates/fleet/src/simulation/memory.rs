//! The objects of one simulated cluster: what an API server does with them, as far as the operator can tell.
//!
//! Nothing here is random, and time is the simulation's. Kinds are not known, except where a rule of theirs is an
//! invariant to be watched: a Workload keeps its cluster, a Job's status follows the rules, and a pod that has ended does
//! not live again. And pods that are queued wait behind a gate, and take their time to go.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use k8s_openapi::api::batch::v1::Job;
use reconcile::Clock;
use rules::webhook::{self, Kind, Review, job::Surroundings};
use rules::workload::patch::{ADMISSION_CONDITIONS, ADMISSION_MANAGER, RECLAIMABLE_PODS_MANAGER};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::pods::has_ended;

/// Where an object is: its resource (`batch/jobs`), its namespace and its name.
pub(super) type Place = (String, String, String);

/// The resource of Jobs.
pub(super) const JOBS: &str = "batch/jobs";
/// The resource of pods.
pub(super) const PODS: &str = "/pods";
/// The resource of Workloads.
pub(super) const WORKLOADS: &str = "kueue.x-k8s.io/workloads";

/// A refusal: its code, its reason and what is said.
pub(super) type Refused = (u16, &'static str, String);

/// Something that must not happen.
pub(super) type Violations = Vec<String>;

/// The objects of a cluster.
pub(super) struct Memory {
    pub(super) name: &'static str,
    pub(super) violations: Violations,
    clock: Clock,
    version: u64,
    uids: u64,
    objects: BTreeMap<Place, Arc<Value>>,
    events: Vec<Arc<Event>>,
    watchers: Vec<Watcher>,
}

/// Something that happened to an object.
pub(super) struct Event {
    version: u64,
    place: Place,
    kind: &'static str,
    object: Arc<Value>,
    line: OnceLock<Bytes>,
}

impl Event {
    pub(super) fn is_new_job(&self) -> bool {
        self.kind == "ADDED" && [JOBS, PODS].contains(&self.place.0.as_str())
    }

    /// As a watch tells of it; written once for all who listen.
    pub(super) fn line(&self) -> Bytes {
        let write = || {
            let mut line = format!("{{\"type\":\"{}\",\"object\":", self.kind).into_bytes();
            line.extend(written(&self.object));
            line.extend_from_slice(b"}\n");
            Bytes::from(line)
        };
        self.line.get_or_init(write).clone()
    }
}

struct Watcher {
    resource: String,
    namespace: Option<String>,
    labels: Vec<(String, String)>,
    to: mpsc::UnboundedSender<Arc<Event>>,
}

impl Memory {
    pub(super) fn new(name: &'static str, clock: Clock) -> Memory {
        Memory {
            name,
            violations: Vec::new(),
            clock,
            version: 1,
            uids: 0,
            objects: BTreeMap::new(),
            events: Vec::new(),
            watchers: Vec::new(),
        }
    }

    /// Another one after every change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn get(&self, place: &Place) -> Option<&Arc<Value>> {
        self.objects.get(place)
    }

    /// Whether the owner that an object names, a Job or a pod, is there.
    pub(super) fn has(&self, owner: &Value, namespace: &Value) -> bool {
        let resource = if owner["kind"] == "Pod" { PODS } else { JOBS };
        let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let place = (resource.to_owned(), part(namespace), part(&owner["name"]));
        self.get(&place).is_some_and(|it| it["metadata"]["uid"] == owner["uid"])
    }

    /// All objects of a resource, by place.
    pub(super) fn all(&self, resource: &str) -> Vec<(Place, Arc<Value>)> {
        self.of(resource).map(|(place, object)| (place.clone(), Arc::clone(object))).collect()
    }

    fn of(&self, resource: &str) -> impl Iterator<Item = (&Place, &Arc<Value>)> {
        let from = (resource.to_owned(), String::new(), String::new());
        self.objects.range(from..).take_while(move |((it, _, _), _)| it == resource)
    }

    pub(super) fn list(&self, resource: &str, namespace: Option<&str>, labels: &[(String, String)]) -> Value {
        let fits = |place: &Place, object: &Value| {
            namespace.is_none_or(|it| it == place.1) && matches(object, labels)
        };
        let items: Vec<&Value> = self
            .of(resource)
            .filter(|(place, object)| fits(place, object))
            .map(|(_, object)| &**object)
            .collect();
        json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": self.version.to_string()}, "items": items})
    }

    /// Everything that happens after a version, and from now on.
    pub(super) fn watch(
        &mut self,
        resource: &str,
        namespace: Option<&str>,
        labels: Vec<(String, String)>,
        after: u64,
    ) -> mpsc::UnboundedReceiver<Arc<Event>> {
        let (to, events) = mpsc::unbounded_channel();
        let watcher =
            Watcher { resource: resource.to_owned(), namespace: namespace.map(str::to_owned), labels, to };
        self.events.iter().filter(|event| event.version > after).for_each(|event| watcher.tell(event));
        self.watchers.push(watcher);
        events
    }

    pub(super) fn create(&mut self, place: Place, mut object: Value) -> Result<Arc<Value>, Refused> {
        if self.objects.contains_key(&place) {
            return Err((409, "AlreadyExists", format!("{} {:?} already exists", place.0, place.2)));
        }
        if place.0 == PODS {
            let around = Surroundings { in_managed_namespace: true, ..Surroundings::default() };
            let review = Review { kind: Kind::Pod, object: &object, old: None, around, runtime: None };
            object = webhook::default(&review).map_err(|why| (400, "BadRequest", why.to_string()))?;
        }
        self.uids += 1;
        let metadata =
            object["metadata"].as_object_mut().ok_or((400, "BadRequest", "no metadata".to_owned()))?;
        metadata.insert("uid".to_owned(), json!(format!("{}-{}", self.name, self.uids)));
        metadata.insert("creationTimestamp".to_owned(), json!(self.now()));
        metadata.insert("generation".to_owned(), json!(1));
        match place.0.as_str() {
            WORKLOADS | JOBS => object["status"] = json!({}),
            PODS => object["status"] = json!({"phase": "Pending"}),
            _ => {}
        }
        Ok(self.store(place, "ADDED", object))
    }

    /// Changes an object by a function; what changes nothing is no change.
    pub(super) fn change(&mut self, place: &Place, change: impl FnOnce(&mut Value)) -> Option<Arc<Value>> {
        let old = Arc::clone(self.objects.get(place)?);
        let mut new = Value::clone(&old);
        change(&mut new);
        if new == *old {
            return Some(old);
        }
        if new["spec"] != old["spec"] {
            new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
        }
        let finalizers = new["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
        let still_runs = new["metadata"]["deletionGracePeriodSeconds"].as_i64() > Some(0);
        if new["metadata"]["deletionTimestamp"].is_string() && !finalizers && !still_runs {
            self.objects.insert(place.clone(), Arc::new(new));
            self.remove(place);
            return Some(old);
        }
        Some(self.store(place.clone(), "MODIFIED", new))
    }

    /// A patch, as a client sends it.
    pub(super) fn patch(
        &mut self,
        place: &Place,
        patch: &Value,
        status: bool,
        apply: Option<&str>,
    ) -> Result<Arc<Value>, Refused> {
        let Some(old) = self.objects.get(place).cloned() else { return Err(not_found(place)) };
        for field in ["uid", "resourceVersion"] {
            let (wanted, there) = (&patch["metadata"][field], &old["metadata"][field]);
            if wanted.is_string() && wanted != there {
                return Err((409, "Conflict", format!("{} {:?} was modified", place.0, place.2)));
            }
        }
        let mut new = Value::clone(&old);
        match (status, apply) {
            (true, Some(manager)) => applied(&mut new, &patch["status"], manager),
            (true, None) => merge(&mut new["status"], &patch["status"]),
            (false, _) => {
                let mut rest = patch.clone();
                if let Some(fields) = rest.as_object_mut() {
                    fields.remove("status");
                }
                merge(&mut new, &rest);
                for field in ["uid", "resourceVersion", "generation", "creationTimestamp"] {
                    new["metadata"][field] = old["metadata"][field].clone();
                }
            }
        }
        self.judge(place, &old, &new)?;
        Ok(self.change(place, |object| *object = new).unwrap_or(old))
    }

    pub(super) fn delete(
        &mut self,
        place: &Place,
        options: &Value,
        has_pods: bool,
    ) -> Result<Arc<Value>, Refused> {
        let Some(old) = self.objects.get(place).cloned() else { return Err(not_found(place)) };
        let uid = &options["preconditions"]["uid"];
        if uid.is_string() && *uid != old["metadata"]["uid"] {
            return Err((409, "Conflict", "the UID in the precondition is another".to_owned()));
        }
        let version = &options["preconditions"]["resourceVersion"];
        if version.is_string() && *version != old["metadata"]["resourceVersion"] {
            return Err((409, "Conflict", "the ResourceVersion in the precondition is another".to_owned()));
        }
        let is_pod = place.0 == PODS;
        let foreground = options["propagationPolicy"] == "Foreground" && has_pods && !is_pod;
        let now = self.now();
        let finalizers = old["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !foreground && finalizers.is_empty() && !(is_pod && has_pods) {
            self.remove(place);
            let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
            return Ok(Arc::new(success));
        }
        let kept = self.change(place, |object| {
            if object["metadata"]["deletionTimestamp"].is_null() {
                object["metadata"]["deletionTimestamp"] = json!(now);
                if is_pod {
                    object["metadata"]["deletionGracePeriodSeconds"] = json!(if has_pods { 30 } else { 0 });
                }
            }
            if foreground {
                object["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
            }
        });
        Ok(kept.unwrap_or(old))
    }

    pub(super) fn remove(&mut self, place: &Place) {
        if let Some(object) = self.objects.remove(place) {
            self.version += 1;
            let mut object = Arc::unwrap_or_clone(object);
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.tell(place, "DELETED", Arc::new(object));
        }
    }

    fn store(&mut self, place: Place, kind: &'static str, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        self.tell(&place, kind, Arc::clone(&object));
        self.objects.insert(place, Arc::clone(&object));
        object
    }

    fn tell(&mut self, place: &Place, kind: &'static str, object: Arc<Value>) {
        let (version, line) = (self.version, OnceLock::new());
        let event = Arc::new(Event { version, place: place.clone(), kind, object, line });
        self.watchers.retain(|watcher| !watcher.to.is_closed());
        self.watchers.iter().for_each(|watcher| watcher.tell(&event));
        self.events.push(event);
    }

    /// Ends every watch, as a server that was away does.
    pub(super) fn end_watches(&mut self) {
        self.watchers.clear();
    }

    /// Takes in all that ever happened here.
    pub(super) fn fingerprint(&self, into: &mut impl Hasher) {
        for event in &self.events {
            (event.version, &event.place, event.kind).hash(into);
            take_in(&event.object, into);
        }
    }

    fn now(&self) -> String {
        self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// What an API server would refuse because of what the object is.
    fn judge(&mut self, place: &Place, old: &Value, new: &Value) -> Result<(), Refused> {
        let invalid = |why: &str| Err((422, "Invalid", why.to_owned()));
        let cluster = |object: &Value| object["status"]["clusterName"].as_str().map(str::to_owned);
        if let (Some(was), Some(is)) = (cluster(old), cluster(new))
            && was != is
        {
            self.violations
                .push(format!("{}: the cluster of {} goes from {was} to {is}", self.name, place.2));
            return invalid("clusterName is immutable once set");
        }
        let nominated = new["status"]["nominatedClusterNames"].as_array().is_some_and(|all| !all.is_empty());
        if cluster(new).is_some() && nominated {
            return invalid("clusterName and nominatedClusterNames are mutually exclusive");
        }
        if place.0 == PODS && has_ended(old) && old["status"]["phase"] != new["status"]["phase"] {
            self.violations.push(format!("{}: {} has ended and lives again", self.name, place.2));
        }
        if place.0 == JOBS && old["status"] != new["status"] {
            let typed = |object: &Value| serde_json::from_value::<Job>(object.clone()).ok();
            if let (Some(was), Some(is)) = (typed(old), typed(new)) {
                let errors = rules::job::status::validate_transition(&is, &was);
                if !errors.is_empty() {
                    self.violations
                        .push(format!("{}: the status of {} is not valid: {errors:?}", self.name, place.2));
                    return invalid("the status is not valid");
                }
            }
        }
        Ok(())
    }
}

impl Watcher {
    fn tell(&self, event: &Arc<Event>) {
        let (resource, namespace, _) = &event.place;
        let is_theirs =
            self.resource == *resource && self.namespace.as_ref().is_none_or(|it| it == namespace);
        if is_theirs && matches(&event.object, &self.labels) {
            // Whoever no longer listens is forgotten at the next event.
            let _ = self.to.send(Arc::clone(event));
        }
    }
}

/// Takes in a value, whole.
fn take_in(value: &Value, into: &mut impl Hasher) {
    match value {
        Value::Null => 0_u8.hash(into),
        Value::Bool(is) => (1_u8, is).hash(into),
        Value::Number(number) => (2_u8, number).hash(into),
        Value::String(text) => (3_u8, text).hash(into),
        Value::Array(items) => {
            (4_u8, items.len()).hash(into);
            for item in items {
                take_in(item, into);
            }
        }
        Value::Object(fields) => {
            (5_u8, fields.len()).hash(into);
            for (name, value) in fields {
                name.hash(into);
                take_in(value, into);
            }
        }
    }
}

/// A value as JSON.
pub(super) fn written(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("values have string keys and finite numbers")
}

fn not_found(place: &Place) -> Refused {
    (404, "NotFound", format!("{} {:?} not found", place.0, place.2))
}

fn matches(object: &Value, labels: &[(String, String)]) -> bool {
    labels.iter().all(|(key, value)| object["metadata"]["labels"][key] == **value)
}

/// A JSON merge patch.
fn merge(into: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    for (key, value) in fields {
        if value.is_null() {
            into.as_object_mut().expect("it is one now").remove(key);
        } else {
            merge(&mut into[key], value);
        }
    }
}

/// Server-side apply of a status, as far as the operator's own names go: what belongs to admission is replaced by what is
/// applied under that name, so are pods that need their quota no longer, and of everything else only what is named changes.
fn applied(object: &mut Value, status: &Value, manager: &str) {
    const OF_ADMISSION: [&str; 10] = [
        "admission",
        "requeueState",
        "admissionChecks",
        "accumulatedPastExecutionTimeSeconds",
        "schedulingStats",
        "nominatedClusterNames",
        "clusterName",
        "unhealthyNodes",
        "preemptionGates",
        "resourceRequests",
    ];
    let is_admission = manager == ADMISSION_MANAGER;
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    let mut conditions: Vec<Value> = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let new: Vec<Value> = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|old| {
        let named = new.iter().any(|it| it["type"] == old["type"]);
        let ours = old["type"]
            .as_str()
            .is_some_and(|kind| ADMISSION_CONDITIONS.contains(&kind) && kind != "PodsReady");
        !(named || is_admission && ours)
    });
    conditions.extend(new);
    let fields = object["status"].as_object_mut().expect("it is one now");
    if is_admission {
        for field in OF_ADMISSION {
            fields.remove(field);
        }
    }
    if manager == RECLAIMABLE_PODS_MANAGER {
        fields.remove("reclaimablePods");
    }
    for (key, value) in status.as_object().into_iter().flatten() {
        fields.insert(key.clone(), value.clone());
    }
    fields.insert("conditions".to_owned(), Value::Array(conditions));
}
