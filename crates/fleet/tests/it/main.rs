//! A fleet as its users see it.

mod dispatch;
mod logs;
mod refusals;
mod versions;
mod waiting;

use fleet::{Cluster, ClusterSettings};

/// A cluster in this process with an operator, and with nobody who runs anything.
async fn operated(name: &str) -> anyhow::Result<Cluster> {
    let settings = ClusterSettings {
        operator: Some(operator::Settings::default()),
        controllers: "none".parse()?,
        ..ClusterSettings::ephemeral(name)
    };
    Ok(Cluster::start(settings).await?)
}
