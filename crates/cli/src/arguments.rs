//! What `ferry` can be asked. The texts here are its `--help`.

use std::path::PathBuf;

/// Multi-cluster batch for Kubernetes.
#[derive(clap::Parser)]
#[command(name = "ferry", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Check(Check),
}

/// Judge manifests as an API server of Kubernetes v1.35 would, without one.
///
/// Reads batch/v1 Jobs from YAML or JSON files and prints every field error and every warning that creating them would
/// give, fields that the API does not know included. Other kinds are named and passed over.
///
/// Exit status: 0 if every Job would be accepted, 1 if one would be refused, 2 if a file cannot be read.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry check job.yaml\n  kubectl get job render -o yaml | ferry check -")]
pub(crate) struct Check {
    /// Files to read; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Refuse `managedBy: kubernetes.io/job-controller`, as a cluster can be told to do.
    #[arg(long)]
    pub(crate) refuse_reserved_managed_by: bool,
}
