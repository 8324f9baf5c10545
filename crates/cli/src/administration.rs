//! The commands of those who look after clusters.

use std::process::ExitCode;

use crate::{clusters, cordon, doctor, drain, install, join, leave};

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Install(install::Arguments),
    Join(join::Arguments),
    Leave(leave::Arguments),
    Clusters(clusters::Arguments),
    Cordon(cordon::Cordon),
    Uncordon(cordon::Uncordon),
    Drain(drain::Arguments),
    Doctor(doctor::Arguments),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Install(arguments) => install::run(arguments),
        Command::Join(arguments) => join::run(arguments),
        Command::Leave(arguments) => leave::run(arguments),
        Command::Clusters(arguments) => clusters::run(arguments),
        Command::Cordon(arguments) => cordon::cordon(arguments),
        Command::Uncordon(arguments) => cordon::uncordon(arguments),
        Command::Drain(arguments) => drain::run(arguments),
        Command::Doctor(arguments) => doctor::run(arguments),
    }
}
