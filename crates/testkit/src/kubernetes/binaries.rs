//! Where the programs of a control plane come from: `KUBEBUILDER_ASSETS`, or Go modules pinned in `tools/kubernetes`
//! and built once into a cache outside the checkout.
//!
//! A binary in the cache is used only if the stamp beside it equals the recipe it would be built by now, pinned modules
//! included; so a changed pin builds anew, and a build that was killed half-way never happened.

use std::{
    env,
    fmt::{self, Display},
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::{go::cache, process::Process, say};

/// A program that tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// The store behind a kube-apiserver.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The built-in controllers, the Job controller among them.
    KubeControllerManager,
    /// The command line client.
    Kubectl,
    /// Kueue's manager.
    Kueue,
    /// Kueue's own end-to-end tests of MultiKueue.
    KueueSuite,
    /// The same of MultiKueue with kinds of jobs that others define.
    KueueExtendedSuite,
    /// The controllers of JobSets.
    JobSet,
    /// The controllers of LeaderWorkerSets.
    LeaderWorkerSet,
    /// The controllers of Ray's kinds.
    KubeRay,
    /// Kubernetes' end-to-end tests, the conformance tests among them.
    EndToEnd,
    /// What most pods of those tests run.
    Agnhost,
    /// Says as whom it runs.
    NoNewPrivileges,
    /// An API server for others to put theirs behind, in the version that those tests use.
    SampleApiserver,
}

/// Why a binary cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a ready binary nor a toolchain to build one.
    #[error(
        "no {0}: KUBEBUILDER_ASSETS does not bring it, and there is no Go toolchain on PATH to build it with"
    )]
    NoToolchain(Binary),
    /// The build failed; Go's own words.
    #[error("failed to build {binary}:\n{output}")]
    Build {
        /// What was being built.
        binary: Binary,
        /// What Go printed.
        output: String,
    },
    /// There is nowhere to keep it.
    #[error("neither XDG_CACHE_HOME nor HOME is set, so there is no place to keep {0}")]
    NoCache(Binary),
    /// The module file does not require what it should.
    #[error("{} does not require {module}", file.display())]
    NotPinned {
        /// The go.mod file.
        file: PathBuf,
        /// The missing requirement.
        module: &'static str,
    },
    /// A file could not be read or written.
    #[error("failed to access {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Binary {
    /// All of them.
    pub const ALL: [Binary; 14] = [
        Binary::Etcd,
        Binary::KubeApiserver,
        Binary::KubeControllerManager,
        Binary::Kubectl,
        Binary::Kueue,
        Binary::KueueSuite,
        Binary::KueueExtendedSuite,
        Binary::JobSet,
        Binary::LeaderWorkerSet,
        Binary::KubeRay,
        Binary::EndToEnd,
        Binary::Agnhost,
        Binary::NoNewPrivileges,
        Binary::SampleApiserver,
    ];

    /// The path of the program, built first if need be.
    ///
    /// May take minutes the first time on a machine, and says so on standard error. Any number of processes may ask at
    /// once: one builds, the others wait for it.
    pub fn ensure(self) -> Result<PathBuf, Error> {
        if let Some(assets) = env::var_os("KUBEBUILDER_ASSETS").filter(|assets| !assets.is_empty()) {
            let path = Path::new(&assets).join(self.name());
            if path.is_file() {
                return Ok(path);
            }
            say(&format!("KUBEBUILDER_ASSETS has no {self}: {} is missing", path.display()));
        }
        let recipe = Recipe::read(self)?;
        let path = recipe.directory()?.join(self.name());
        if recipe.is_built(&path) { Ok(path) } else { recipe.build(&path) }
    }

    fn name(self) -> &'static str {
        match self {
            Binary::Etcd => "etcd",
            Binary::KubeApiserver => "kube-apiserver",
            Binary::KubeControllerManager => "kube-controller-manager",
            Binary::Kubectl => "kubectl",
            Binary::Kueue => "kueue",
            Binary::KueueSuite => "kueue-multikueue-baseline.test",
            Binary::KueueExtendedSuite => "kueue-multikueue-extended.test",
            Binary::JobSet => "jobset",
            Binary::LeaderWorkerSet => "lws",
            Binary::KubeRay => "kuberay",
            Binary::EndToEnd => "e2e.test",
            Binary::Agnhost => "agnhost",
            Binary::NoNewPrivileges => "nnp",
            Binary::SampleApiserver => "sample-apiserver",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Binary::Etcd => "go.etcd.io/etcd/server/v3",
            Binary::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Binary::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Binary::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Binary::Kueue => "sigs.k8s.io/kueue/cmd/kueue",
            Binary::KueueSuite => "sigs.k8s.io/kueue/test/e2e/multikueue/baseline",
            Binary::KueueExtendedSuite => "sigs.k8s.io/kueue/test/e2e/multikueue/extended",
            Binary::JobSet => "sigs.k8s.io/jobset",
            Binary::LeaderWorkerSet => "sigs.k8s.io/lws/cmd",
            Binary::KubeRay => "github.com/ray-project/kuberay/ray-operator",
            Binary::EndToEnd => "k8s.io/kubernetes/test/e2e",
            Binary::Agnhost => "k8s.io/kubernetes/test/images/agnhost",
            Binary::NoNewPrivileges => "k8s.io/kubernetes/test/images/nonewprivs",
            Binary::SampleApiserver => "k8s.io/sample-apiserver",
        }
    }

    /// What makes Go build it: tests are part of a test program only.
    fn verb(self) -> &'static [&'static str] {
        match self {
            // The largest program of all: its parts are compiled two at a time, for the sake of memory.
            Binary::EndToEnd => &["test", "-c", "-vet=off", "-p=2"],
            Binary::KueueSuite | Binary::KueueExtendedSuite => &["test", "-c"],
            _ => &["build"],
        }
    }

    fn component(self) -> &'static Component {
        match self {
            Binary::Etcd => {
                &Component { directory: "etcd", module: "go.etcd.io/etcd/server/v3", version_in: &[] }
            }
            Binary::KubeApiserver | Binary::KubeControllerManager | Binary::Kubectl => &KUBERNETES,
            Binary::EndToEnd | Binary::Agnhost | Binary::NoNewPrivileges => &END_TO_END,
            Binary::SampleApiserver => &Component {
                directory: "sample-apiserver",
                module: "k8s.io/sample-apiserver",
                version_in: &[],
            },
            Binary::JobSet => &KINDS,
            Binary::LeaderWorkerSet => &Component { module: "sigs.k8s.io/lws", ..KINDS },
            Binary::KubeRay => &Component {
                directory: "kuberay",
                module: "github.com/ray-project/kuberay/ray-operator",
                version_in: &[],
            },
            Binary::Kueue | Binary::KueueSuite | Binary::KueueExtendedSuite => &Component {
                directory: "kueue",
                module: "sigs.k8s.io/kueue",
                version_in: &[("sigs.k8s.io/kueue/pkg/version.GitVersion", Part::Whole)],
            },
        }
    }
}

