//! Gives every namespace its service account `default`, and the certificate by which pods know the API server.

use std::collections::BTreeMap;
use std::future::Future;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{Api, ObjectMeta};
use reconcile::{Key, Next, Queue};

use crate::context::Context;
use crate::kinds::Kind;
use crate::{Run, api};

/// Namespaces that are worked on at once.
const AT_ONCE: usize = 16;
/// The service account that every namespace has.
const DEFAULT: &str = "default";
/// The ConfigMap with the certificate that every namespace has.
const ROOT_CA: &str = "kube-root-ca.crt";
const DESCRIPTION_KEY: &str = "kubernetes.io/description";
const DESCRIPTION: &str = "The certificates that sign the API server's own, for pods that speak to it as \
                           kubernetes.default.svc. Nothing else is promised about them.";

/// Says what the service account controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let accounts = context.kinds.service_accounts.wanted();
    let queue = every_namespace(context, &accounts, DEFAULT);
    let context = context.clone();
    Box::pin(async move {
        accounts.ready().await;
        run(&context, &queue, |context, namespace| async move { ensure_account(&context, namespace).await })
            .await;
    })
}

/// Says what the publisher of root certificates watches, and returns its work.
pub(crate) fn prepare_root_ca(context: &Context) -> Run {
    let maps = context.kinds.config_maps.wanted();
    let queue = every_namespace(context, &maps, ROOT_CA);
    let context = context.clone();
    Box::pin(async move {
        maps.ready().await;
        run(&context, &queue, |context, namespace| async move { ensure_root_ca(&context, namespace).await })
            .await;
    })
}

/// A queue that holds a namespace when it comes, and when its object of this name changes or goes.
fn every_namespace<K>(context: &Context, kind: &Kind<K>, name: &'static str) -> Queue<Key> {
    let queue: Queue<Key> = Queue::new();
    let line = queue.clone();
    context.kinds.namespaces.on_change(move |change| {
        if change.new.is_some() {
            line.add(change.key.clone());
        }
    });
    let line = queue.clone();
    kind.on_change(move |change| {
        if change.key.name == name && change.old.is_some() {
            line.add(Key::new("", &change.key.namespace));
        }
    });
    queue
}

async fn run<F>(context: &Context, queue: &Queue<Key>, ensure: fn(Context, String) -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    context.kinds.namespaces.ready().await;
    queue
        .run(AT_ONCE, |key| async move {
            let namespace = context.kinds.namespaces.get(&key);
            if !namespace.is_some_and(|namespace| is_active(&namespace)) {
                return Ok(Next::Done);
            }
            ensure(context.clone(), key.name).await.map(|()| Next::Done)
        })
        .await;
}

fn is_active(namespace: &Namespace) -> bool {
    namespace.metadata.deletion_timestamp.is_none()
        && namespace.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Terminating")
}

async fn ensure_account(context: &Context, namespace: String) -> Result<(), Error> {
    if context.kinds.service_accounts.get(&Key::new(&namespace, DEFAULT)).is_some() {
        return Ok(());
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(context.client.clone(), &namespace);
    let account = ServiceAccount { metadata: named(DEFAULT), ..ServiceAccount::default() };
    match accounts.create(&api::post(), &account).await {
        Ok(created) => context.kinds.service_accounts.put(created),
        Err(error) if is_moot(&error) => {}
        Err(source) => return Err(Error::Account { namespace, source }),
    }
    Ok(())
}

async fn ensure_root_ca(context: &Context, namespace: String) -> Result<(), Error> {
    let Some(certificate) = &context.settings.root_ca else { return Ok(()) };
    let data = BTreeMap::from([("ca.crt".to_owned(), certificate.clone())]);
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
    let written = match context.kinds.config_maps.get(&Key::new(&namespace, ROOT_CA)) {
        None => {
            let mut metadata = named(ROOT_CA);
            metadata.annotations =
                Some(BTreeMap::from([(DESCRIPTION_KEY.to_owned(), DESCRIPTION.to_owned())]));
            let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
            maps.create(&api::post(), &map).await
        }
        Some(known) => {
            let described = known.metadata.annotations.as_ref();
            let described =
                described.and_then(|all| all.get(DESCRIPTION_KEY)).is_some_and(|text| !text.is_empty());
            if known.data.as_ref() == Some(&data) && described {
                return Ok(());
            }
            let mut map = (*known).clone();
            map.data = Some(data);
            let annotations = map.metadata.annotations.get_or_insert_default();
            annotations.insert(DESCRIPTION_KEY.to_owned(), DESCRIPTION.to_owned());
            maps.replace(ROOT_CA, &api::post(), &map).await
        }
    };
    match written {
        Ok(written) => context.kinds.config_maps.put(written),
        Err(error) if is_moot(&error) => {}
        Err(source) => return Err(Error::RootCa { namespace, source }),
    }
    Ok(())
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// Somebody else was faster, or the namespace is going.
fn is_moot(error: &kube::Error) -> bool {
    api::is_already_exists(error) || api::is_not_found(error) || api::is_namespace_terminating(error)
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("failed to create the default service account of namespace {namespace}")]
    Account { namespace: String, source: kube::Error },
    #[error("failed to write the root certificates of namespace {namespace}")]
    RootCa { namespace: String, source: kube::Error },
}
