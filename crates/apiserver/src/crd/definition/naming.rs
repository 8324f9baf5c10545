//! What becomes of a definition once it is accepted: its names, unless others in the group have them, its conditions
//! and the versions objects may be stored in (3.21, 3.22).

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, CustomResourceDefinitionCondition, CustomResourceDefinitionNames,
        CustomResourceDefinitionStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use types::go::quote;

use super::spec::text;
use super::{approval, authority};

/// A new definition has no status of the client's making.
pub fn prepare_create(definition: &mut CustomResourceDefinition) {
    definition.status = None;
    definition.metadata.generation = Some(1);
    super::apply_defaults(definition);
}

/// A changed definition keeps its status; a new storage version is one that objects may be stored in from now on.
pub fn prepare_update(definition: &mut CustomResourceDefinition, old: &CustomResourceDefinition) {
    super::apply_defaults(definition);
    definition.status.clone_from(&old.status);
    if definition.spec != old.spec {
        definition.metadata.generation = Some(old.metadata.generation.unwrap_or(0) + 1);
    }
    let status = definition.status.get_or_insert_default();
    let stored = status.stored_versions.get_or_insert_default();
    let storage = definition.spec.versions.iter().filter(|version| version.storage);
    let new: Vec<String> =
        storage.map(|version| version.name.clone()).filter(|name| !stored.contains(name)).collect();
    stored.extend(new);
}

/// The next status of a definition, given all definitions there are, this one included.
pub fn settle<'a>(
    definition: &CustomResourceDefinition,
    all: impl IntoIterator<Item = &'a CustomResourceDefinition>,
    now: Timestamp,
) -> CustomResourceDefinitionStatus {
    let mut status = definition.status.clone().unwrap_or_default();
    let (resources, kinds) = used_names(&definition.spec.group, all);
    let asked = &definition.spec.names;
    let mut accepted = status.accepted_names.clone().unwrap_or_default();
    let mut conflict = None;
    let in_use = |name: &str| format!("{} is already in use", quote(name));
    let mut take = |name: &str, had: &str, used: &BTreeSet<String>, reason: &'static str| {
        let free = name == had || !used.contains(name);
        if !free {
            conflict = Some((reason, in_use(name)));
        }
        free
    };
    if take(&asked.plural, &accepted.plural, &resources, "PluralConflict") {
        accepted.plural.clone_from(&asked.plural);
    }
    if take(text(asked.singular.as_ref()), text(accepted.singular.as_ref()), &resources, "SingularConflict") {
        accepted.singular.clone_from(&asked.singular);
    }
    if take(&asked.kind, &accepted.kind, &kinds, "KindConflict") {
        accepted.kind.clone_from(&asked.kind);
    }
    if take(text(asked.list_kind.as_ref()), text(accepted.list_kind.as_ref()), &kinds, "ListKindConflict") {
        accepted.list_kind.clone_from(&asked.list_kind);
    }
    let had = accepted.short_names.clone().unwrap_or_default();
    let wanted = asked.short_names.iter().flatten();
    let taken = wanted.filter(|name| !had.contains(name) && resources.contains(*name));
    match taken.map(|name| in_use(name)).collect::<Vec<_>>().as_slice() {
        [] => accepted.short_names.clone_from(&asked.short_names),
        // A conflict of kinds is told rather than one of short names.
        _ if conflict.as_ref().is_some_and(|(reason, _)| reason.ends_with("KindConflict")) => {}
        [only] => conflict = Some(("ShortNamesConflict", only.clone())),
        several => conflict = Some(("ShortNamesConflict", format!("[{}]", several.join(", ")))),
    }
    accepted.categories.clone_from(&asked.categories);
    status.accepted_names = Some(accepted);

    let conditions = status.conditions.get_or_insert_default();
    let accepted = conflict.is_none();
    let (reason, message) = conflict.unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
    set_condition(conditions, "NamesAccepted", accepted, reason, &message, now);
    // What was established once stays so: its objects are there.
    if !conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True") {
        let (holds, reason, message) = if !accepted {
            (false, "NotAccepted", "not all names are accepted")
        } else if authority::problem(&definition.spec).is_some() {
            (false, "InvalidCABundle", "The conversion webhook CABundle is invalid")
        } else {
            (true, "InitialNamesAccepted", "the initial names have been accepted")
        };
        set_condition(conditions, "Established", holds, reason, message, now);
    }
    if let Some((holds, reason, message)) = approval::condition(definition) {
        set_condition(conditions, "KubernetesAPIApprovalPolicyConformant", holds, reason, &message, now);
    }
    status
}

/// Names of resources and of kinds that definitions of the group already have.
fn used_names<'a>(
    group: &str,
    all: impl IntoIterator<Item = &'a CustomResourceDefinition>,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for definition in all.into_iter().filter(|definition| definition.spec.group == group) {
        let Some(names) = definition.status.as_ref().and_then(|status| status.accepted_names.clone()) else {
            continue;
        };
        let CustomResourceDefinitionNames { plural, singular, short_names, kind, list_kind, .. } = names;
        resources.extend([plural].into_iter().chain(singular).chain(short_names.into_iter().flatten()));
        kinds.extend([kind].into_iter().chain(list_kind));
    }
    resources.remove("");
    kinds.remove("");
    (resources, kinds)
}