impl Display for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is pinned together, by one go.mod under `tools/kubernetes`.
struct Component {
    directory: &'static str,
    module: &'static str,
    /// The Go variables that hold the version, and that a release build sets.
    version_in: &'static [(&'static str, Part)],
}

#[derive(Clone, Copy)]
enum Part {
    Whole,
    Major,
    Minor,
}

const KUBERNETES: Component = Component {
    directory: "kubernetes",
    module: "k8s.io/kubernetes",
    version_in: &[
        ("k8s.io/component-base/version.gitVersion", Part::Whole),
        ("k8s.io/component-base/version.gitMajor", Part::Major),
        ("k8s.io/component-base/version.gitMinor", Part::Minor),
        ("k8s.io/client-go/pkg/version.gitVersion", Part::Whole),
    ],
};

const END_TO_END: Component = Component { directory: "e2e", ..KUBERNETES };

const KINDS: Component = Component { directory: "kinds", module: "sigs.k8s.io/jobset", version_in: &[] };

impl Component {
    fn path(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/kubernetes").join(self.directory)
    }

    /// The version of the component's module, as go.mod requires it: `v1.35.8`.
    fn version(&self, go_mod: &str) -> Result<String, Error> {
        let version = go_mod.lines().find_map(|line| {
            let mut words = line.trim_start().trim_start_matches("require ").split_whitespace();
            (words.next() == Some(self.module)).then(|| words.next())?.filter(|word| word.starts_with('v'))
        });
        let missing = || Error::NotPinned { file: self.path().join("go.mod"), module: self.module };
        version.map(str::to_owned).ok_or_else(missing)
    }
}

/// All that decides what comes out of a build.
struct Recipe {
    binary: Binary,
    arguments: Vec<String>,
    modules: String,
    /// Of Kubernetes, under which the binaries of every component are kept: they are used together.
    kubernetes: String,
}

impl Recipe {
    fn read(binary: Binary) -> Result<Recipe, Error> {
        let component = binary.component();
        let go_mod = read(&component.path().join("go.mod"))?;
        let go_sum = read(&component.path().join("go.sum"))?;
        let version = component.version(&go_mod)?;
        let kubernetes = KUBERNETES.version(&read(&KUBERNETES.path().join("go.mod"))?)?;
        let ldflags = ldflags(component, &version);
        let common = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", &ldflags];
        let arguments = binary.verb().iter().copied().chain(common).map(str::to_owned).collect();
        Ok(Recipe { binary, arguments, modules: format!("{go_mod}\n{go_sum}"), kubernetes })
    }

    /// `$XDG_CACHE_HOME/ferry/kubernetes/v1.35.8`; flat, so that it can serve as `KUBEBUILDER_ASSETS` itself.
    fn directory(&self) -> Result<PathBuf, Error> {
        let cache = cache().map_err(|_| Error::NoCache(self.binary))?;
        Ok(cache.join("ferry/kubernetes").join(&self.kubernetes))
    }

    fn is_built(&self, path: &Path) -> bool {
        path.is_file() && fs::read_to_string(beside(path, ".stamp")).is_ok_and(|stamp| stamp == self.stamp())
    }

