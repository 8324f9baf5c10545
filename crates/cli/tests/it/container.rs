//! What the recipe of the image says about this workspace is so, and its second stage does: the program runs in an empty
//! root, as the image's user, with no more libraries than a slim image has. That the first stage builds is for those to see
//! who have an engine.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::architecture::cargo;

fn tree(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_image_has_the_binary_that_manifests_start() {
    let recipe = tree("deploy/Containerfile");
    let after = |text: &str| {
        let (_, rest) = recipe.split_once(text).unwrap_or_else(|| panic!("{text} is missing: {recipe}"));
        rest.split_whitespace().next().expect("a word").to_owned()
    };
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|it| it["name"] == after("--package ").as_str()).expect("the package");
    let binary = after(&format!("/source/target/{}/", after("--profile ")));
    let has = |target: &Value| target["name"] == binary.as_str() && target["kind"][0] == "bin";
    assert!(package["targets"].as_array().expect("targets").iter().any(has), "{binary}");
    assert!(recipe.ends_with(&format!("ENTRYPOINT [\"/usr/local/bin/{binary}\"]\n")), "{recipe}");

    // Who runs it in a cluster calls it by this name and version, and as a user who is not root.
    let image = format!("{binary}:{}", package["version"].as_str().expect("a version"));
    assert_eq!(after("-t "), image);
    assert!(tree("deploy/kustomize/operator.yaml").contains(&format!("image: {image}\n")), "{image}");
    let user: u32 = after("USER ").parse().expect("a number, which a cluster can tell from root");
    assert_ne!(user, 0);
    for manifest in ["deploy/kustomize/operator.yaml", "deploy/chart/templates/operator.yaml"] {
        let text = tree(manifest);
        assert!(text.contains(&format!("runAsUser: {user}\n")), "{manifest}");
        // The entry point is the image's, and what follows it the manifest's.
        assert!(text.contains("- args:\n        - operator\n") && !text.contains("command:"), "{manifest}");
    }
    // What was built here is of no use there, and large.
    assert!(tree(".dockerignore").lines().any(|line| line == "/target"));
}

/// The libraries that every slim image of Debian has: those of its libc and of its compiler.
const LIBRARIES: [&str; 6] =
    ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1"];

/// The files of this system that the program is linked with, its loader among them.
fn libraries() -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(env!("CARGO_BIN_EXE_ferry")).output().expect("ldd runs");
    let text = String::from_utf8(output.stdout).expect("text");
    // `libc.so.6 => /lib/libc.so.6 (0x…)`, or a path alone for the loader; what the kernel brings has no file.
    let paths = text.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(PathBuf::from).collect()
}

/// Runs the program as a container of the image runs it: in a root that has nothing else, by a user who owns nothing there.
fn contained(root: &Path, arguments: &[&str]) -> Output {
    let mut chroot = Command::new("chroot");
    chroot.arg("--userspec=65532:65532").arg(root).arg("/usr/local/bin/ferry").args(arguments);
    // What leads to a cluster of this machine is not there either.
    let chroot = chroot.env_remove("KUBECONFIG").env_remove("HOME").env_remove("KUBERNETES_SERVICE_HOST");
    chroot.output().expect("chroot runs")
}

#[test]
fn the_program_runs_in_an_empty_image() {
    let libraries = libraries();
    assert!(!libraries.is_empty(), "it is linked with the libc of the image");
    for path in &libraries {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(LIBRARIES.contains(&name) || name.starts_with("ld-linux"), "{name} is in no slim image");
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can run it in another root: skipped");
        return;
    }
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let put = |from: &Path, to: &str| {
        let to = root.path().join(to.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
        std::fs::copy(from, &to).expect("a file");
    };
    put(Path::new(env!("CARGO_BIN_EXE_ferry")), "/usr/local/bin/ferry");
    for path in &libraries {
        put(path, path.to_str().expect("a path"));
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(root.path(), open).expect("others may look into it");
    for (arguments, code, says) in [
        (&["--version"][..], 0, concat!("ferry ", env!("CARGO_PKG_VERSION"), "\n")),
        (&["operator", "--help"], 0, "--webhook-service"),
        (&["crds"], 0, "clusterqueues.kueue.x-k8s.io"),
        // Without the service account of a pod there is nothing that it could do.
        (&["operator"], 2, "found no cluster"),
    ] {
        let output = contained(root.path(), arguments);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
}
