//! Prints the paths of real Kubernetes' programs, built first if need be.
//!
//! ```text
//! cargo run -p testkit --example binary -- kubectl kueue
//! ```

use std::env;

use anyhow::Context as _;
use testkit::Binary;

fn main() -> anyhow::Result<()> {
    for name in env::args().skip(1) {
        let binary = Binary::ALL.into_iter().find(|binary| binary.to_string() == name);
        let binary = binary
            .with_context(|| format!("{name} is none of {:?}", Binary::ALL.map(|one| one.to_string())))?;
        println!("{}", binary.ensure()?.display());
    }
    Ok(())
}
