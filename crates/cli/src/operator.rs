//! `ferry operator`: queues, quota and dispatch on a cluster that is there, until it is told to stop.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use ::operator::Settings;
use ::operator::configuration::{Configuration, Lease};
use ::operator::definitions::{Conversion, expect_usable, install, states};
use ::operator::leader::{Leadership, ensure_namespace, lead};
use ::operator::visibility;
use ::operator::webhooks::server::{Reach, Webhooks};
use anyhow::Context as _;
use kube::Config;
use kube::config::KubeConfigOptions;
use reconcile::{Clock, Tasks};
use tokio::net::TcpListener;

use crate::failure::Hint as _;
use crate::install::UPDATE_KUEUE;
use crate::{arguments, connect, failure, output, process};

/// What helps whose kubeconfig leads nowhere.
const WHICH_CONTEXT: &str =
    "--context NAME chooses one of the contexts of the kubeconfig; kubectl config get-contexts lists them";

/// The Service of Kueue's manifests.
const VISIBILITY_SERVICE: &str = "kueue-visibility-server";

/// Acts until SIGTERM or SIGINT, or until somebody else does. Prints one line when it begins.
pub(crate) fn run(arguments: &arguments::Operator) -> anyhow::Result<ExitCode> {
    process::serve(async {
        let stopped = process::stopped()?;
        tokio::pin!(stopped);
        let wanted = Wanted::of(arguments)?;
        let config = config(arguments).await?;
        let url = config.cluster_url.to_string();
        let client = ::operator::client(config).context("failed to prepare a client");
        let client = client.hint(connect::WHAT_IS_WRONG)?;
        let clock = Clock::system();
        // Ports are taken first: one that is not free is found before anybody is kept from acting.
        let mut listeners = Vec::new();
        for address in &wanted.listen {
            let bound = TcpListener::bind(address).await;
            let bound = bound.with_context(|| format!("failed to listen on {address}"));
            listeners.push(bound.hint("--listen ADDRESS chooses another one; or stop who listens there")?);
        }
        // Whoever does not lead yet sees what there is, answers webhooks and says who waits all the same.
        let mut tasks = Tasks::new();
        let operator =
            ::operator::observe(client.clone(), wanted.settings.clone(), clock.clone(), &mut tasks);
        let leadership = wanted.leadership();
        let (mut webhooks, mut served) = (None, None);
        let begin = async {
            ensure_namespace(&client, &leadership).await?;
            // Where nothing can be read, it does not help to wait for one's turn.
            expect_usable(&states(&client).await?).hint(UPDATE_KUEUE)?;
            webhooks = match wanted.webhooks.clone() {
                Some((address, reach)) => {
                    let listens = Webhooks::listen(operator.clone(), address, reach, &mut tasks).await;
                    let hint = "--webhook-listen ADDRESS chooses another one; or stop who listens there";
                    Some(listens.hint_if(|error| !failure::is_answer(error), hint)?)
                }
                None => None,
            };
            if let Some((address, service)) = &wanted.visibility {
                let serves = visibility::server::serve(operator.clone(), *address, service, &mut tasks).await;
                let hint = "--visibility-listen ADDRESS chooses another one; or stop who listens there";
                serves.hint_if(|error| !failure::is_answer(error), hint)?;
            }
            // Last: who is said to be ready is asked.
            for listener in listeners {
                let serve = ::operator::serve::serve(operator.clone(), listener, &mut tasks);
                served = served.or(Some(serve.context("failed to serve")?));
            }
            anyhow::Ok(lead(client.clone(), leadership.clone(), clock).await?)
        };
        let leader = tokio::select! {
            biased;
            () = &mut stopped => None,
            begun = begin => Some(begun?),
        };
        let Some(mut leader) = leader else {
            // Who does not act answers all the same.
            end(webhooks).await;
            return Ok(ExitCode::SUCCESS);
        };
        let (mut leads, mut acting) = (true, Tasks::new());
        // The Lease is kept from the first moment on, however long it takes to begin.
        let ended = tokio::select! {
            biased;
            () = &mut stopped => Ok(()),
            lost = leader.keep() => {
                leads = false;
                Err::<(), _>(lost)
                    .context("somebody else acts now, or nobody can")
                    .hint("ferry doctor says who has the Lease; whoever is started again waits for it")
            }
            failed = act(&client, &operator, webhooks.as_mut(), &mut acting, || match served {
                Some(at) => format!("operator is ready on {url}, and serves metrics at http://{at}/metrics"),
                None => format!("operator is ready on {url}"),
            }) => failed,
        };
        // First of all: nothing is written any more that another one could write.
        acting.stop().await;
        let mut left = anyhow::Ok(());
        if let Some(webhooks) = webhooks.as_mut().filter(|_| ended.is_ok()) {
            tokio::select! {
                biased;
                done = webhooks.leave() => left = done.map_err(anyhow::Error::from),
                // Who leads now has webhooks of its own, and where nobody answers there is nothing to be waited for.
                lost = leader.keep() => (leads, left) = (false, Err(lost.into())),
            }
        }
        end(webhooks).await;
        tasks.stop().await;
        // Whatever comes of that, others may act.
        if leads {
            let ends = "it ends by itself in a few seconds, and whoever waits for it goes on";
            leader.release().await.hint_if(|error| !failure::is_answer(error), ends)?;
        }
        let asked =
            "it may go on to ask our webhooks: start an operator again, or delete their two configurations";
        left.context("failed to leave the cluster as it was").hint(asked)?;
        ended.map(|()| ExitCode::SUCCESS)
    })
}

