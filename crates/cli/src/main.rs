//! The `ferry` command: arguments to settings to wiring. No decision is taken here.

mod actors;
mod administration;
mod arguments;
mod cancel;
mod check;
mod cluster;
mod clusters;
mod connect;
mod cordon;
mod crds;
mod demo;
mod describe;
mod doctor;
mod drain;
mod events;
mod explain;
mod failure;
mod get;
mod hold;
mod install;
mod jobs;
mod join;
mod kept;
mod kubeconfig;
mod leave;
mod live;
mod logs;
mod manifest;
mod names;
mod operator;
mod output;
mod place;
mod pods;
mod process;
mod quota;
mod shell;
mod simulate;
mod span;
mod submit;
mod top;
mod up;
mod view;
mod wait;
mod which;

use std::process::ExitCode;

use clap::FromArgMatches as _;

use arguments::{Arguments, Command};

/// An API server takes objects apart and puts them together all day; the system's allocator takes a quarter of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A node runs this program again as the first process of a container.
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == runner::init::COMMAND) {
        return runner::init::main(arguments);
    }
    let read = shell::command().try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches));
    let Arguments { command } = read.unwrap_or_else(|error| failure::usage(&error));
    let done = match command {
        Command::Demo(demo) => demo::run(&demo),
        Command::Up(up) => up::run(&up),
        Command::Check(check) => check::run(&check),
        Command::Crds(_) => crds::run(),
        Command::Administration(command) => administration::run(&command),
        Command::Cluster(cluster) => cluster::run(&cluster),
        Command::Operator(operator) => operator::run(&operator),
        Command::Submit(submit) => submit::run(&submit),
        Command::Get(get) => get::run(&get),
        Command::Describe(describe) => describe::run(&describe),
        Command::Events(events) => events::run(&events),
        Command::Explain(explain) => explain::run(&explain),
        Command::Logs(logs) => logs::run(&logs),
        Command::Wait(wait) => wait::run(&wait),
        Command::Cancel(cancel) => cancel::run(&cancel),
        Command::Hold(it) => hold::hold(&it),
        Command::Release(it) => hold::release(&it),
        Command::Top(top) => top::run(&top),
        Command::Completion(completion) => shell::completion(&completion),
        Command::Man(man) => shell::man(&man),
        Command::Simulate(simulate) => Ok(simulate::run(&simulate)),
    };
    done.unwrap_or_else(|error| failure::report(&error))
}
