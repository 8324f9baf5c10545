//! The one hierarchy of version 2: where in it cgroups with limits of their own can be made.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// How the cgroup ends that a node moves into, out of the way of its pods.
const LEAF: &str = "-node";

/// The cgroup of this process, or the nearest one above it, in which others can have limits of their own.
///
/// The kernel does not permit that in a cgroup that has processes of its own, unless it is the root. So if we are alone in
/// ours we move into one below it; and if others are there we make ours beside it.
pub(super) fn place(mount: &Path, own: &Path, controllers: &[&str]) -> Result<PathBuf, String> {
    // Another node of this process may have moved us already.
    let moved = own.file_name().is_some_and(|name| name.to_string_lossy().ends_with(LEAF));
    let own = own.parent().filter(|_| moved).unwrap_or(own);
    let Err(refusal) = delegate(own, controllers) else { return Ok(own.to_owned()) };
    let mut refusals = vec![refusal];
    match move_below(own, controllers) {
        Ok(()) => return Ok(own.to_owned()),
        Err(refusal) => refusals.push(refusal),
    }
    for place in own.ancestors().skip(1).take_while(|place| place.starts_with(mount)) {
        match delegate(place, controllers) {
            Ok(()) => return Ok(place.to_owned()),
            Err(refusal) => refusals.push(refusal),
        }
    }
    Err(refusals.join("; "))
}

