//! How a command fails: what it says, what to do about it, and its exit status.
//!
//! A verb returns `anyhow::Result<ExitCode>`. Where it knows what helps, it says so: [`Failure::new`] for something of its
//! own, [`Hint::hint`] on any result. [`report`] is called once, in `main`; it also knows what the usual answers of an API
//! server mean, so that no verb has to.

use std::fmt;
use std::process::ExitCode;

use crate::connect::Unreachable;
use crate::output;

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

/// A failure with what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
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
            let given = error.downcast_ref::<Failure>().is_some_and(|failure| failure.hint.is_some());
            if given || !helps(&error) {
                return error;
            }
            Failure { code: code_of(&error), message: text(&error), hint: Some(hint.into()) }.into()
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
    if let Some(hint) = hint_of(error) {
        output::note(format!("hint: {hint}"));
    }
    code_of(error).into()
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
fn hint_of(error: &anyhow::Error) -> Option<String> {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.hint.clone();
    }
    let hint = match status_of(error) {
        Some(401) => "the cluster does not know this user: check the kubeconfig, --context, or log in again",
        _ if is_forbidden(error) => {
            "ask an administrator of the cluster for the permission that is named above"
        }
        _ => return unreachable(error).map(Unreachable::hint),
    };
    Some(hint.to_owned())
}

/// What an API server answered.
fn answer_of(error: &anyhow::Error) -> Option<&kube::core::Status> {
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
    use kube::core::Status;

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
        // Nobody could do this, whatever his permissions.
        for message in [
            "admission webhook \"vjob.kb.io\" denied the request: field is immutable",
            "pods \"a\" is forbidden: exceeded quota: small, requested: cpu=2",
        ] {
            assert_eq!((code_of(&said(403, message)), hint_of(&said(403, message))), (Code::Error, None));
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
        assert_eq!(hint_of(&hinted).as_deref(), Some("look with ferry get jobs"));
        let twice = Err::<(), _>(hinted).hint("another").expect_err("an error");
        assert_eq!(hint_of(&twice).as_deref(), Some("look with ferry get jobs"));
        // Who knows more is heard before what the error alone says, and only about what he knows.
        let known = Err::<(), _>(answer(403)).hint_if(is_forbidden, "another context").expect_err("an error");
        assert_eq!((hint_of(&known).as_deref(), code_of(&known)), (Some("another context"), Code::Forbidden));
        let other = Err::<(), _>(answer(403)).hint_if(is_conflict, "try again").expect_err("an error");
        assert!(hint_of(&other).is_some_and(|hint| hint.contains("permission")));
        assert!(hint_of(&answer(403)).is_some_and(|hint| hint.contains("permission")));
    }
}
