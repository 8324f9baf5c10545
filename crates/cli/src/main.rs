//! The `ferry` command: arguments to settings to wiring. No decision is taken here.

mod arguments;
mod check;
mod cluster;
mod operator;
mod process;

use std::process::ExitCode;

use clap::Parser as _;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let done = match command {
        Command::Check(check) => check::run(&check),
        Command::Cluster(cluster) => cluster::run(&cluster),
        Command::Operator(operator) => operator::run(&operator),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
