//! The history of a pod template: what was wanted before, kept as ControllerRevisions so that one can go back to it.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};

/// The label of pods, and of revisions, that says of which revision they are.
pub const REVISION_LABEL: &str = "controller-revision-hash";
/// The label of a StatefulSet's revisions that says their hash.
pub const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// Letters and digits that spell no words.
const SAFE: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// What has to be written before a template has its revision.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// It is new.
    Create(Box<ControllerRevision>),
    /// It was there before: it becomes the newest.
    Renumber {
        /// The revision.
        name: String,
        /// Its new number.
        revision: i64,
    },
}

/// The template of a revision, as the patch that brings it back.
pub fn data(template: &PodTemplateSpec) -> Value {
    let mut template = json!(template);
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// The template that a revision keeps.
pub fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let mut template = revision.data.as_ref()?.0.get("spec")?.get("template")?.clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// Revisions, the oldest first.
pub fn sorted<'a>(revisions: &[&'a ControllerRevision]) -> Vec<&'a ControllerRevision> {
    let mut sorted = revisions.to_vec();
    sorted.sort_by_key(|it| (it.revision, it.metadata.creation_timestamp.clone(), it.metadata.name.clone()));
    sorted
}

/// The number after the highest.
fn next(sorted: &[&ControllerRevision]) -> i64 {
    sorted.last().map_or(1, |newest| newest.revision + 1)
}

/// The newest revision if it is the one of this template; otherwise what has to be done so that it is. `make` makes a
/// revision with this number.
pub fn find<'a>(
    sorted: &[&'a ControllerRevision],
    wanted: &PodTemplateSpec,
    make: impl FnOnce(i64) -> ControllerRevision,
) -> Result<&'a ControllerRevision, Step> {
    let same = |revision: &&&ControllerRevision| template(revision).as_ref() == Some(wanted);
    match sorted.iter().rfind(same) {
        Some(found) if found.metadata.name == sorted.last().and_then(|it| it.metadata.name.clone()) => {
            Ok(found)
        }
        Some(found) => {
            let name = found.metadata.name.clone().unwrap_or_default();
            Err(Step::Renumber { name, revision: next(sorted) })
        }
        None => Err(Step::Create(Box::new(make(next(sorted))))),
    }
}

/// A new revision of an owner's template. Its hash is also in this label.
pub fn new(
    label: &str,
    owner: &ObjectMeta,
    reference: OwnerReference,
    template: &PodTemplateSpec,
    revision: i64,
    collisions: i32,
) -> ControllerRevision {
    let data = data(template);
    let hash = hash(data.to_string().as_bytes(), collisions);
    let meta = template.metadata.clone().unwrap_or_default();
    let mut labels = meta.labels.unwrap_or_default();
    labels.insert(label.to_owned(), hash.clone());
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", owner.name.as_deref().unwrap_or_default())),
            namespace: owner.namespace.clone(),
            labels: Some(labels),
            annotations: owner.annotations.clone(),
            owner_references: Some(vec![reference]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision,
    }
}

/// Revisions that nobody needs any more: the oldest of those that are not in use, beyond what is to be kept.
pub fn surplus(
    sorted: &[&ControllerRevision],
    is_live: impl Fn(&str) -> bool,
    limit: Option<i32>,
) -> Vec<String> {
    let name = |it: &&ControllerRevision| it.metadata.name.clone().unwrap_or_default();
    let idle: Vec<String> = sorted.iter().map(name).filter(|name| !is_live(name)).collect();
    let keep = usize::try_from(limit.unwrap_or(10)).unwrap_or(usize::MAX);
    let too_many = idle.len().saturating_sub(keep);
    idle.into_iter().take(too_many).collect()
}

/// A short name for some bytes, which differs from one count of collisions to the next.
fn hash(bytes: &[u8], collisions: i32) -> String {
    let probe = collisions.to_string();
    let mut hash: u32 = 0x811c_9dc5;
    for byte in bytes.iter().chain(probe.as_bytes()) {
        hash = hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte);
    }
    let letter = |digit: u8| char::from(SAFE[usize::from(digit) % SAFE.len()]);
    hash.to_string().bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(image: &str) -> PodTemplateSpec {
        serde_json::from_value(json!({"spec": {"containers": [{"name": "c", "image": image}]}}))
            .expect("a template")
    }

    fn revision(image: &str, number: i64) -> ControllerRevision {
        let owner = ObjectMeta { name: Some("web".to_owned()), ..ObjectMeta::default() };
        new(HASH_LABEL, &owner, OwnerReference::default(), &of(image), number, 0)
    }

    #[test]
    fn a_template_is_found_made_or_brought_back() {
        let (one, two) = (revision("one", 1), revision("two", 2));
        assert_eq!(template(&one), Some(of("one")));
        let known = sorted(&[&two, &one]);
        let make = |number: i64| revision("three", number);
        assert_eq!(find(&known, &of("two"), make).ok(), Some(&two));
        let back = Step::Renumber { name: one.metadata.name.clone().expect("a name"), revision: 3 };
        assert_eq!(find(&known, &of("one"), make), Err(back));
        let made = Step::Create(Box::new(revision("three", 3)));
        assert_eq!(find(&known, &of("three"), make), Err(made));
        assert_ne!(one.metadata.name, two.metadata.name);
    }

    #[test]
    fn the_oldest_idle_revisions_go() {
        let all: Vec<ControllerRevision> =
            (1..=4).map(|number| revision(&format!("image-{number}"), number)).collect();
        let known = sorted(&all.iter().collect::<Vec<_>>());
        let name = |number: usize| all[number].metadata.name.clone().expect("a name");
        let live = name(0);
        assert_eq!(surplus(&known, |it| it == live, Some(1)), [name(1), name(2)]);
        assert_eq!(surplus(&known, |_| false, None), Vec::<String>::new());
    }
}
