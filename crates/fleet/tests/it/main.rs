//! A fleet as its users see it.

mod dispatch;
mod logs;
mod refusals;
mod versions;
mod visibility;
mod waiting;

use std::net::{Ipv4Addr, SocketAddr};

use fleet::{Cluster, ClusterSettings};
use operator::definitions::{Conversion, install};
use operator::webhooks::server::{Reach, Webhooks};
use reconcile::{Clock, Tasks};
use testkit::ControlPlane;

/// A cluster in this process with an operator, and with nobody who runs anything.
async fn operated(name: &str) -> anyhow::Result<Cluster> {
    let settings = ClusterSettings {
        operator: Some(operator::Settings::default()),
        controllers: "none".parse()?,
        ..ClusterSettings::ephemeral(name)
    };
    Ok(Cluster::start(settings).await?)
}

/// Has a real server ask us about writes, for as long as what is returned lives.
async fn asks_us(real: &ControlPlane) -> anyhow::Result<(Webhooks, Tasks)> {
    let client = real.client();
    install(&client, &Conversion::Embedded).await?;
    let mut tasks = Tasks::new();
    let operator = operator::start(client, operator::Settings::default(), Clock::system(), &mut tasks);
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let webhooks = Webhooks::start(operator, anywhere, Reach::Url, &mut tasks).await?;
    Ok((webhooks, tasks))
}
