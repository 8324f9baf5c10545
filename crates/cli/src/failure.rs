//! How a command fails: what it says, what to do about it, and its exit status.
//!
//! A verb returns `anyhow::Result<ExitCode>`. Where it knows what helps, it says so: [`Failure::new`] for something of its
//! own, [`Hint::hint`] on any result. [`report`] is called once, in `main`; it also knows what the usual answers of an API
//! server mean, so that no verb has to, and says how to learn more where nobody knows what helps.

use std::fmt;
use std::io;
use std::process::ExitCode;

use clap::error::ErrorKind;
use kube::core::Status;

use crate::connect::Unreachable;
use crate::output::{self, Palette};

/// What an exit status means. The numbers are part of the interface; `ferry --help` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// The answer is no: a Job failed, a manifest would be refused, something is not as it should be.
    No = 1,
    /// It could not be done.
    Error = 2,
    /// What was named is not there.
    NotFound = 3,
    /// It did not happen in time.
    Timeout = 4,
    /// The user may not.
    Forbidden = 5,
    /// It was interrupted.
    Interrupted = 130,
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        ExitCode::from(code as u8)
    }
}

/// The part of `ferry --help` about exit statuses.
pub(crate) const CODES: &str = "\
Exit status:
  0    done
  1    the answer is no: a Job failed, or something is not as it should be
  2    it could not be done: wrong arguments, no connection, refused by the cluster
  3    what was named is not there
  4    it did not happen in time
  5    the cluster does not let this user do it
  130  interrupted; what runs clusters or the operator ends with 0 when it is told to stop";

/// What to do about wrong arguments.
const HELP: &str = "--help shows what can be given, with examples";
/// What to do where nobody knows what helps.
const MORE: &str =
    "RUST_LOG=debug shows how it came to this; if it is a mistake of ours, please tell us with that";

/// A failure with what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    hint: String,
}

/// What failed. It is no [`Failure`] before it says what to do about it.
#[must_use]
pub(crate) struct Failed {
    code: Code,
    message: String,
}

impl Failure {
    #[expect(clippy::new_ret_no_self, reason = "what helps is not forgotten if it cannot be left out")]
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Failed {
        Failed { code, message: message.into() }
    }
}

impl Failed {
    pub(crate) fn hint(self, hint: impl Into<String>) -> Failure {
        Failure { code: self.code, message: self.message, hint: hint.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Adds what to do about it to whatever failed.
pub(crate) trait Hint<T> {
    /// The exit status stays what it would have been. A hint that was given already stays; one that only follows from the
    /// error knows less than whoever calls this.
    fn hint(self, hint: impl Into<String>) -> anyhow::Result<T>;

    /// The same, where the hint helps against some errors alone.
    fn hint_if(
        self,
        helps: impl FnOnce(&anyhow::Error) -> bool,
        hint: impl Into<String>,
    ) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> Hint<T> for Result<T, E> {
    fn hint(self, hint: impl Into<String>) -> anyhow::Result<T> {
        self.hint_if(|_| true, hint)
    }

    fn hint_if(
        self,
        helps: impl FnOnce(&anyhow::Error) -> bool,
        hint: impl Into<String>,
    ) -> anyhow::Result<T> {
        self.map_err(|error| {
            let error = error.into();
            if error.is::<Failure>() || !helps(&error) {
                return error;
            }
            Failure::new(code_of(&error), text(&error)).hint(hint).into()
        })
    }
}

/// Says what failed on standard error, and returns the exit status.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if error.chain().any(|it| it.downcast_ref::<output::Closed>().is_some()) {
        // Whoever read the output has enough of it.
        return ExitCode::SUCCESS;
    }
    output::note(format!("error: {}", text(error)));
    output::note(format!("hint: {}", hint_of(error)));
    code_of(error).into()
}

/// Says what is wrong with the arguments, or what was asked for in place of a verb, and ends.
pub(crate) fn usage(error: &clap::Error) -> ! {
    let is_wrong = error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !is_wrong {
        error.exit();
    }
    let said = error.render();
    let said = if Palette::stderr().is_coloured() { said.ansi().to_string() } else { said.to_string() };
    // The last word is ours, as it is of every other error.
    let said = said.split("For more information").next().unwrap_or_default().trim_end();
    output::note(format!("{said}\n\nhint: {HELP}"));
    std::process::exit(Code::Error as i32)
}

/// An error and what caused it, in one line, in the words of whoever said it first.
pub(crate) fn text(error: &anyhow::Error) -> String {
    reconcile::chain(error.as_ref())
}

/// What the error means for the exit status.
pub(crate) fn code_of(error: &anyhow::Error) -> Code {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.code;
    }
    match status_of(error) {
        Some(404) => Code::NotFound,
        Some(401) => Code::Forbidden,
        _ if is_forbidden(error) => Code::Forbidden,
        _ => Code::Error,
    }
}

/// What to do about it, as far as that can be told from the error alone.
pub(crate) fn hint_of(error: &anyhow::Error) -> String {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.hint.clone();
    }
    if let Some(unreachable) = unreachable(error) {
        return unreachable.hint();
    }
    let hint = match answer_of(error) {
        // An embedded cluster says so, whoever asks what.
        _ if text(error).contains(FULL) => of_file(&io::ErrorKind::StorageFull.into()),
        Some(_) if is_forbidden(error) => {
            "ask an administrator of the cluster for the permission that is named above"
        }
        Some(status) => of_answer(status),
        None => error.chain().find_map(|it| it.downcast_ref::<io::Error>()).map_or(MORE, of_file),
    };
    hint.to_owned()
}

