//! The Go programs and modules under `tools`: a test that holds our code against Kubernetes' own asks them.

use std::{
    env,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{is_required, say};

/// A Go module under `tools`, with a toolchain that can use it.
#[derive(Clone, Debug)]
pub struct Tools {
    directory: PathBuf,
}

impl Tools {
    /// The module `tools/<name>` for a test, which returns early on `None`: then there is no Go toolchain, and that was
    /// said aloud. With `FERRY_REQUIRE_KUBERNETES` that is a panic.
    pub fn for_test(name: &str) -> Option<Tools> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools").join(name);
        if Command::new("go").arg("version").output().is_ok_and(|version| version.status.success()) {
            return Some(Tools { directory });
        }
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        assert!(!is_required(), "{test} needs a Go toolchain, and there is none on PATH");
        say(&format!("SKIPPED {test}: there is no Go toolchain on PATH"));
        None
    }

    /// What `go` prints for these arguments.
    pub fn go<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
        let arguments: Vec<&str> = arguments.into_iter().collect();
        let mut go = Command::new("go");
        go.args(&arguments).current_dir(&self.directory).env("CGO_ENABLED", "0").env("GOWORK", "off");
        let output = go.output().expect("go starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "go {} failed:\n{said}", arguments.join(" "));
        output.stdout
    }

    /// The folder of a module that this one pins, fetched if need be.
    pub fn module(&self, path: &str) -> PathBuf {
        self.go(["mod", "download", path]);
        let folder =
            String::from_utf8(self.go(["list", "-m", "-f", "{{.Dir}}", path])).expect("a path is UTF-8");
        PathBuf::from(folder.trim())
    }

    /// A program of the module, built into the cache. Go keeps what has not changed, and a lock keeps others from
    /// building at once.
    pub fn program(&self, package: &str) -> io::Result<Program> {
        let module = self.directory.file_name().expect("a module has a name");
        let folder = cache()?.join("ferry").join(module);
        fs::create_dir_all(&folder)?;
        let lock = File::create(folder.join("lock"))?;
        lock.lock()?;
        let path = folder.join("program");
        say(&format!("building {} (minutes the first time)", path.display()));
        let output = path.to_str().ok_or_else(|| io::Error::other("the cache's path is not UTF-8"))?;
        self.go(["build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-o", output, package]);
        Ok(Program(path))
    }
}

/// A program that answers every line that it is asked with one line.
#[derive(Clone, Debug)]
pub struct Program(PathBuf);

impl Program {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The answers to all questions, in their order.
    pub fn ask(&self, questions: impl IntoIterator<Item = String>) -> Vec<String> {
        let questions: Vec<String> = questions.into_iter().collect();
        let mut program = Command::new(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("what was built starts");
        let mut input = program.stdin.take().expect("its input is a pipe");
        let lines = questions.join("\n") + "\n";
        let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
        let output = program.wait_with_output().expect("it answers");
        writer.join().expect("writing does not panic").expect("it reads everything");
        assert!(output.status.success(), "{} failed: {}", self.0.display(), output.status);
        let text = String::from_utf8(output.stdout).expect("it prints UTF-8");
        let answers: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(answers.len(), questions.len(), "it answers every question");
        answers
    }
}

/// `$XDG_CACHE_HOME`, or `~/.cache`.
pub fn cache() -> io::Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    cache.ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))
}
