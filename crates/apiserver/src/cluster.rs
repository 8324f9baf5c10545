//! One cluster: a store, what is served from it, and how a request finds its way.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header, request};
use rules::job::Settings;
use rules::meta::system::Identity;
use store::{Draft, Object, Revision, Scope, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admission::{Chain, Plugin};
use crate::aggregator::{self, Aggregator, Neighbour, availability};
use crate::answer::{self, Answer, accept, form};
use crate::apply::{Entries, Tracked};
use crate::auth::authn::Authenticator;
use crate::auth::front_proxy::FrontProxies;
use crate::auth::rbac::{Authorizer, aggregation};
use crate::auth::signer::Signer;
use crate::auth::tokens::Tokens;
use crate::auth::{self, User, openid, reviews};
use crate::crd::conversion::Converter;
use crate::crd::definitions::Definitions;
use crate::metrics::{self, Labels, Metrics};
use crate::node::Nodes;
use crate::object;
use crate::openapi::Documents;
use crate::registry::{Registry, Resource};
use crate::request::{Asked, Query, Target, Verb, decoded_path, is_decodable};
use crate::status::Refusal;
use crate::strategy::node_ports::Ports;
use crate::strategy::traits::Traits;
use crate::strategy::{self, Strategy, forms};
use crate::{bootstrap, deadline, discovery, expiry, flow_schemas, options, subresources, verbs};

/// The largest body that is read (1.2).
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// How long a client waits at most for a definition to be carried out.
const CARRIED_OUT_WITHIN: Duration = Duration::from_secs(1);

/// A cluster. Cheap to clone; all clones are the same cluster.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    store: Store,
    registry: watch::Sender<Arc<Registry>>,
    strategies: HashMap<(String, String), Arc<dyn Strategy>>,
    authorizer: Arc<Authorizer>,
    admission: Chain,
    tokens: Arc<Tokens>,
    /// Who finds out who asks from outside of this process, if anybody can.
    authenticator: OnceLock<Arc<Authenticator>>,
    nodes: Nodes,
    node_ports: Ports,
    /// Clients of this process without an identity.
    server: Arc<User>,
    /// How far definitions are carried out.
    defined: watch::Sender<Revision>,
    /// What works in the background. It ends with the cluster.
    background: OnceLock<JoinSet<()>>,
    aggregator: Aggregator,
    documents: Documents,
    metrics: Metrics,
}

/// A cluster that may be gone, for what works in its background and ends with it.
#[derive(Clone)]
pub(crate) struct Handle(Weak<Inner>);

impl Handle {
    pub(crate) fn upgrade(&self) -> Option<Cluster> {
        self.0.upgrade().map(Cluster)
    }
}

/// What a cluster is made with, besides its store.
#[derive(Default)]
pub struct Setup {
    /// What differs in the rules of Jobs.
    pub settings: Settings,
    /// Who else has a say in writes.
    pub plugins: Vec<Arc<dyn Plugin>>,
    /// Who gets custom resources from one version to another, where their definitions leave it to the server.
    pub converters: Vec<Arc<dyn Converter>>,
    /// Signs the tokens of service accounts. Without one they are good for as long as the process lives.
    pub signer: Option<Signer>,
    /// Pods run as service accounts, and get their tokens. Only where a controller makes the one that every namespace has,
    /// or pods will be refused.
    pub service_accounts: bool,
    /// Who is believed when he says for whom he asks, besides the cluster itself.
    pub front_proxies: Option<FrontProxies>,
    /// API servers of other groups in this process.
    pub neighbours: Vec<Arc<dyn Neighbour>>,
}

/// A request about objects of a known resource.
pub(crate) struct Context<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) target: &'a Target,
    pub(crate) resource: &'a Arc<Resource>,
    pub(crate) strategy: &'a dyn Strategy,
    pub(crate) query: &'a Query,
    /// Who asks.
    pub(crate) user: &'a User,
    /// In which form the client wants the answer.
    pub(crate) form: accept::Form,
    pub(crate) head: &'a request::Parts,
}

impl Cluster {
    /// A cluster over a store. Makes sure that its first objects are there.
    pub async fn open(store: Store, settings: Settings) -> Result<Self, Refusal> {
        Cluster::open_with(store, Setup { settings, ..Setup::default() }).await
    }

