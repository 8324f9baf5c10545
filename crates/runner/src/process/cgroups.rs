//! Limits of CPU and memory by cgroups, of whichever version the kernel has and lets us use.
//!
//! Everything is below the cgroup that the node itself is in, so that whatever limits the node limits its pods too. Where
//! that was is kept in the node's directory: the next start may be in another one.

mod unified;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use k8s_openapi::api::core::v1::ResourceRequirements;
use rustix::process::{Pid, Signal, kill_process};
use types::Quantity;

/// What limits need of version 2.
const CONTROLLERS: [&str; 2] = ["cpu", "memory"];
/// The CPU time that quotas count in.
const PERIOD: u64 = 100_000;
/// The smallest quota that the kernel takes.
const LEAST_QUOTA: u64 = 1_000;

/// Where cgroups can be made.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    version: Version,
    /// Ours, of each controller of version 1, or the only one of version 2.
    bases: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The cgroups of one container.
#[derive(Clone, Debug)]
pub(crate) struct Cgroup {
    version: Version,
    directories: Vec<PathBuf>,
}

impl Cgroups {
    /// Finds out what can be used, by trying; an error says why nothing can.
    pub(crate) fn find(name: &str) -> Result<Cgroups, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let (version, mut places) = places(&own, &mounts)?;
        if version == Version::Two
            && let (Some(mount), Some(place)) = (mounted(&mounts, "cgroup2", None), places.first_mut())
        {
            *place = unified::place(&mount, place, &CONTROLLERS)?;
        }
        let found = Cgroups { version, bases: places.iter().map(|place| place.join(name)).collect() };
        for base in &found.bases {
            fs::create_dir_all(base).map_err(|error| format!("{}: {error}", base.display()))?;
        }
        if version == Version::Two {
            unified::delegate(&found.bases[0], &CONTROLLERS)?;
        }
        Ok(found)
    }

    /// The directories of ours, to be remembered.
    pub(crate) fn bases(&self) -> &[PathBuf] {
        &self.bases
    }

    /// Makes the cgroups of a container with its limits.
    pub(crate) fn make(&self, name: &str, resources: Option<&ResourceRequirements>) -> io::Result<Cgroup> {
        let directories: Vec<PathBuf> = self.bases.iter().map(|base| base.join(name)).collect();
        let cgroup = Cgroup { version: self.version, directories };
        for directory in &cgroup.directories {
            fs::create_dir_all(directory)?;
        }
        cgroup.write(limits(self.version, resources))?;
        Ok(cgroup)
    }
}

impl Cgroup {
    pub(crate) fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Gives what is in here other limits.
    pub(crate) fn resize(&self, resources: &ResourceRequirements) -> io::Result<()> {
        let mut all = without_limits(self.version);
        all.extend(limits(self.version, Some(resources)));
        self.write(all)
    }

    fn write(&self, values: BTreeMap<&'static str, String>) -> io::Result<()> {
        for (file, value) in values {
            let mut places = self.directories.iter().map(|directory| directory.join(file));
            if let Some(place) = places.find(|place| place.exists()) {
                let failed = |error: io::Error| io::Error::new(error.kind(), format!("{file}: {error}"));
                fs::write(place, value).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Whether the kernel has ended a process in here because there was no memory left for it.
    pub(crate) fn had_no_memory(&self) -> bool {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let texts =
            self.directories.iter().filter_map(|directory| fs::read_to_string(directory.join(file)).ok());
        let mut lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        lines.any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count != "0"))
    }

    /// Removes them. Whatever is still in there is ended.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.directories.iter().try_for_each(|directory| remove(directory))
    }
}

/// Removes a cgroup, those in it, and ends what is in them.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    let inner = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        inner => inner?,
    };
    for entry in inner {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    // What was killed leaves its cgroup a moment later.
    for pause in [0, 1, 2, 5, 10, 20, 50, 100, 200, 500] {
        thread::sleep(Duration::from_millis(pause));
        match fs::remove_dir(directory) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(_) => kill(directory),
        }
    }
    fs::remove_dir(directory)
}

/// Ends what is in a cgroup now.
pub(crate) fn kill(directory: &Path) {
    let processes = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for process in processes.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
        let _ = kill_process(process, Signal::KILL); // it may have ended by now
    }
}