    fn stamp(&self) -> String {
        format!("go {} {}\n{}", self.arguments.join(" "), self.binary.package(), self.modules)
    }

    fn build(&self, path: &Path) -> Result<PathBuf, Error> {
        let go = Command::new("go").arg("version").output().map_err(|_| Error::NoToolchain(self.binary))?;
        let go = String::from_utf8_lossy(&go.stdout).trim().replace("go version ", "");
        let directory = self.directory()?;
        fs::create_dir_all(&directory).map_err(at(&directory))?;
        let _lock = self.lock(&beside(path, ".lock"))?;
        if self.is_built(path) {
            return Ok(path.to_owned()); // by the process whose lock we waited for
        }
        say(&format!(
            "building {} for Kubernetes {} with {go}; this takes minutes, once",
            self.binary, self.kubernetes
        ));
        let started = Instant::now();
        let (partial, log) = (beside(path, ".partial"), beside(path, ".log"));
        let _ = fs::remove_file(&log);
        let mut command = Command::new("go");
        command.args(&self.arguments).arg("-o").arg(&partial).arg(self.binary.package());
        command.current_dir(self.binary.component().path());
        command.env("CGO_ENABLED", "0").env("GOWORK", "off").env("GOFLAGS", "");
        let status = Process::spawn(&mut command, &log).and_then(Process::wait).map_err(at(&partial))?;
        if !status.success() {
            return Err(Error::Build { binary: self.binary, output: read(&log)? });
        }
        let _ = fs::remove_file(&log);
        // Without a stamp there is no binary, so the old stamp goes first and the new one comes last.
        let stamp = beside(path, ".stamp");
        let _ = fs::remove_file(&stamp);
        fs::rename(&partial, path).map_err(at(path))?;
        fs::write(&partial, self.stamp()).and_then(|()| fs::rename(&partial, &stamp)).map_err(at(&stamp))?;
        say(&format!("built {} in {:.0?}", path.display(), started.elapsed()));
        Ok(path.to_owned())
    }

    fn lock(&self, path: &Path) -> Result<File, Error> {
        let file = File::create(path).map_err(at(path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                say(&format!("waiting for another process that builds {}", self.binary));
                file.lock().map_err(at(path))?;
            }
            Err(TryLockError::Error(source)) => return Err(at(path)(source)),
        }
        Ok(file)
    }
}

/// Small and the same on every machine: no symbols, no build id; and the version that a release would carry.
fn ldflags(component: &Component, version: &str) -> String {
    let numbers: Vec<&str> = version.trim_start_matches('v').split('.').collect();
    let part = |part| match part {
        Part::Whole => version,
        Part::Major => numbers[0],
        Part::Minor => numbers.get(1).copied().unwrap_or_default(),
    };
    let set = component.version_in.iter().map(|(variable, of)| format!(" -X {variable}={}", part(*of)));
    format!("-s -w -buildid={}", set.collect::<String>())
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(at(path))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_version_is_the_one_that_is_stamped() {
        let stamp = Recipe::read(Binary::KubeApiserver).expect("a pinned kube-apiserver").stamp();
        let flags = stamp.lines().next().unwrap_or_default();
        assert!(flags.contains("component-base/version.gitVersion=v1.35.8 "), "{flags}");
        assert!(flags.contains("version.gitMajor=1 ") && flags.contains("version.gitMinor=35 "), "{flags}");
    }

    #[test]
    fn every_binary_is_pinned() {
        for binary in Binary::ALL {
            let recipe = Recipe::read(binary).expect("a recipe");
            let module = binary.component().module;
            let sum =
                format!("\n{module} {} h1:", binary.component().version(&recipe.modules).expect("a version"));
            assert!(recipe.modules.contains(&sum), "{binary}: no checksum of {module}");
        }
    }

    #[test]
    fn a_changed_pin_is_a_changed_stamp() {
        let recipe = || Recipe::read(Binary::Etcd).expect("a pinned etcd");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("etcd");
        fs::write(&path, "").expect("a binary");
        assert!(!recipe().is_built(&path), "a binary without a stamp is not built");
        fs::write(beside(&path, ".stamp"), recipe().stamp()).expect("a stamp");
        assert!(recipe().is_built(&path));
        let mut changed = recipe();
        changed.modules = changed.modules.replace("v3.6.8 h1:", "v3.6.9 h1:");
        assert!(!changed.is_built(&path));
    }

    #[test]
    fn versions_are_read_from_the_requirement() {
        let check = |go_mod: &str, version: Option<&str>| {
            assert_eq!(KUBERNETES.version(go_mod).ok().as_deref(), version, "{go_mod}");
        };
        check("require k8s.io/kubernetes v1.2.3", Some("v1.2.3"));
        check("require (\n\tk8s.io/kubernetes v1.2.3 // indirect\n)", Some("v1.2.3"));
        check("tool (\n\tk8s.io/kubernetes\n)\nrequire (\n\tk8s.io/kubernetes v1.2.3\n)", Some("v1.2.3"));
        check("require k8s.io/kubernetes/other v1.2.3", None);
    }
}