    /// A cluster over a store, with what else it is to have.
    pub async fn open_with(store: Store, setup: Setup) -> Result<Self, Refusal> {
        let Setup { settings, plugins, converters, signer, service_accounts, front_proxies, neighbours } =
            setup;
        let signer = signer.map_or_else(Signer::generate, Ok).map_err(Refusal::internal)?;
        let built_in = Registry::built_in();
        let strategies = built_in
            .iter()
            .filter(|resource| resource.allows("get") || reviews::is_review(resource))
            .map(|resource| {
                ((resource.api_version(), resource.plural.clone()), strategy::of(resource, settings))
            })
            .collect();
        let authorizer = Arc::new(Authorizer::new(store.clone()));
        let registry = watch::Sender::new(Arc::new(built_in.clone()));
        let defined = watch::Sender::new(Revision(0));
        let cluster = Cluster(Arc::new(Inner {
            admission: Chain::of(&store, &authorizer, service_accounts, plugins),
            authorizer,
            tokens: Arc::new(Tokens::new(store.clone(), signer)),
            authenticator: OnceLock::new(),
            nodes: Nodes::default(),
            node_ports: Ports::default(),
            server: Arc::new(User::server()),
            store: store.clone(),
            registry: registry.clone(),
            strategies,
            defined: defined.clone(),
            background: OnceLock::new(),
            aggregator: Aggregator::new(front_proxies, neighbours).map_err(Refusal::internal)?,
            documents: Documents::default(),
            metrics: Metrics::default(),
        }));
        let handle = Handle(Arc::downgrade(&cluster.0));
        let (definitions, watch) =
            Definitions::load(handle.clone(), &store, registry, defined, converters.into());
        let mut background = JoinSet::new();
        background.spawn(definitions.run(watch));
        bootstrap::ensure(&cluster).await?;
        // At once, so that a cluster that nobody has asked anything has nothing to do.
        flow_schemas::tell(&cluster).await;
        background.spawn(bootstrap::keep_namespaces(handle.clone()));
        background.spawn(aggregation::run(handle.clone()));
        background.spawn(availability::run(handle.clone()));
        background.spawn(flow_schemas::run(handle.clone()));
        background.spawn(expiry::run(handle));
        cluster.0.background.get_or_init(|| background);
        Ok(cluster)
    }

    /// Answers a request. Nothing that a client sends makes it fail.
    pub async fn answer(&self, request: Request<Bytes>) -> Answer {
        let (head, body) = request.into_parts();
        let (took, in_flight) = (metrics::clock(), self.0.metrics.begin(&head.method));
        let mut labels = Labels::of_method(&head.method);
        let answered = if body.len() > MAX_BODY {
            Err(Refusal::too_large(MAX_BODY))
        } else {
            self.route(&head, body, &mut labels).await
        };
        let mut answer = answered.unwrap_or_else(|refusal| {
            let query = Query::read(head.uri.query().unwrap_or(""));
            answer::refusal_in(accept::for_refusal(&head.headers, &query), &refusal)
        });
        if head.method == Method::HEAD {
            *answer.body_mut() = answer::Body::default();
        }
        let answer = answer::finish::finished(&head, answer).await;
        self.0.metrics.end(labels, answer.status(), took());
        drop(in_flight);
        answer
    }

    /// Tells at `/metrics` what others in this process count, for as long as they hold it.
    pub fn publish(&self, counts: &Arc<metrics::Counts>) {
        self.0.metrics.publish(counts);
    }

    /// Ports of nodes that services are about to get.
    pub(crate) fn node_ports(&self) -> &Ports {
        &self.0.node_ports
    }

    /// What is counted.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Whether its sender may make a request, as far as its head tells.
    pub(crate) fn may_ask(&self, head: &request::Parts) -> bool {
        let sender = head.extensions.get::<Arc<User>>().unwrap_or(&self.0.server);
        // Masters may anything; as whom they ask is looked at later.
        if sender.is_in(auth::user::MASTERS) {
            return true;
        }
        let query = Query::read(head.uri.query().unwrap_or(""));
        let asked = Asked::read(&head.method, head.uri.path(), &query);
        asked.is_none_or(|asked| auth::admitted(self.authorizer(), sender, head, &asked, &query).is_ok())
    }

