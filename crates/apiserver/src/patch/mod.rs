//! Patches: what a JSON patch, a JSON merge patch or a strategic merge patch makes of an object.
//!
//! The results and errors are those of kube-apiserver, also where they are not those of the RFCs. Documents go in and
//! come out as JSON in the version of the request; reading the patch's text, and decoding what came out once more, is
//! the caller's.

pub mod json;
pub mod merge;
pub mod strategic;
pub mod text;

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no patch: 400.
    #[error("{0}")]
    BadRequest(String),
    /// It has too many operations: 413.
    #[error("{0}")]
    TooLarge(String),
    /// It does not fit the document: 422. Clients are not told why; they see [`Error::UNPROCESSABLE`].
    #[error("{0}")]
    Unprocessable(String),
    /// It fits neither document nor type: 500, without a reason.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// What clients see of an [`Error::Unprocessable`].
    pub const UNPROCESSABLE: &'static str = "the server rejected our request due to an error in our request";
}
