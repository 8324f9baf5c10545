//! Runs a control plane until Ctrl-C is pressed, for whoever wants to look at one.
//!
//! ```text
//! cargo run -p testkit --example control_plane -- [--pods EXIT_CODE] [CONTROLLER...]
//! KUBECONFIG=… kubectl get --raw /version
//! ```
//!
//! With controllers (`job-controller`, or `*`) kube-controller-manager runs too; with `--pods` every pod pretends to run
//! and to end with that exit code.

use std::env;

use testkit::{Behaviour, ControlPlane};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut controllers: Vec<String> = env::args().skip(1).collect();
    let code = match controllers.iter().position(|argument| argument == "--pods") {
        Some(at) => {
            controllers.remove(at);
            anyhow::ensure!(at < controllers.len(), "--pods needs an exit code");
            Some(controllers.remove(at).parse()?)
        }
        None => None,
    };
    let builder = ControlPlane::builder();
    let builder = if controllers.is_empty() { builder } else { builder.controller_manager(controllers) };
    let cluster = builder.start().await?;
    let _pods = match code {
        Some(code) => Some(cluster.simulator().decide(move |_| Behaviour::exits(code)).start().await?),
        None => None,
    };
    println!("export KUBECONFIG={}", cluster.kubeconfig().display());
    std::future::pending().await // Ctrl-C ends this process, and that ends the control plane
}