/// Acts until it is dropped; returns only if it cannot begin.
async fn act(
    client: &kube::Client,
    operator: &::operator::Operator,
    webhooks: Option<&mut Webhooks>,
    acting: &mut Tasks,
    line: impl Fn() -> String,
) -> anyhow::Result<()> {
    let conversion = Conversion::without_us(client).await?;
    install(client, &conversion).await.context("failed to install what the operator needs")?;
    operator.act(acting);
    if let Some(webhooks) = webhooks {
        webhooks.ask().await?;
    }
    operator.ready().await;
    output::announce(line());
    std::future::pending().await
}

async fn end(webhooks: Option<Webhooks>) {
    if let Some(webhooks) = webhooks {
        webhooks.end().await;
    }
}

/// What is wanted by the configuration file and by the arguments, which count more.
struct Wanted {
    settings: Settings,
    listen: Vec<SocketAddr>,
    webhooks: Option<(SocketAddr, Reach)>,
    /// Where it is said who waits where, and by which Service the cluster asks.
    visibility: Option<(SocketAddr, String)>,
    lease: Lease,
}

impl Wanted {
    fn of(arguments: &arguments::Operator) -> anyhow::Result<Wanted> {
        let file = arguments.config.as_deref().map(read).transpose()?;
        let mut wanted = Wanted {
            settings: Settings::default(),
            listen: Vec::new(),
            webhooks: None,
            visibility: None,
            lease: Lease::default(),
        };
        let mut hides = false;
        if let Some(file) = file {
            for warning in &file.warnings {
                output::note(format!("warning: {warning}"));
            }
            let service = |namespace: &str| Reach::Service {
                namespace: namespace.to_owned(),
                name: file.webhook_service.clone(),
                conversion: file.webhook_service.clone(),
            };
            wanted.webhooks = file.webhooks.map(|address| (address, service(&file.settings.namespace)));
            wanted.visibility = file.visibility.map(|address| (address, VISIBILITY_SERVICE.to_owned()));
            hides = file.hides_visibility;
            wanted.settings = file.settings;
            wanted.listen = file.listen;
            wanted.lease = file.lease;
        }
        if let Some(namespace) = &arguments.namespace {
            wanted.settings.move_to(namespace);
            if let Some((_, Reach::Service { namespace: of, .. })) = &mut wanted.webhooks {
                of.clone_from(namespace);
            }
        }
        if let Some(address) = arguments.listen {
            wanted.listen = vec![address];
        }
        if let Some(address) = arguments.webhook_listen {
            let namespace = wanted.settings.namespace.clone();
            let reach = match arguments.webhook_service.clone() {
                None => Reach::Url,
                Some(name) => {
                    let conversion = arguments.conversion_service.clone().unwrap_or_else(|| name.clone());
                    Reach::Service { namespace, name, conversion }
                }
            };
            wanted.webhooks = Some((address, reach));
        }
        if let Some(address) = arguments.visibility_listen {
            let service = arguments.visibility_service.as_deref().unwrap_or(VISIBILITY_SERVICE);
            wanted.visibility = Some((address, service.to_owned()));
        }
        // The arguments say where, the file says that it is not to be.
        if hides && wanted.visibility.take().is_some() {
            output::note(
                "warning: featureGates.VisibilityOnDemand is false: --visibility-listen has no effect, and APIServices \
                 of visibility.kueue.x-k8s.io lead nowhere",
            );
        }
        Ok(wanted)
    }

    fn leadership(&self) -> Leadership {
        let namespace = self.lease.namespace.clone().unwrap_or_else(|| self.settings.namespace.clone());
        let usual = Leadership::new(namespace, identity());
        Leadership {
            duration: self.lease.duration.unwrap_or(usual.duration),
            deadline: self.lease.deadline.unwrap_or(usual.deadline),
            period: self.lease.period.unwrap_or(usual.period),
            ..usual
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Configuration> {
    let text = std::fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()));
    let text =
        text.hint("--config names Kueue's configuration file; without it all is as Kueue is by default")?;
    let read = Configuration::read(&text).with_context(|| format!("failed to use {}", path.display()));
    read.hint(
        "it has to be a Configuration of config.kueue.x-k8s.io: change what is named above, or leave it out",
    )
}

/// How the cluster is reached: by the kubeconfig that is named, else by that of the environment, else from within. One that
/// is there is meant: what is wrong with it is said, rather than that another cluster is taken.
async fn config(arguments: &arguments::Operator) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
    let (kubeconfig, which) = match &arguments.kubeconfig {
        Some(path) => (Some(connect::read_from(path)?.0), path.display().to_string()),
        None => (connect::of_environment()?, "the kubeconfig of the environment".to_owned()),
    };
    match kubeconfig {
        Some(kubeconfig) => {
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            config.with_context(|| format!("failed to use {which}")).hint(WHICH_CONTEXT)
        }
        None if arguments.context.is_some() => Err(connect::no_cluster().into()),
        None => Ok(Config::incluster().map_err(|_| connect::no_cluster())?),
    }
}

/// A name that no other process has.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", host.trim(), uuid::Uuid::new_v4())
}