/// Sets a condition; the time is that of its last change between true and false.
pub(crate) fn set_condition(
    conditions: &mut Vec<CustomResourceDefinitionCondition>,
    name: &str,
    holds: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let status = if holds { "True" } else { "False" };
    let known = conditions.iter().position(|condition| condition.type_ == name);
    let unchanged = known.map(|index| &conditions[index]).filter(|condition| condition.status == status);
    let since = unchanged.and_then(|condition| condition.last_transition_time.clone());
    let condition = CustomResourceDefinitionCondition {
        type_: name.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_transition_time: Some(since.unwrap_or(Time(now))),
        ..CustomResourceDefinitionCondition::default()
    };
    match known {
        Some(index) => conditions[index] = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn definition(plural: &str, kind: &str) -> CustomResourceDefinition {
        let mut definition = serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind, "shortNames": [&plural[..2]]},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        }))
        .expect("a definition");
        prepare_create(&mut definition);
        definition
    }

    fn conditions(status: &CustomResourceDefinitionStatus) -> Vec<(String, String, String)> {
        let all = status.conditions.iter().flatten().cloned();
        all.map(|c| {
            (format!("{}={}", c.type_, c.status), c.reason.unwrap_or_default(), c.message.unwrap_or_default())
        })
        .collect()
    }

    #[test]
    fn names_are_taken_once_3_22() {
        let now = Timestamp::UNIX_EPOCH;
        let mut widgets = definition("widgets", "Widget");
        widgets.status = Some(settle(&widgets, [&widgets], now));
        let status = widgets.status.clone().expect("settled");
        assert_eq!(
            conditions(&status),
            [
                ("NamesAccepted=True".into(), "NoConflicts".into(), "no conflicts found".into()),
                (
                    "Established=True".into(),
                    "InitialNamesAccepted".into(),
                    "the initial names have been accepted".into()
                ),
            ]
        );
        assert_eq!(settle(&widgets, [&widgets], now), status, "settling again changes nothing");
        let gadgets = definition("gadgets", "Widget");
        let status = settle(&gadgets, [&widgets, &gadgets], now);
        assert_eq!(
            conditions(&status),
            [
                (
                    "NamesAccepted=False".into(),
                    "ListKindConflict".into(),
                    "\"WidgetList\" is already in use".into()
                ),
                ("Established=False".into(), "NotAccepted".into(), "not all names are accepted".into()),
            ]
        );
        let names = serde_json::to_value(status.accepted_names).expect("names");
        let expected: Value = json!({"plural": "gadgets", "kind": "", "shortNames": ["ga"]});
        assert_eq!(names, expected);
    }

    #[test]
    fn groups_of_the_project_tell_who_approved() {
        let now = Timestamp::UNIX_EPOCH;
        let mut widgets = definition("widgets", "Widget");
        widgets.spec.group = "widgets.k8s.io".to_owned();
        let url = "https://github.com/kubernetes/kubernetes/pull/1";
        widgets.metadata.annotations =
            Some([("api-approved.kubernetes.io".to_owned(), url.to_owned())].into());
        let told = conditions(&settle(&widgets, [&widgets], now));
        let expected = (
            "KubernetesAPIApprovalPolicyConformant=True".into(),
            "ApprovedAnnotation".into(),
            format!("approved in {url}"),
        );
        assert_eq!(told.last(), Some(&expected));
        assert_eq!(told.len(), 3);
    }

    #[test]
    fn without_a_good_authority_nothing_is_established() {
        let now = Timestamp::UNIX_EPOCH;
        let mut widgets = definition("widgets", "Widget");
        widgets.spec.conversion = serde_json::from_value(json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://a.b", "caBundle": "d29yZHM="},
        }}))
        .expect("a conversion");
        let status = settle(&widgets, [&widgets], now);
        let expected = (
            "Established=False".into(),
            "InvalidCABundle".into(),
            "The conversion webhook CABundle is invalid".into(),
        );
        assert_eq!(conditions(&status).last(), Some(&expected));
        widgets.status = Some(status);
        widgets.spec.conversion = None;
        let status = settle(&widgets, [&widgets], now);
        assert_eq!(conditions(&status).last().expect("conditions").0, "Established=True");
    }

    #[test]
    fn a_new_storage_version_is_remembered() {
        let old = definition("widgets", "Widget");
        let mut new = old.clone();
        let mut second = new.spec.versions[0].clone();
        (second.name, new.spec.versions[0].storage) = ("v2".to_owned(), false);
        new.spec.versions.push(second);
        prepare_update(&mut new, &old);
        assert_eq!(new.status.expect("kept").stored_versions, Some(vec!["v1".to_owned(), "v2".to_owned()]));
        assert_eq!(new.metadata.generation, Some(2));
    }
}
