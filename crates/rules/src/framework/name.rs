//! The name of a Job's Workload.

use sha1::{Digest as _, Sha1};

use super::Kind;

const HASH_LENGTH: usize = 5;
const LONGEST: usize = 253 - 1 - HASH_LENGTH;

/// The name (JF-10): readable as far as there is room, and unique by a hash. `extra` tells several Workloads of one Job
/// apart.
pub fn workload_name(kind: Kind, name: &str, uid: &str, extra: Option<&str>) -> String {
    let mut hashed = [kind.kind, kind.group, name, uid].join("\n");
    if let Some(extra) = extra {
        hashed.push('\n');
        hashed.push_str(extra);
    }
    with_hash(format!("{}-{name}", kind.kind.to_lowercase()), &hashed)
}

/// A name as far as there is room for it, and a hash of what makes it unique.
fn with_hash(mut readable: String, hashed: &str) -> String {
    let digest = Sha1::digest(hashed.as_bytes());
    let hash = format!("{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2]);
    // Names of objects are ASCII, so that any place to cut is one between characters.
    readable.truncate(LONGEST);
    format!("{readable}-{}", &hash[..HASH_LENGTH])
}

/// A name that is cut if it is too long, and then ends with a hash of the whole.
pub(crate) fn limited(name: String) -> String {
    if name.len() <= LONGEST {
        return name;
    }
    let whole = name.clone();
    with_hash(name, &whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::batch::JOB;

    /// MK-WIRE-02.
    #[test]
    fn jf_10_names_are_those_of_kueue() {
        assert_eq!(workload_name(JOB, "name", "uid", None), "job-name-ef3a1");
        assert_eq!(workload_name(JOB, "name", "uid", Some("1")), "job-name-2514c");
        let job_set = Kind { group: "jobset.x-k8s.io", kind: "JobSet", ..JOB };
        assert_eq!(workload_name(job_set, "js", "uid-1", None), "jobset-js-0c03a");
        let long = workload_name(JOB, &"x".repeat(300), "uid", None);
        assert_eq!(long.len(), 253);
    }
}
