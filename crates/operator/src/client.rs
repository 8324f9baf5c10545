//! The way to a cluster.

use std::time::Duration;

use kube::{Client, Config};

/// A connection on which nothing was heard for so long is given up. A watch is ended by the cluster before that, so that one
/// that has fallen silent is no longer there.
const SILENCE: Duration = Duration::from_secs(295);

/// A client that notices when a cluster has fallen silent: without that a watch whose connection is dead waits for ever.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    (config.read_timeout, config.reset_reader_on_write) = (Some(SILENCE), true);
    Client::try_from(config)
}
