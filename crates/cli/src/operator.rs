//! `ferry operator`: queues, quota and dispatch on a cluster that is there, until it is told to stop.

use std::process::ExitCode;

use ::operator::Settings;
use ::operator::definitions::{Conversion, install};
use ::operator::leader::{Leadership, lead};
use ::operator::webhooks::server::{Reach, Webhooks};
use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use reconcile::{Clock, Tasks};
use tokio::net::TcpListener;

use crate::arguments;
use crate::process;

/// Acts until SIGTERM or SIGINT, or until somebody else does. Prints one line when it begins.
pub(crate) fn run(arguments: &arguments::Operator) -> anyhow::Result<ExitCode> {
    process::run(async {
        let stopped = process::stopped()?;
        tokio::pin!(stopped);
        let config = config(arguments).await?;
        let url = config.cluster_url.clone();
        let client = Client::try_from(config).context("failed to prepare a client")?;
        let clock = Clock::system();
        // Ports are taken first: one that is not free is found before anybody is kept from acting.
        let listener = match &arguments.listen {
            Some(address) => {
                let bound = TcpListener::bind(address).await;
                Some(bound.with_context(|| format!("failed to listen on {address}"))?)
            }
            None => None,
        };
        let leadership = Leadership::new(&arguments.namespace, identity());
        let mut leader = tokio::select! {
            biased;
            () = &mut stopped => return Ok(ExitCode::SUCCESS),
            leader = lead(client.clone(), leadership, clock.clone()) => leader?,
        };
        install(&client, &Conversion::Embedded).await.context("failed to install what the operator needs")?;
        let mut tasks = Tasks::new();
        let settings = settings(arguments);
        let operator = ::operator::start(client, settings, clock, &mut tasks);
        let webhooks = match arguments.webhook_listen {
            None => None,
            Some(address) => {
                operator.ready().await;
                let reach = match &arguments.webhook_service {
                    None => Reach::Url,
                    Some(name) => {
                        Reach::Service { namespace: arguments.namespace.clone(), name: name.clone() }
                    }
                };
                Some(Webhooks::start(operator.clone(), address, reach, &mut tasks).await?)
            }
        };
        let served = listener
            .map(|listener| ::operator::serve::serve(operator.clone(), "leader", listener, &mut tasks))
            .transpose()
            .context("failed to serve")?;
        let lost = tokio::select! {
            biased;
            () = &mut stopped => None,
            error = leader.keep() => Some(error),
            () = async {
                operator.ready().await;
                match served {
                    Some(address) => println!("operator is ready on {url}, and serves metrics at http://{address}/metrics"),
                    None => println!("operator is ready on {url}"),
                }
                std::future::pending::<()>().await;
            } => None,
        };
        if let Some(webhooks) = &webhooks
            && lost.is_none()
        {
            webhooks.leave().await.context("failed to leave the cluster as it was")?;
        }
        tasks.stop().await;
        if let Some(error) = lost {
            return Err(error).context("somebody else acts now, or nobody can");
        }
        leader.release().await?;
        Ok(ExitCode::SUCCESS)
    })
}

fn settings(arguments: &arguments::Operator) -> Settings {
    Settings { namespace: arguments.namespace.clone(), ..Settings::default() }
}

/// How the cluster is reached: by the kubeconfig that is named, else by that of the environment, else from within.
async fn config(arguments: &arguments::Operator) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: arguments.context.clone(), ..KubeConfigOptions::default() };
    match &arguments.kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path);
            let kubeconfig = read.with_context(|| format!("failed to read {}", path.display()))?;
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            config.with_context(|| format!("failed to use {}", path.display()))
        }
        None if arguments.context.is_some() => {
            Config::from_kubeconfig(&options).await.context("failed to use the kubeconfig of the environment")
        }
        None => Config::infer().await.context("found no cluster: neither a kubeconfig nor a service account"),
    }
}

/// A name that no other process has.
fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", host.trim(), uuid::Uuid::new_v4())
}