/// What stores say that can take nothing more.
const FULL: &str = "the disk is full";

/// Whether the error alone says what to do about files, or about the disk that they are on.
pub(crate) fn is_about_files(error: &(dyn std::error::Error + 'static)) -> bool {
    let chain = std::iter::successors(Some(error), |error| error.source());
    let mut files = chain.filter_map(|error| error.downcast_ref::<io::Error>());
    files.any(|error| of_file(error) != MORE) || reconcile::chain(error).contains(FULL)
}

/// What to do about an answer of an API server.
fn of_answer(status: &Status) -> &'static str {
    match status.code {
        401 => "the cluster does not know this user: check the kubeconfig, --context, or log in again",
        403 => {
            "a policy or a quota refuses it, whoever asks: change what is named above, or ask who set it up"
        }
        404 => {
            "--context and -n choose another cluster and namespace; ferry doctor says what a cluster lacks"
        }
        409 => "somebody else changed it at the same time: do it again",
        400 | 422 => "change what is named above",
        429 | 500.. => {
            "the API server is busy or not well: do it again later; kubectl get --raw '/readyz?verbose' says more"
        }
        _ => MORE,
    }
}

/// What to do about files.
fn of_file(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "is the path right?",
        io::ErrorKind::PermissionDenied => {
            "this user may not: choose another file, or change its permissions"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on the disk, or write elsewhere"
        }
        io::ErrorKind::ReadOnlyFilesystem => "nobody can write there: write elsewhere",
        _ => MORE,
    }
}

/// What an API server answered.
fn answer_of(error: &anyhow::Error) -> Option<&Status> {
    error.chain().find_map(|it| match it.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => Some(&**status),
        _ => None,
    })
}

/// The HTTP status that an API server answered with.
fn status_of(error: &anyhow::Error) -> Option<u16> {
    answer_of(error).map(|status| status.code)
}

/// Whether the cluster does not let this user do it. Webhooks and quotas answer with the same status, whoever asks.
pub(crate) fn is_forbidden(error: &anyhow::Error) -> bool {
    answer_of(error).is_some_and(|status| {
        status.code == 403 && status.message.to_lowercase().contains("forbidden: user \"")
    })
}

/// Whether a cluster answered, if only to refuse.
pub(crate) fn is_answer(error: &anyhow::Error) -> bool {
    status_of(error).is_some()
}

/// Whether what was asked for is not there.
pub(crate) fn is_not_found(error: &anyhow::Error) -> bool {
    status_of(error) == Some(404)
}

/// Whether the cluster cannot do this with the object as it is.
pub(crate) fn is_bad_request(error: &anyhow::Error) -> bool {
    status_of(error) == Some(400)
}

/// Whether somebody else has written in between, or has a say in it.
pub(crate) fn is_conflict(error: &anyhow::Error) -> bool {
    status_of(error) == Some(409)
}

/// Whether no answer was to be had.
pub(crate) fn is_unreachable(error: &anyhow::Error) -> bool {
    unreachable(error).is_some()
}

