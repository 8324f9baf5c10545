//! What the proxy does to requests on their way.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::PostParams, runtime::wait::await_condition};
use testkit::{Fault, Proxy};
use tokio::time::{Instant, sleep, timeout};

use crate::{CLUSTER, named};

const SOON: Duration = Duration::from_secs(30);
const NOT_YET: Duration = Duration::from_millis(500);

/// A namespace, once reached directly and once through a proxy.
struct Ways {
    proxy: Proxy,
    through: Api<ConfigMap>,
    direct: Api<ConfigMap>,
    namespace: String,
}

impl Ways {
    async fn open() -> anyhow::Result<Option<Ways>> {
        let Some(cluster) = CLUSTER.for_test().await else { return Ok(None) };
        let namespace = cluster.namespace("proxy").await?;
        let proxy = cluster.proxy().await?;
        let through = Api::namespaced(proxy.client(), &namespace);
        let direct = Api::namespaced(cluster.client(), &namespace);
        through.create(&PostParams::default(), &named("first")).await.context("nothing is wrong yet")?;
        Ok(Some(Ways { proxy, through, direct, namespace }))
    }

    /// Waits until an object is there, whoever knows of it.
    async fn stored(&self, name: &str) -> anyhow::Result<()> {
        Ok(await_condition(self.direct.clone(), name, |map: Option<&ConfigMap>| map.is_some())
            .await
            .map(drop)?)
    }

    /// A client that has no connection yet.
    fn fresh(&self) -> Api<ConfigMap> {
        Api::namespaced(self.proxy.client(), &self.namespace)
    }
}

async fn create(api: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    api.create(&PostParams::default(), &named(name)).await
}

#[tokio::test]
async fn dropped_requests_arrive_after_healing() -> anyhow::Result<()> {
    let Some(ways) = Ways::open().await? else { return Ok(()) };
    ways.proxy.inject(Fault::Drop);
    let (used, unused) = (ways.through.clone(), ways.fresh());
    let mut both = Box::pin(async { tokio::join!(create(&used, "used"), create(&unused, "unused")) });
    assert!(timeout(NOT_YET, &mut both).await.is_err());
    assert!(ways.direct.get_opt("used").await?.is_none(), "the request has not arrived");
    ways.proxy.heal();
    let (used, unused) = timeout(SOON, both).await?;
    used.and(unused)?;
    Ok(())
}

#[tokio::test]
async fn delayed_requests_arrive_late() -> anyhow::Result<()> {
    let Some(ways) = Ways::open().await? else { return Ok(()) };
    ways.proxy.inject(Fault::Delay(NOT_YET));
    let started = Instant::now();
    create(&ways.through, "late").await?;
    assert!(started.elapsed() >= 2 * NOT_YET, "there and back: {:?}", started.elapsed());
    ways.proxy.inject(Fault::Delay(Duration::from_secs(3600)));
    assert!(timeout(NOT_YET, create(&ways.through, "too-late")).await.is_err());
    ways.proxy.heal();
    timeout(SOON, create(&ways.fresh(), "prompt")).await??;
    Ok(())
}

#[tokio::test]
async fn cut_connections_fail_at_once() -> anyhow::Result<()> {
    let Some(ways) = Ways::open().await? else { return Ok(()) };
    ways.proxy.inject(Fault::Cut);
    for way in [&ways.through, &ways.fresh()] {
        let answer = timeout(SOON, create(way, "never")).await?;
        assert!(!matches!(answer, Ok(_) | Err(kube::Error::Api(_))), "no server said this: {answer:?}");
    }
    ways.proxy.heal();
    create(&ways.through, "again").await?;
    assert!(ways.direct.get_opt("never").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn swallowed_answers_are_to_requests_that_took_effect() -> anyhow::Result<()> {
    let Some(ways) = Ways::open().await? else { return Ok(()) };
    ways.proxy.inject(Fault::SwallowAnswers);
    for (way, name) in [(&ways.through, "on-a-used-connection"), (&ways.fresh(), "on-a-new-connection")] {
        let mut lost = Box::pin(create(way, name));
        tokio::select! {
            answer = &mut lost => panic!("an answer came through: {answer:?}"),
            stored = timeout(SOON, ways.stored(name)) => stored??,
        }
        assert!(timeout(NOT_YET, &mut lost).await.is_err(), "nor does it later");
    }
    ways.proxy.heal();
    let answer = timeout(SOON, create(&ways.fresh(), "on-a-used-connection")).await?;
    assert!(matches!(&answer, Err(kube::Error::Api(status)) if status.is_already_exists()), "{answer:?}");
    Ok(())
}

#[tokio::test]
async fn a_request_without_an_answer_fails_when_healing_closes_its_connection() -> anyhow::Result<()> {
    let Some(ways) = Ways::open().await? else { return Ok(()) };
    ways.proxy.inject(Fault::SwallowAnswers);
    let (lost, heal) = tokio::join!(create(&ways.through, "lost"), async {
        timeout(SOON, ways.stored("lost")).await??;
        sleep(NOT_YET).await; // for the answer to reach the proxy
        ways.proxy.heal();
        anyhow::Ok(())
    });
    heal?;
    assert!(
        !matches!(lost, Ok(_) | Err(kube::Error::Api(_))),
        "the answer does not come after all: {lost:?}"
    );
    Ok(())
}

#[tokio::test]
async fn its_kubeconfig_goes_through_it() -> anyhow::Result<()> {
    use kube::{
        Config,
        config::{KubeConfigOptions, Kubeconfig},
    };
    let Some(ways) = Ways::open().await? else { return Ok(()) };
    let kubeconfig = Kubeconfig::read_from(ways.proxy.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = Client::try_from(config)?;
    client.apiserver_version().await?;
    ways.proxy.inject(Fault::Cut);
    assert!(client.apiserver_version().await.is_err());
    Ok(())
}