    /// What the cluster asks of itself, as anybody may ask it.
    pub(crate) async fn asked_by_itself(&self, request: Request<Bytes>) -> Result<Answer, Refusal> {
        let (head, body) = request.into_parts();
        let query = Query::read(head.uri.query().unwrap_or(""));
        let asked = Asked::read(&head.method, head.uri.path(), &query);
        let mut labels = Labels::of_method(&head.method);
        Box::pin(self.look_into(&head, body, &query, asked, &mut labels)).await
    }

    async fn route(
        &self,
        head: &request::Parts,
        body: Bytes,
        labels: &mut Labels,
    ) -> Result<Answer, Refusal> {
        if !is_decodable(head.uri.path()) {
            return Ok(answer::text(StatusCode::BAD_REQUEST, "400 Bad Request"));
        }
        let query = Query::read(head.uri.query().unwrap_or(""));
        let asked = Asked::read(&head.method, head.uri.path(), &query);
        match deadline::of(asked.as_ref(), &query)? {
            None => self.look_into(head, body, &query, asked, labels).await,
            Some(within) => {
                let answered =
                    tokio::time::timeout(within, self.look_into(head, body, &query, asked, labels));
                answered.await.unwrap_or_else(|_| Ok(deadline::missed()))
            }
        }
    }

