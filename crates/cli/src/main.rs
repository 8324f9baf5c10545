//! The `ferry` command: arguments to settings to wiring. No decision is taken here.

mod arguments;
mod check;
mod cluster;
mod crds;
mod demo;
mod operator;
mod process;
mod simulate;
mod up;

use std::process::ExitCode;

use clap::Parser as _;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    // A node runs this program again as the first process of a container.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == runner::init::COMMAND) {
        return runner::init::main(arguments);
    }
    let Arguments { command } = Arguments::parse();
    let done = match command {
        Command::Demo(demo) => demo::run(&demo),
        Command::Up(up) => up::run(&up),
        Command::Check(check) => check::run(&check),
        Command::Crds(_) => crds::run(),
        Command::Cluster(cluster) => cluster::run(&cluster),
        Command::Operator(operator) => operator::run(&operator),
        Command::Simulate(simulate) => Ok(simulate::run(&simulate)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
