//! Real Kubernetes for tests: its programs, control planes made of them, and ways to make those fail.

mod binaries;
mod builder;
mod control_plane;
mod controller_manager;
mod credentials;
mod error;
mod kueue;
mod ports;
mod program;
mod proxy;
mod shared;

use std::env;

pub use binaries::{Binary, Error as BinaryError};
pub use builder::Builder;
pub use control_plane::ControlPlane;
pub use controller_manager::ControllerManager;
pub use error::Error;
pub use kueue::Kueue;
pub use proxy::{Fault, Proxy};
pub use shared::{Borrowed, Shared};

use crate::say;

/// The environment variable that turns a skipped test into a failed one.
pub const REQUIRED: &str = "FERRY_REQUIRE_KUBERNETES";

/// Whether a test that cannot have Kubernetes fails instead of being skipped.
pub(crate) fn is_required() -> bool {
    env::var_os(REQUIRED).is_some_and(|value| value != "0" && !value.is_empty())
}

/// What a test gets that asked for Kubernetes: `None`, said aloud, if there is none to be had and none is required.
///
/// Only a missing toolchain is a reason to skip; whatever else goes wrong is a failure of the test.
fn for_test<T>(result: Result<T, Error>) -> Option<T> {
    match decide(result, is_required()) {
        Ok(got) => Some(got),
        Err(Refusal::Skip(why)) => {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            say(&format!("SKIPPED {test}: {why}"));
            None
        }
        Err(Refusal::Fail(why)) => panic!("{why}"),
    }
}

#[derive(Debug, PartialEq)]
enum Refusal {
    Skip(String),
    Fail(String),
}

fn decide<T>(result: Result<T, Error>, required: bool) -> Result<T, Refusal> {
    result.map_err(|error| match error {
        Error::Binary(BinaryError::NoToolchain(_)) if !required => Refusal::Skip(chain(&error)),
        Error::Binary(BinaryError::NoToolchain(_)) => {
            Refusal::Fail(format!("{} ({REQUIRED} is set)", chain(&error)))
        }
        _ => Refusal::Fail(chain(&error)),
    })
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_toolchain_skips_and_only_where_kubernetes_is_not_required() {
        let missing = || Error::Binary(BinaryError::NoToolchain(Binary::Etcd));
        let broken = || Error::Binary(BinaryError::NoCache(Binary::Etcd));
        assert!(
            matches!(decide::<()>(Err(missing()), false), Err(Refusal::Skip(why)) if why.contains("no etcd"))
        );
        assert!(
            matches!(decide::<()>(Err(missing()), true), Err(Refusal::Fail(why)) if why.contains(REQUIRED))
        );
        assert!(matches!(decide::<()>(Err(broken()), false), Err(Refusal::Fail(_))));
        assert_eq!(decide(Ok(1), true), Ok(1));
    }
}
