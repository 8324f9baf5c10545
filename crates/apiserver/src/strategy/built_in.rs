//! Built-in kinds: their rules are in [`rules::kind`], here they meet the resources that are served.

use std::borrow::Cow;

use jiff::Timestamp;
use rules::field::Errors;
use rules::job::Settings;
use rules::kind::endpoints::{self, Facts};
use rules::kind::{self, Kind};
use rules::meta::system::Identity;
use rules::write::{Accepted, Refused};
use serde_json::Value;

use super::Strategy;
use super::certificates;
use super::forms::{self, Form};
use crate::admission::compiled;
use crate::object;
use crate::registry::Resource;

pub(super) struct BuiltIn {
    kind: &'static dyn Kind,
    facts: Facts,
    /// Where clients see another form than the one that is judged and kept.
    form: Option<Form>,
}

impl BuiltIn {
    pub(super) fn of(resource: &Resource, settings: Settings) -> Self {
        let form = forms::of(resource);
        let kept_as = form.map_or(resource, |form| form.kept_as());
        BuiltIn { kind: kind::of(&resource.group, &resource.kind), facts: facts(kept_as, settings), form }
    }

    fn sent<'a>(&self, body: &'a Value) -> Cow<'a, Value> {
        self.form.map_or(Cow::Borrowed(body), |form| Cow::Owned(form.sent(body)))
    }

    /// What is wrong with expressions and certificates, which is told in its place among everything else.
    fn expressions(&self, sent: &Value) -> Errors {
        let group = group_of(&self.facts);
        let mut errors = compiled::errors(group, &self.facts.kind, sent);
        errors.extend(certificates::errors(group, &self.facts.kind, sent));
        errors
    }

    fn seen(&self, mut accepted: Accepted) -> Accepted {
        if let Some(form) = self.form {
            accepted.object = form.seen(&accepted.object);
        }
        accepted
    }
}

fn group_of(facts: &Facts) -> &str {
    facts.api_version.split_once('/').map_or("", |(group, _)| group)
}

fn facts(resource: &Resource, settings: Settings) -> Facts {
    Facts {
        of: resource.of_type(),
        api_version: resource.api_version(),
        kind: resource.kind.clone(),
        namespaced: resource.namespaced,
        has_status: resource.subresource("status").is_some(),
        allow_privileged: settings.allow_privileged,
    }
}

impl Strategy for BuiltIn {
    fn with_defaults(&self, body: &Value, stored: Option<&Value>) -> Value {
        let stored = stored.filter(|_| self.form.is_none());
        let defaulted = endpoints::with_defaults(self.kind, &self.facts, &self.sent(body), stored);
        match self.form {
            None => defaulted,
            Some(form) => form.seen(&defaulted),
        }
    }

    fn create(&self, body: &Value, namespace: &str, identity: Identity) -> Result<Accepted, Refused> {
        let sent = self.sent(body);
        let expressions = self.expressions(&sent);
        let facts = &self.facts;
        Ok(self.seen(endpoints::create(self.kind, facts, &sent, namespace, identity, &expressions)?))
    }

    fn update(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        let (body, stored) = (self.sent(body), self.sent(stored));
        let expressions = self.expressions(&body);
        Ok(self.seen(endpoints::update(self.kind, &self.facts, &body, &stored, &expressions)?))
    }

    fn update_status(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        self.update_subresource("status", body, stored)
    }

    fn update_subresource(&self, name: &str, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        let (body, stored) = (self.sent(body), self.sent(stored));
        let errors = certificates::errors(group_of(&self.facts), &self.facts.kind, &body);
        let accepted = endpoints::update_subresource(self.kind, &self.facts, name, &body, &stored, &errors)?;
        Ok(self.seen(accepted))
    }

    /// A namespace tells that it is being emptied.
    fn leaving(&self, stored: &Value, now: Timestamp) -> Option<Value> {
        (self.facts.kind == "Namespace").then(|| {
            let mut new = stored.clone();
            new["metadata"]["deletionTimestamp"] = object::time(now).into();
            new["status"]["phase"] = "Terminating".into();
            new
        })
    }

    fn fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        self.kind.fields(object)
    }

    fn selectable(&self) -> &'static [&'static str] {
        self.kind.selectable()
    }
}
