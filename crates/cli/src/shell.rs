//! `ferry completion` and `ferry man`: what shells and people want to know of the command.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::arguments::Arguments;
use crate::failure::{Code, Failure};
use crate::names;
use crate::output;

/// The command under the name by which it was started: `kubectl ferry` where kubectl finds it as a plugin.
pub(crate) fn command() -> clap::Command {
    let command = Arguments::command();
    if is_plugin() { command.bin_name("kubectl ferry") } else { command }
}

/// Whether it was started as a plugin of kubectl.
pub(crate) fn is_plugin() -> bool {
    let started_as = std::env::args_os().next().map(std::path::PathBuf::from);
    started_as.as_deref().and_then(|path| path.file_stem()).is_some_and(|name| name == "kubectl-ferry")
}

/// How this command was called, so that what is shown can be typed: by its name, or by its path where that was used.
pub(crate) fn called() -> String {
    let started_as = std::env::args().next().filter(|name| !name.is_empty());
    started_as.map_or_else(|| "ferry".to_owned(), |name| name.replace("kubectl-ferry", "kubectl ferry"))
}

/// Print a script by which a shell completes this command.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  source <(ferry completion bash)\n  ferry completion zsh > ~/.zfunc/_ferry\n  ferry completion fish > ~/.config/fish/completions/ferry.fish"
)]
pub(crate) struct Completion {
    /// Which shell.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Print the manual page, of the command or of one of its verbs.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry man | man -l -\n  ferry man logs > ferry-logs.1")]
pub(crate) struct Man {
    /// Which verb [default: the command as a whole].
    verb: Option<String>,
}

pub(crate) fn completion(arguments: &Completion) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "ferry", &mut script);
    output::print(&String::from_utf8(script).context("failed to write the script")?)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(arguments: &Man) -> anyhow::Result<ExitCode> {
    let mut command = Arguments::command();
    command.build();
    let command = match &arguments.verb {
        None => command,
        Some(verb) => {
            let verbs: Vec<String> = command.get_subcommands().map(|it| it.get_name().to_owned()).collect();
            let found = command.find_subcommand(verb).cloned();
            found.ok_or_else(|| {
                let hint = names::hint("verbs", verb, &verbs, "");
                Failure::new(Code::NotFound, format!("there is no verb {verb}")).hint(hint)
            })?
        }
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).context("failed to write the manual page")?;
    output::print(&String::from_utf8(page).context("failed to write the manual page")?)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_of_every_verb_has_an_example_and_a_word_about_every_option() {
        Arguments::command().debug_assert();
        for verb in Arguments::command().get_subcommands() {
            assert!(verb.get_about().is_some(), "{}", verb.get_name());
            for option in verb.get_arguments() {
                let name = option.get_id().as_str();
                assert!(option.get_help().is_some(), "{} {name}", verb.get_name());
                // What is written after the options of the connection stands under their heading.
                let of_connection =
                    ["kubeconfig", "context", "namespace", "operator_namespace"].contains(&name);
                assert!(of_connection || option.get_help_heading().is_none(), "{} {name}", verb.get_name());
            }
            let example = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let call = format!("ferry {}", verb.get_name());
            assert!(example.starts_with("Example:\n") && example.contains(&call), "{call}: {example:?}");
        }
    }
}