/// Lets the cgroups below have limits of their own.
pub(super) fn delegate(directory: &Path, controllers: &[&str]) -> Result<(), String> {
    let file = directory.join("cgroup.subtree_control");
    let delegated = fs::read_to_string(&file).unwrap_or_default();
    let missing = controllers.iter().filter(|one| delegated.split_whitespace().all(|other| other != **one));
    let missing: Vec<String> = missing.map(|controller| format!("+{controller}")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    fs::write(&file, missing.join(" ")).map_err(|error| format!("{}: {error}", file.display()))
}

/// Moves this process out of the way, or leaves it where it is.
fn move_below(own: &Path, controllers: &[&str]) -> Result<(), String> {
    let (below, us) = (own.join(format!("ferry{LEAF}")), std::process::id().to_string());
    let failed = |error: io::Error| format!("{}: {error}", below.display());
    let here = fs::read_to_string(own.join("cgroup.procs")).map_err(failed)?;
    if here.lines().any(|process| process != us) || here.is_empty() {
        return Err(format!("{}: other processes are in there", own.display()));
    }
    fs::create_dir_all(&below).map_err(failed)?;
    let moved = fs::write(below.join("cgroup.procs"), &us).map_err(failed);
    let done = moved.and_then(|()| delegate(own, controllers));
    if done.is_err() {
        // Then it is as it was.
        let _ = fs::write(own.join("cgroup.procs"), us);
        let _ = fs::remove_dir(&below);
    }
    done
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use k8s_openapi::api::core::v1::ResourceRequirements;
    use serde_json::json;

    use super::{
        super::{Cgroups, Version, mounted, remove},
        *,
    };

    /// A hierarchy of version 2, and a cgroup in it that goes with this.
    struct Bed {
        mount: PathBuf,
        base: PathBuf,
        /// What there is to be delegated: CPU and memory, or whatever other controller this machine has to spare.
        controllers: Vec<String>,
        /// What was delegated by the test, and was not before.
        added: Vec<String>,
        mounted: Option<tempfile::TempDir>,
    }

    impl Bed {
        /// `None`, and why on the standard error, where there is none to be had.
        fn new(name: &str) -> Option<Bed> {
            let table = fs::read_to_string("/proc/self/mountinfo").expect("a table of mounts");
            let (mount, mounted) = if let Some(mount) = mounted(&table, "cgroup2", None) {
                (mount, None)
            } else {
                let directory = tempfile::tempdir().expect("a directory");
                let flags = rustix::mount::MountFlags::empty();
                if let Err(error) = rustix::mount::mount("none", directory.path(), "cgroup2", flags, None) {
                    eprintln!("NOT TESTED: cgroups of version 2 are not mounted and cannot be: {error}");
                    return None;
                }
                (directory.path().to_owned(), Some(directory))
            };
            let base = mount.join(format!("ferry-test-{}-{name}", std::process::id()));
            if let Err(error) = fs::create_dir(&base) {
                eprintln!("NOT TESTED: no cgroup of version 2 can be made: {}: {error}", base.display());
                return None;
            }
            let list = |file: &str| -> Vec<String> {
                let text = fs::read_to_string(mount.join(file)).unwrap_or_default();
                text.split_whitespace().map(str::to_owned).collect()
            };
            let (there, before) = (list("cgroup.controllers"), list("cgroup.subtree_control"));
            let usual = ["cpu", "memory"].map(str::to_owned);
            let controllers = if usual.iter().all(|one| there.contains(one)) {
                usual.to_vec()
            } else {
                eprintln!("NOT TESTED: limits of CPU and memory; version 2 has only {there:?} here");
                there.into_iter().take(1).collect()
            };
            let added = controllers.iter().filter(|one| !before.contains(one)).cloned().collect();
            Some(Bed { mount, base, controllers, added, mounted })
        }

        fn controllers(&self) -> Vec<&str> {
            self.controllers.iter().map(String::as_str).collect()
        }
    }

    impl Drop for Bed {
        fn drop(&mut self) {
            remove(&self.base).expect("the cgroup of the test goes with it");
            for controller in &self.added {
                // Others may use it by now.
                let _ = fs::write(self.mount.join("cgroup.subtree_control"), format!("-{controller}"));
            }
            if self.mounted.is_some() {
                rustix::mount::unmount(&self.mount, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
            }
        }
    }

    fn sleeper(cgroup: &Path) -> Child {
        let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("a process");
        fs::write(cgroup.join("cgroup.procs"), child.id().to_string()).expect("it can be moved");
        child
    }

    #[test]
    fn what_is_in_a_cgroup_of_version_two_ends_with_it() {
        let Some(bed) = Bed::new("end") else { return };
        let cgroups = Cgroups { version: Version::Two, bases: vec![bed.base.clone()] };
        let cgroup = cgroups.make("one", None).expect("a cgroup");
        let directory = &cgroup.directories()[0];
        let mut child = sleeper(directory);
        let is_in = fs::read_to_string(format!("/proc/{}/cgroup", child.id())).expect("it lives");
        let expected = format!("{}/one", bed.base.file_name().expect("a name").display());
        assert!(is_in.lines().any(|line| line.starts_with("0::") && line.ends_with(&expected)), "{is_in}");
        assert!(!cgroup.had_no_memory());
        cgroup.remove().expect("it can be removed");
        assert!(!directory.exists());
        assert!(!child.wait().expect("it is ours").success(), "it was killed");
    }

    #[test]
    fn where_others_are_ours_are_made_beside_them() {
        let Some(bed) = Bed::new("place") else { return };
        let controllers = bed.controllers();
        if controllers.is_empty() {
            eprintln!("NOT TESTED: version 2 has no controller here that could be delegated");
            return;
        }
        delegate(&bed.mount, &controllers).expect("the root may have both processes and controllers");
        let inner = bed.base.join("inner");
        fs::create_dir(&inner).expect("a cgroup");
        let find = || place(&bed.mount, &inner, &controllers);
        delegate(&bed.base, &controllers).expect("it is empty");
        let mut child = sleeper(&inner);
        assert_eq!(find().as_deref(), Ok(&*bed.base), "the one above it");
        child.kill().and_then(|()| child.wait()).expect("it is ours");
        assert_eq!(find().as_deref(), Ok(&*inner), "nobody is there any more");
        let refused = place(&inner, &inner, &["no-such"]).expect_err("there is no such controller");
        assert!(refused.contains("cgroup.subtree_control"), "{refused}");
    }

    #[test]
    fn limits_of_version_two_are_kept_by_the_kernel() {
        let Some(bed) = Bed::new("limits") else { return };
        if bed.controllers != ["cpu", "memory"] {
            return; // as was said
        }
        let controllers = bed.controllers();
        delegate(&bed.mount, &controllers)
            .and_then(|()| delegate(&bed.base, &controllers))
            .expect("delegated");
        let cgroups = Cgroups { version: Version::Two, bases: vec![bed.base.clone()] };
        let resources = |memory: &str| -> ResourceRequirements {
            let resources =
                json!({ "limits": { "cpu": "500m", "memory": memory }, "requests": { "cpu": "1" } });
            serde_json::from_value(resources).expect("resources")
        };
        let cgroup = cgroups.make("one", Some(&resources("16Mi"))).expect("a cgroup");
        let directory = &cgroup.directories()[0];
        let says = |file: &str| fs::read_to_string(directory.join(file)).expect("a file");
        assert_eq!(says("cpu.max"), "50000 100000\n");
        assert_eq!(says("memory.max"), format!("{}\n", 16 << 20));
        let procs = directory.join("cgroup.procs");
        let script = format!("echo $$ > {} && exec tail /dev/zero", procs.display());
        let greedy =
            Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).status().expect("a process");
        assert!(!greedy.success() && cgroup.had_no_memory(), "{greedy}");
        cgroup.resize(&resources("32Mi")).expect("other limits");
        assert_eq!(says("memory.max"), format!("{}\n", 32 << 20));
        cgroup.resize(&ResourceRequirements::default()).expect("no limits");
        assert_eq!((says("cpu.max"), says("memory.max")), ("max 100000\n".to_owned(), "max\n".to_owned()));
    }
}