/// Where this process is: in the one hierarchy of version 2 if that has the controllers, or in those of version 1.
fn places(own: &str, mounts: &str) -> Result<(Version, Vec<PathBuf>), String> {
    let own: Vec<(&str, &str)> = own
        .lines()
        .filter_map(|line| line.split_once(':').and_then(|(_, rest)| rest.split_once(':')))
        .collect();
    let below = |mount: PathBuf, path: &str| mount.join(path.trim_start_matches('/'));
    if let (Some(mount), Some((_, path))) =
        (mounted(mounts, "cgroup2", None), own.iter().find(|(controllers, _)| controllers.is_empty()))
    {
        let place = below(mount, path);
        let controllers = fs::read_to_string(place.join("cgroup.controllers")).unwrap_or_default();
        if CONTROLLERS.iter().all(|one| controllers.split_whitespace().any(|other| other == *one)) {
            return Ok((Version::Two, vec![place]));
        }
    }
    let mut places = Vec::new();
    for controller in ["memory", "cpu", "pids"] {
        let path = own.iter().find(|(all, _)| all.split(',').any(|one| one == controller));
        if let (Some((_, path)), Some(mount)) = (path, mounted(mounts, "cgroup", Some(controller))) {
            let place = below(mount, path);
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    if places.is_empty() {
        Err("there are no cgroups for CPU and memory".to_owned())
    } else {
        Ok((Version::One, places))
    }
}

/// Where a hierarchy of this kind, with this option, is mounted.
fn mounted(mounts: &str, kind: &str, option: Option<&str>) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut right = right.split(' ');
        let fits = right.next() == Some(kind)
            && option
                .is_none_or(|option| right.nth(1).is_some_and(|all| all.split(',').any(|one| one == option)));
        fits.then(|| PathBuf::from(left.split(' ').nth(4).unwrap_or_default()))
    })
}

/// What to write into which file where there is no limit.
fn without_limits(version: Version) -> BTreeMap<&'static str, String> {
    let files: &[(&str, &str)] = match version {
        Version::One => &[("cpu.cfs_quota_us", "-1"), ("memory.limit_in_bytes", "-1")],
        Version::Two => &[("cpu.max", "max"), ("memory.max", "max")],
    };
    files.iter().map(|(file, value)| (*file, (*value).to_owned())).collect()
}

/// What to write into which file.
fn limits(version: Version, resources: Option<&ResourceRequirements>) -> BTreeMap<&'static str, String> {
    let of = |list: Option<&BTreeMap<String, _>>, name: &str| {
        list.and_then(|list| list.get(name))
            .and_then(|quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity| {
                quantity.0.parse::<Quantity>().ok()
            })
            .filter(Quantity::is_positive)
    };
    let limit = |name| of(resources.and_then(|all| all.limits.as_ref()), name);
    let request = |name| of(resources.and_then(|all| all.requests.as_ref()), name);
    let positive = |value: i64| u64::try_from(value).unwrap_or_default();
    let mut limits: Vec<(&str, String)> = Vec::new();
    if let Some(cpu) = limit("cpu") {
        let quota = (positive(cpu.millis_saturating()).saturating_mul(PERIOD) / 1000).max(LEAST_QUOTA);
        match version {
            Version::One => limits
                .extend([("cpu.cfs_period_us", PERIOD.to_string()), ("cpu.cfs_quota_us", quota.to_string())]),
            Version::Two => limits.push(("cpu.max", format!("{quota} {PERIOD}"))),
        }
    }
    let shares = request("cpu")
        .map_or(2, |cpu| (positive(cpu.millis_saturating()).saturating_mul(1024) / 1000).clamp(2, 262_144));
    match version {
        Version::One => limits.push(("cpu.shares", shares.to_string())),
        Version::Two => limits.extend([
            ("cpu.weight", (1 + (shares - 2) * 9_999 / 262_142).to_string()),
            // A container without memory ends as a whole, not one process of it.
            ("memory.oom.group", "1".to_owned()),
        ]),
    }
    if let Some(memory) = limit("memory") {
        let bytes = positive(memory.units_saturating()).to_string();
        match version {
            Version::One => limits.push(("memory.limit_in_bytes", bytes)),
            Version::Two => limits.extend([("memory.max", bytes), ("memory.swap.max", "0".to_owned())]),
        }
    }
    limits.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_of_both_versions() {
        let resources =
            json!({ "limits": { "cpu": "500m", "memory": "64Mi" }, "requests": { "cpu": "250m" } });
        let resources: ResourceRequirements = serde_json::from_value(resources).expect("resources");
        let lines = |version| -> Vec<String> {
            limits(version, Some(&resources))
                .into_iter()
                .map(|(file, value)| format!("{file}={value}"))
                .collect()
        };
        assert_eq!(
            lines(Version::One),
            [
                "cpu.cfs_period_us=100000",
                "cpu.cfs_quota_us=50000",
                "cpu.shares=256",
                "memory.limit_in_bytes=67108864"
            ]
        );
        assert_eq!(
            lines(Version::Two),
            [
                "cpu.max=50000 100000",
                "cpu.weight=10",
                "memory.max=67108864",
                "memory.oom.group=1",
                "memory.swap.max=0"
            ]
        );
        let least = [("cpu.weight", "1".to_owned()), ("memory.oom.group", "1".to_owned())];
        assert_eq!(limits(Version::Two, None), BTreeMap::from(least));
    }

    #[test]
    fn places_of_version_one() {
        let own = "4:memory:/user/x\n2:cpu,cpuacct:/\n0::/y\n";
        let mounts = "33 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                      34 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let (version, places) = places(own, mounts).expect("places");
        assert_eq!(version, Version::One);
        assert_eq!(
            places,
            [PathBuf::from("/sys/fs/cgroup/memory/user/x"), PathBuf::from("/sys/fs/cgroup/cpu/")]
        );
        assert!(super::places("0::/\n", "").is_err());
    }
}
