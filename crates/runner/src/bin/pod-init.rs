//! The first process of containers, for the tests of this crate. `ferry` has it built in, as a hidden subcommand.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(command) if command == runner::init::COMMAND => runner::init::main(arguments),
        _ => runner::init::main([]),
    }
}