/// The cluster that could not be talked to, if that is what it is about.
fn unreachable(error: &anyhow::Error) -> Option<&Unreachable> {
    error.chain().find_map(|it| it.downcast_ref::<Unreachable>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    fn answer(code: u16) -> anyhow::Error {
        said(code, "jobs \"a\" is forbidden: User \"b\" cannot get resource")
    }

    fn said(code: u16, message: &str) -> anyhow::Error {
        let status = Status::failure(message, "Forbidden").with_code(code);
        Err::<(), _>(kube::Error::Api(status.boxed())).context("failed to read job a").expect_err("an error")
    }

    #[test]
    fn exit_statuses_follow_from_what_the_server_said() {
        for (code, expected) in
            [(404, Code::NotFound), (403, Code::Forbidden), (401, Code::Forbidden), (422, Code::Error)]
        {
            assert_eq!(code_of(&answer(code)), expected, "{code}");
        }
        assert_eq!(code_of(&anyhow::anyhow!("other")), Code::Error);
        assert_eq!(
            text(&answer(403)),
            "failed to read job a: jobs \"a\" is forbidden: User \"b\" cannot get resource"
        );
        // Nobody could do this, with whatever permissions.
        for message in [
            "admission webhook \"vjob.kb.io\" denied the request: field is immutable",
            "pods \"a\" is forbidden: exceeded quota: small, requested: cpu=2",
        ] {
            assert_eq!(code_of(&said(403, message)), Code::Error);
            assert!(hint_of(&said(403, message)).starts_with("a policy or a quota refuses it"), "{message}");
        }
    }

    /// Whoever knows no better says at least how to learn more.
    #[test]
    fn every_error_says_what_to_do() {
        let file =
            |kind: io::ErrorKind| anyhow::Error::from(io::Error::from(kind)).context("failed to read a");
        for (error, hint) in [
            (said(400, "unable to parse requirement"), "change what is named above"),
            (said(401, "Unauthorized"), "log in again"),
            (answer(403), "ask an administrator"),
            (said(404, "the server could not find the requested resource"), "ferry doctor"),
            (said(409, "the object has been modified"), "do it again"),
            (said(422, "spec.template: Required value"), "change what is named above"),
            (said(429, "too many requests"), "later"),
            (said(503, "apiserver is shutting down"), "/readyz"),
            (said(418, "no coffee"), "RUST_LOG=debug"),
            (file(io::ErrorKind::NotFound), "is the path right?"),
            (file(io::ErrorKind::PermissionDenied), "permissions"),
            (file(io::ErrorKind::StorageFull), "make room"),
            (said(503, "the disk is full: No space left on device"), "make room"),
            (file(io::ErrorKind::ReadOnlyFilesystem), "elsewhere"),
            (file(io::ErrorKind::InvalidData), "RUST_LOG=debug"),
            (anyhow::anyhow!("something else"), "RUST_LOG=debug"),
        ] {
            assert!(hint_of(&error).contains(hint), "{}: {}", text(&error), hint_of(&error));
        }
    }

    /// A pipe may break on the way to a cluster as well, and then nothing was done.
    #[test]
    fn only_a_closed_standard_output_is_no_failure() {
        let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let connection = anyhow::Error::from(broken()).context("failed to reach the cluster");
        assert_eq!(report(&connection), Code::Error.into());
        let unread = anyhow::Error::from(output::Closed(broken())).context("failed to write the answer");
        assert_eq!(report(&unread), ExitCode::SUCCESS);
    }

    #[test]
    fn a_hint_keeps_the_exit_status_and_the_first_hint_counts() {
        let hinted = Err::<(), _>(answer(404)).hint("look with ferry get jobs").expect_err("an error");
        assert_eq!(code_of(&hinted), Code::NotFound);
        assert_eq!(hint_of(&hinted), "look with ferry get jobs");
        let twice = Err::<(), _>(hinted).hint("another").expect_err("an error");
        assert_eq!(hint_of(&twice), "look with ferry get jobs");
        // Who knows more is heard before what the error alone says, and only about that.
        let known = Err::<(), _>(answer(403)).hint_if(is_forbidden, "another context").expect_err("an error");
        assert_eq!((hint_of(&known).as_str(), code_of(&known)), ("another context", Code::Forbidden));
        let other = Err::<(), _>(answer(403)).hint_if(is_conflict, "try again").expect_err("an error");
        assert!(hint_of(&other).contains("permission"));
    }
}