    /// What a request is answered, however long that takes.
    async fn look_into(
        &self,
        head: &request::Parts,
        body: Bytes,
        query: &Query,
        asked: Option<Asked>,
        labels: &mut Labels,
    ) -> Result<Answer, Refusal> {
        let sender = head.extensions.get::<Arc<User>>().unwrap_or(&self.0.server);
        let Some(asked) = asked else {
            return self.without_verb(head, sender, query);
        };
        let user = auth::admitted(self.authorizer(), sender, head, &asked, query)?;
        // Who may ask is told by the path without its first slashes, what is there by all of it.
        if decoded_path(head.uri.path()).starts_with("//") {
            return Ok(answer::text(StatusCode::NOT_FOUND, "404 page not found\n"));
        }
        if let Some(remote) = aggregator::responsible(self, &asked) {
            return Ok(aggregator::pass_on(self, &remote, head, body, &user).await);
        }
        if let Some(neighbour) = aggregator::neighbour(self, &asked) {
            return Ok(neighbour.answer(head).await);
        }
        let target = match asked {
            Asked::Resource(target) => target,
            Asked::Path(path) => {
                let openid = openid::answer(self.tokens(), &path, head);
                return openid.map_or_else(|| discovery::answer(self, &path, head), Ok);
            }
        };
        let resource = self.registry().get(&target.group, &target.version, &target.resource).cloned();
        let Some(resource) = resource.filter(|resource| is_in_scope(resource, &target)) else {
            if Registry::built_in().has_group(&target.group) {
                return Err(Refusal::unknown_resource());
            }
            return Ok(answer::text(StatusCode::NOT_FOUND, "404 page not found\n"));
        };
        let resource = &resource;
        let is_known = target.subresource.as_deref().is_none_or(|name| resource.subresource(name).is_some());
        let is_apply = head.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == verbs::patch::APPLY);
        *labels = Labels::of_target(&target, is_known, is_apply, query.get("dryRun") == Some("All"));
        if (resource.group.as_str(), resource.plural.as_str()) == ("", "bindings") {
            if target.verb != Verb::Create || target.name.is_some() {
                return Err(Refusal::method_not_allowed());
            }
            return subresources::binding::create_legacy(self, &target, query, head, &user, &body).await;
        }
        let strategy = self.strategy(resource).ok_or_else(Refusal::method_not_allowed)?;
        // What is passed on is for somebody else to read.
        let form = if subresources::connect::is_connection(resource, &target) {
            subresources::connect::expect_real(query)?;
            accept::Form::PLAIN
        } else {
            let form = accept::negotiate(&head.headers, query, accept::Offer::of(resource, &target))?;
            // A body that nobody reads is refused before its options are (as upstream does it for two of the verbs).
            if !verbs::is_unread(resource, &target, &head.headers) {
                options::expect(target.verb, query)?;
            }
            form
        };
        let context = Context {
            cluster: self,
            target: &target,
            resource,
            strategy: &*strategy,
            query,
            user: &user,
            form,
            head,
        };
        let carried_out = match deadline::of_write(&target) {
            None => self.carry_out(&context, &body).await,
            Some(within) => {
                let carried_out = tokio::time::timeout(within, self.carry_out(&context, &body));
                carried_out.await.unwrap_or_else(|_| Err(deadline::exceeded()))
            }
        };
        let answered = match carried_out {
            Ok(answer) => form::shown(&context, form, answer).await,
            refused => refused,
        };
        let deprecation = match &resource.custom {
            Some(custom) => custom.version().deprecation.clone(),
            None => Traits::of(resource).deprecation.map(str::to_owned),
        };
        let is_served = target.subresource.as_deref().is_none_or(|name| resource.subresource(name).is_some());
        let is_allowed = target.verb == Verb::Watch
            || !matches!(&answered, Err(refusal) if refusal.code() == StatusCode::METHOD_NOT_ALLOWED);
        let deprecation = deprecation.filter(|_| is_served && is_allowed);
        if let Some(warning) = deprecation {
            let refused = |refusal| answer::refusal_in(accept::for_refusal(&head.headers, query), &refusal);
            let mut answer = answered.unwrap_or_else(refused);
            answer::warn(&mut answer, &[warning]);
            return Ok(answer);
        }
        let answered = answered?;
        if target.subresource.is_none() && resource.is_definition() {
            self.definition_carried_out(&context).await;
        }
        Ok(answered)
    }

    /// No verb fits the method; but what is not there is not there, whatever is asked of it, and whoever may not ask learns
    /// neither.
    fn without_verb(
        &self,
        head: &request::Parts,
        sender: &Arc<User>,
        query: &Query,
    ) -> Result<Answer, Refusal> {
        let asked = Asked::read(&Method::GET, head.uri.path(), query);
        if let Some(asked) = &asked {
            auth::admitted(self.authorizer(), sender, head, asked, query)?;
        }
        if let Some(Asked::Resource(target)) = asked {
            let found = self.registry().get(&target.group, &target.version, &target.resource).cloned();
            let found = found.filter(|resource| is_in_scope(resource, &target));
            let is_known = found.is_some_and(|resource| {
                target.subresource.as_deref().is_none_or(|name| resource.subresource(name).is_some())
            });
            if !is_known && !Registry::built_in().has_group(&target.group) {
                return Ok(answer::text(StatusCode::NOT_FOUND, "404 page not found\n"));
            }
            if !is_known {
                return Err(Refusal::unknown_resource());
            }
        }
        Err(Refusal::method_not_allowed())
    }

    async fn carry_out(&self, context: &Context<'_>, body: &Bytes) -> Result<Answer, Refusal> {
        let Context { target, resource, .. } = context;
        match (target.subresource.as_deref(), target.verb) {
            // The router in front of built-in resources knows which methods go with a name.
            (None, Verb::Create) if resource.custom.is_none() && target.name.is_some() => {
                Err(Refusal::method_not_allowed())
            }
            (None, Verb::Update | Verb::Patch) if resource.custom.is_none() && target.name.is_none() => {
                Err(Refusal::method_not_allowed())
            }
            (None, Verb::Create | Verb::DeleteCollection)
                if resource.namespaced && target.namespace.is_none() =>
            {
                Err(Refusal::method_not_allowed())
            }
            (_, _) if reviews::is_review(resource) && target.name.is_some() => {
                Err(Refusal::unknown_resource())
            }
            (None, Verb::Watch) if resource.allows("list") && !resource.allows("watch") => {
                Err(Refusal::not_supported(context.about(), "watch"))
            }
            // What is discovered of a custom resource whose definition leaves is less than what it answers.
            (None, verb) if resource.custom.is_none() && !resource.allows(verb.word()) => {
                Err(Refusal::method_not_allowed())
            }
            (None, Verb::Get) => verbs::get::get(context).await,
            (None, Verb::List) => verbs::list::list(context).await,
            (None, Verb::Watch) => verbs::watch::watch(context).await,
            (None, Verb::Create) if reviews::is_review(resource) => reviews::create(context, body).await,
            (None, Verb::Create) => verbs::create::create(context, body).await,
            (None, Verb::Update) => verbs::update::update(context, body, false).await,
            (None, Verb::Patch) => verbs::patch::patch(context, body, false).await,
            (None, Verb::Delete) => verbs::delete::delete(context, body).await,
            (None, Verb::DeleteCollection) => verbs::delete::delete_collection(context, body).await,
            (Some(name), verb) => {
                let unknown = || match resource.custom {
                    Some(_) => Refusal::not_found(context.about()),
                    None => Refusal::unknown_resource(),
                };
                let subresource = resource.subresource(name).ok_or_else(unknown)?;
                if !subresource.verbs.iter().any(|known| known == verb.word()) {
                    return Err(match resource.custom {
                        Some(_) => Refusal::not_supported(context.about(), verb.word()),
                        None => Refusal::method_not_allowed(),
                    });
                }
                subresources::answer(context, name, body).await
            }
        }
    }

    /// Whoever changed a definition finds the change carried out: what it defines can be asked for.
    async fn definition_carried_out(&self, context: &Context<'_>) {
        if matches!(context.target.verb, Verb::Get | Verb::List | Verb::Watch) {
            return;
        }
        let scope = Scope::resource(&object::storage_name(context.resource));
        let Some(written) = self.store().view().list(&scope).map(|definition| definition.revision).max()
        else {
            return;
        };
        let mut defined = self.0.defined.subscribe();
        // The sender lives as long as the cluster; if it takes long, the client learns of it from the status.
        let carried_out = defined.wait_for(|defined| *defined >= written);
        let _ = tokio::time::timeout(CARRIED_OUT_WITHIN, carried_out).await;
    }

    /// Deletes an object as if somebody had asked for it.
    pub(crate) async fn remove(&self, resource: &Arc<Resource>, namespace: &str, name: &str) {
        let Some(strategy) = self.strategy(resource) else { return };
        let (head, ()) = Request::new(()).into_parts();
        let target = Target {
            verb: Verb::Delete,
            group: resource.group.clone(),
            version: resource.version.clone(),
            namespace: resource.namespaced.then(|| namespace.to_owned()),
            resource: resource.plural.clone(),
            name: Some(name.to_owned()),
            subresource: None,
        };
        let query = Query::default();
        let context = Context {
            cluster: self,
            target: &target,
            resource,
            strategy: &*strategy,
            query: &query,
            user: &self.0.server,
            form: accept::Form::PLAIN,
            head: &head,
        };
        let removed =
            verbs::delete::delete_in(&context, namespace, name, &crate::body::DeleteOptions::default()).await;
        if let Err(refusal) = removed.map(drop)
            && refusal.code() != StatusCode::NOT_FOUND
        {
            tracing::warn!(%refusal, resource = resource.plural, namespace, name, "an object was not removed");
        }
    }

    /// The cluster for what works in its background.
    pub(crate) fn handle(&self) -> Handle {
        Handle(Arc::downgrade(&self.0))
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    /// The cluster as somebody else than the server itself sees it, for a client in this process.
    pub fn as_user(&self, user: User) -> auth::Caller {
        auth::Caller::new(self.clone(), user)
    }

    pub(crate) fn authorizer(&self) -> &Authorizer {
        &self.0.authorizer
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    /// Says who finds out who asks from outside. The first one to say so is right.
    pub(crate) fn authenticated_by(&self, authenticator: &Arc<Authenticator>) {
        self.0.authenticator.get_or_init(|| authenticator.clone());
    }

    pub(crate) fn authenticator(&self) -> Option<&Authenticator> {
        self.0.authenticator.get().map(|authenticator| &**authenticator)
    }

    pub(crate) fn shared_tokens(&self) -> Arc<Tokens> {
        self.0.tokens.clone()
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.0.nodes
    }

    pub(crate) fn aggregator(&self) -> &Aggregator {
        &self.0.aggregator
    }

    pub(crate) fn admission(&self) -> &Chain {
        &self.0.admission
    }

    /// Documents of OpenAPI that were made.
    pub(crate) fn documents(&self) -> &Documents {
        &self.0.documents
    }

    /// What is served at this moment.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.0.registry.borrow().clone()
    }

    pub(crate) fn strategy(&self, resource: &Resource) -> Option<Arc<dyn Strategy>> {
        if let Some(custom) = &resource.custom {
            return Some(custom.clone());
        }
        let id = (resource.api_version(), resource.plural.clone());
        self.0.strategies.get(&id).cloned()
    }
}

/// A named object of a namespaced resource is asked for in its namespace, one of the others without.
fn is_in_scope(resource: &Resource, target: &Target) -> bool {
    match (resource.namespaced, &target.namespace) {
        (true, None) if resource.custom.is_some() => matches!(target.verb, Verb::List | Verb::Watch),
        (true, None) => target.name.is_none(),
        (true, Some(_)) => true,
        (false, namespace) => namespace.is_none() || resource.is_namespace(),
    }
}

impl Context<'_> {
    /// The namespace of the request; empty for all of them, and for objects without one.
    pub(crate) fn namespace(&self) -> &str {
        if self.resource.namespaced { self.target.namespace.as_deref().unwrap_or("") } else { "" }
    }

    /// The name of the object that is asked for.
    pub(crate) fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or("")
    }

    /// What errors about the object say.
    pub(crate) fn about(&self) -> crate::status::About<'_> {
        self.about_name(self.name())
    }

    /// What errors about another object of the resource say.
    pub(crate) fn about_name<'a>(&'a self, name: &'a str) -> crate::status::About<'a> {
        crate::status::About { group: &self.resource.group, resource: &self.resource.plural, name }
    }

    /// Whether nothing is to be stored (2.59).
    pub(crate) fn is_dry_run(&self) -> bool {
        self.query.all("dryRun").any(|value| value == "All")
    }

    /// A body with its defaults, in the form in which it would be stored; `None` if that is the form it has. `stored` is what
    /// it changes.
    pub(crate) fn canonical(
        &self,
        body: &serde_json::Value,
        stored: Option<&serde_json::Value>,
    ) -> Option<serde_json::Value> {
        let resource = self.resource;
        if resource.custom.is_some() {
            return None;
        }
        let of = resource.of_type();
        let mut object = self.strategy.with_defaults(body, stored);
        schema::settle(of, &mut object);
        object["apiVersion"] = serde_json::json!(resource.api_version());
        object["kind"] = serde_json::json!(resource.kind);
        Some(object)
    }

    /// Stored objects as clients of the requested version see them.
    pub(crate) async fn shown(&self, objects: &[Arc<Object>]) -> Result<Vec<Bytes>, Refusal> {
        let stored = objects.iter().map(|object| (object.revision, object.value.clone())).collect();
        self.resource.shown(stored).await
    }

    /// A stored object in the requested version, with who manages its fields beside it.
    pub(crate) async fn read_tracked(&self, object: &Object) -> Result<Tracked, Refusal> {
        match &self.resource.custom {
            None => {
                let read = object::read_tracked(object);
                Ok(match forms::of(self.resource) {
                    None => read,
                    Some(form) => Tracked { object: form.seen(&read.object), ..read },
                })
            }
            Some(custom) => custom.read_tracked(object).await,
        }
    }

    /// An object, in any of its versions, ready to be stored.
    pub(crate) async fn draft(
        &self,
        object: &serde_json::Value,
        managers: &Entries,
    ) -> Result<Draft, Refusal> {
        let Some(custom) = &self.resource.custom else {
            let kept = forms::of(self.resource).map(|form| form.kept(object));
            let object = kept.as_ref().unwrap_or(object);
            expect_depth(object)?;
            return Ok(object::draft(object, managers, &self.fields(object)));
        };
        let (object, managers, fields) = custom.stored(object, managers).await?;
        expect_depth(&object)?;
        Ok(object::draft(&object, &managers, &fields))
    }

    /// Fields that can be selected, of an object.
    pub(crate) fn fields(&self, object: &serde_json::Value) -> Vec<(&'static str, String)> {
        let text = |part: &str| object::text(object, &["metadata", part]).to_owned();
        let mut fields = vec![("metadata.name", text("name")), ("metadata.namespace", text("namespace"))];
        fields.extend(self.strategy.fields(object));
        fields
    }
}

/// What was sent nests no deeper than this, but others have a say in what becomes of it, and what is stored has to be
/// readable.
fn expect_depth(object: &serde_json::Value) -> Result<(), Refusal> {
    if schema::nests_within(object, schema::MAX_DEPTH) {
        return Ok(());
    }
    Err(Refusal::bad_request(format!("the object exceeds the max depth of {}", schema::MAX_DEPTH)))
}

/// A fresh identity for a new object.
pub(crate) fn identity() -> Identity {
    /// Characters of generated names: no vowels and nothing that looks like another (2.26).
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = uuid::Uuid::new_v4();
    let suffix =
        random.as_bytes().iter().take(5).map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]));
    Identity { uid: uuid::Uuid::new_v4().to_string(), now: jiff::Timestamp::now(), suffix: suffix.collect() }
}
