//! From a pod's words to an order that can be carried out.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{Container, Pod};
use rules::node::{
    downward::Place as Downward,
    environment::{self},
    expand::expand,
    hostname,
    image::{self, Found},
    namespaces, resolver, sysctl,
};
use types::Quantity;

use super::{
    Shared,
    cgroups::Cgroup,
    identity,
    instance::Start,
    machine,
    sessions::Place,
    streams::{Input, Terminal},
    volumes::{MEMORY, Volumes, remove_tree},
};
use crate::{
    init::{Ipc, Isolation, Mount, Order, Processes, Root},
    logs::Log,
    network::{Interface, dns},
    threads,
};

/// What programs are found by, unless the container says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The file that says how names are found.
const RESOLVER: &str = "resolv.conf";

/// Why a container cannot be started now.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Refusal {
    fn config(message: String) -> Refusal {
        Refusal { reason: "CreateContainerConfigError", message }
    }

    fn create(what: &str, error: &io::Error) -> Refusal {
        Refusal { reason: "CreateContainerError", message: format!("{what}: {error}") }
    }
}

/// Where the files of a pod are.
#[derive(Clone, Debug)]
pub(super) struct Directories {
    pub(super) pod: PathBuf,
}

impl Directories {
    pub(super) fn of(shared: &Shared, uid: &str) -> Directories {
        Directories { pod: shared.settings.directory.join("pods").join(uid) }
    }

    pub(super) fn containers(&self) -> PathBuf {
        self.pod.join("containers")
    }

    pub(super) fn instance(&self, container: &str, number: i32) -> PathBuf {
        self.containers().join(container).join(number.to_string())
    }

    pub(super) fn log(&self, container: &str, number: i32) -> PathBuf {
        self.logs().join(container).join(format!("{number}.log"))
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.pod.join("logs")
    }

    /// What belongs to no container in particular. None can be called so.
    pub(super) fn sandbox(&self) -> PathBuf {
        self.instance("..sandbox", 0)
    }

    /// Where a container writes its termination message.
    pub(super) fn message(&self, container: &str, number: i32) -> PathBuf {
        self.instance(container, number).join("termination-log")
    }
}

/// Everything about one container of one pod that is to be started.
pub(super) struct Launch<'a> {
    pub(super) shared: &'a Shared,
    pub(super) pod: &'a Pod,
    pub(super) container: &'a Container,
    pub(super) number: i32,
    pub(super) ip: &'a str,
    pub(super) interface: Option<&'a Interface>,
    pub(super) processes: Processes,
    pub(super) ipc: Ipc,
    pub(super) volumes: &'a Volumes,
    pub(super) directories: &'a Directories,
}

/// What a container is connected to, if it asks for that.
#[derive(Default)]
struct Ends {
    /// Our side of its terminal.
    terminal: Option<Terminal>,
    terminal_name: Option<PathBuf>,
    input: Option<Input>,
    /// What its input is read from, if that is no terminal.
    pipe: Option<PathBuf>,
}

impl Launch<'_> {
    /// Makes everything that the container needs; returns how to start it and what its image is.
    pub(super) async fn prepare(&self) -> Result<(Start<'_>, String), Refusal> {
        let found = self.image().await?;
        let variables = self.variables().await?;
        let user = identity::of(self.pod, self.container).map_err(Refusal::config)?;
        let hostname =
            hostname::of_kernel(self.pod, &self.shared.host.settings.name).map_err(Refusal::config)?;
        let expanded = |text: &String| expand(text, |name| variables.get(name).map(String::as_str));
        let (command, lower, program) = self.command(found.as_ref(), expanded)?;
        let directory = self.directories.instance(&self.container.name, self.number);
        let isolation = self.shared.machine.isolation;
        self.make_directories(&directory)
            .await
            .map_err(|error| Refusal::create("failed to make directories", &error))?;
        let mounts = self.mounts(&directory, program.as_deref(), &variables)?;
        let mut variables = self.with_usual(variables, user.uid, &hostname);
        let (root, mounts) = if isolation == Isolation::Plain {
            self.link(&directory, &mounts, &mut variables)?;
            (None, Vec::new())
        } else {
            (Some(self.root(&directory, &lower)?), mounts)
        };
        let cgroup = self.cgroup()?;
        let Ends { terminal, terminal_name, input, pipe } = self.ends(&directory)?;
        let place = Place {
            process: None,
            isolation,
            processes: self.processes,
            variables,
            directory: Some(self.working_directory(&directory)),
            user,
            cgroups: cgroup.as_ref().map(|cgroup| cgroup.directories().to_vec()).unwrap_or_default(),
            orders: directory.clone(),
            init: self.shared.settings.init.clone(),
        };
        let order = Order {
            isolation,
            processes: self.processes,
            ipc: self.ipc.clone(),
            command,
            variables: place.variables.clone(),
            directory: place.directory.clone(),
            root,
            mounts,
            sysctls: sysctl::files(self.pod),
            network: self.interface.map(Interface::path),
            hostname: Some(hostname),
            user: place.user.clone(),
            cgroups: place.cgroups.clone(),
            data_limit: if cgroup.is_some() { None } else { memory_limit(self.container) },
            terminal: terminal_name,
            input: pipe,
        };
        let log = Log::new(self.directories.log(&self.container.name, self.number));
        let init = self.shared.settings.init.as_slice();
        let start =
            Start { init, order, number: self.number, directory, cgroup, log, place, terminal, input };
        let image = found.map_or_else(|| "host".to_owned(), |found| found.path.display().to_string());
        Ok((start, image))
    }

    /// Its files, as they are kept apart from those of others.
    fn root(&self, directory: &Path, lower: &Path) -> Result<Root, Refusal> {
        let context = self.container.security_context.as_ref();
        let is_read_only = context.and_then(|it| it.read_only_root_filesystem) == Some(true);
        machine::root_in(directory, lower, &self.shared.hidden(), is_read_only)
            .map_err(|error| Refusal::create("failed to make directories", &error))
    }

    /// What holds it to its limits, where there is such a thing.
    fn cgroup(&self) -> Result<Option<Cgroup>, Refusal> {
        let Some(cgroups) = &self.shared.machine.cgroups else { return Ok(None) };
        let uid = self.pod.metadata.uid.as_deref().unwrap_or_default();
        let name = format!("{uid}-{}-{}", self.container.name, self.number);
        let made = cgroups.make(&name, self.container.resources.as_ref());
        made.map(Some).map_err(|error| Refusal::create("failed to make a cgroup", &error))
    }

    /// Where it starts; a plain one that does not say is in a directory of its own.
    fn working_directory(&self, directory: &Path) -> PathBuf {
        let wanted = self.container.working_dir.as_ref().filter(|directory| !directory.is_empty());
        match (wanted, self.shared.machine.isolation) {
            (Some(wanted), _) => PathBuf::from(wanted),
            (None, Isolation::Plain) => directory.to_owned(),
            (None, Isolation::Full | Isolation::User) => PathBuf::from("/"),
        }
    }

    /// Opens the terminal and the input that it asks for.
    fn ends(&self, directory: &Path) -> Result<Ends, Refusal> {
        let mut ends = Ends::default();
        if self.container.tty == Some(true) {
            let opened = Terminal::open();
            let (terminal, name) =
                opened.map_err(|error| Refusal::create("failed to open a terminal", &error))?;
            (ends.terminal, ends.terminal_name) = (Some(terminal), Some(name));
        }
        if self.container.stdin == Some(true) {
            let failed = |error| Refusal::create("failed to open the standard input", &error);
            ends.input = Some(if let Some(terminal) = &ends.terminal {
                Input::terminal(terminal.clone())
            } else {
                let pipe = ends.pipe.insert(directory.join("stdin"));
                Input::pipe(pipe, self.container.stdin_once == Some(true)).map_err(failed)?
            });
        }
        Ok(ends)
    }

    async fn image(&self) -> Result<Option<Found>, Refusal> {
        let image = self.container.image.as_deref().unwrap_or_default();
        if let Some(found) = self.shared.settings.images.find(image) {
            return Ok(Some(found));
        }
        let Some(resolver) = &self.shared.settings.resolver else { return Ok(None) };
        resolver.resolve(image).await.map_err(|message| Refusal { reason: image::NOT_PULLED, message })
    }

    /// The command, the directory that is the root, and the program that the image is, if it is one.
    fn command(
        &self,
        found: Option<&Found>,
        expanded: impl Fn(&String) -> String,
    ) -> Result<(Vec<String>, PathBuf, Option<PathBuf>), Refusal> {
        let image = self.container.image.as_deref().unwrap_or_default();
        let own = self.container.command.iter().flatten();
        let mut command: Vec<String> = own.map(&expanded).collect();
        let (lower, program) = match found {
            Some(found) if found.path.is_dir() => (found.path.clone(), None),
            Some(found) => (PathBuf::from("/"), Some(found.path.clone())),
            None => (PathBuf::from("/"), None),
        };
        if command.is_empty() {
            let entrypoint = program.as_ref().map(|program| program.display().to_string());
            let entrypoint = entrypoint.or_else(|| found.and_then(|found| found.entrypoint.clone()));
            let Some(entrypoint) = entrypoint else {
                let (reason, message) = image::unknown(image);
                return Err(Refusal { reason, message });
            };
            command.push(entrypoint);
            if self.container.args.as_ref().is_none_or(Vec::is_empty) {
                command.extend(found.iter().flat_map(|found| found.arguments.iter().cloned()));
            }
        }
        command.extend(self.container.args.iter().flatten().map(expanded));
        Ok((command, lower, program))
    }

    async fn variables(&self) -> Result<BTreeMap<String, String>, Refusal> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let data = self.shared.objects.data(namespace, environment::sources(self.container)).await;
        let mut data = data.map_err(|error| Refusal::config(error.to_string()))?;
        let files = environment::files(self.container);
        if !files.is_empty() {
            data.files = self.volumes.texts(files).await;
        }
        // In the network of pods the address of the service leads to the server.
        let server = self.shared.settings.server.as_ref().filter(|_| self.shared.machine.network.is_none());
        let services = self.shared.objects.service_variables(self.pod, server);
        let host_ip = self.shared.host.settings.address.to_string();
        let place =
            Downward { ip: self.ip, host_ip: &host_ip, allocatable: &self.shared.host.settings.capacity };
        environment::of(self.pod, self.container, &data, &services, &place).map_err(Refusal::config)
    }

    /// What every container has, unless it says otherwise.
    fn with_usual(
        &self,
        mut variables: BTreeMap<String, String>,
        uid: Option<u32>,
        hostname: &str,
    ) -> BTreeMap<String, String> {
        let home = if uid.is_none_or(|uid| uid == 0) { "/root" } else { "/" };
        for (name, value) in [("PATH", PATH), ("HOME", home), ("HOSTNAME", hostname)] {
            variables.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        if self.container.tty == Some(true) {
            variables.entry("TERM".to_owned()).or_insert_with(|| "xterm".to_owned());
        }
        variables
    }

    /// Makes the container's directories, after whatever was there is removed, and the files that every container has.
    async fn make_directories(&self, directory: &Path) -> io::Result<()> {
        let directory = directory.to_owned();
        let log = self.directories.log(&self.container.name, self.number);
        let message = self.directories.message(&self.container.name, self.number);
        let mut files =
            vec![(message.clone(), String::new()), (directory.join("hosts"), hosts(self.pod, self.ip))];
        if self.shared.machine.network.is_some() {
            let hosts_own = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
            let text = resolver::configuration(self.pod, &hosts_own, dns::ADDRESS);
            files.push((directory.join(RESOLVER), text));
        }
        threads::blocking(move || {
            remove_tree(&directory)?;
            [Some(directory.as_path()), log.parent()]
                .into_iter()
                .flatten()
                .try_for_each(fs::create_dir_all)?;
            files.iter().try_for_each(|(path, text)| fs::write(path, text))?;
            fs::set_permissions(&message, fs::Permissions::from_mode(0o666))
        })
        .await
    }

    fn mounts(
        &self,
        directory: &Path,
        program: Option<&Path>,
        variables: &BTreeMap<String, String>,
    ) -> Result<Vec<Mount>, Refusal> {
        let wanted = self.container.volume_mounts.as_deref().unwrap_or_default();
        let mut mounts = Vec::new();
        let mut bind = |from: PathBuf, to: &str, read_only| {
            mounts.push(Mount { source: from, inside: None, target: PathBuf::from(to), read_only });
        };
        bind(directory.join("hosts"), "/etc/hosts", false);
        if self.shared.machine.network.is_some() {
            bind(directory.join(RESOLVER), "/etc/resolv.conf", false);
        }
        let message = self.container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
        bind(self.directories.message(&self.container.name, self.number), message, false);
        // Images that are one program have it in their root, where many pods name it.
        if let Some(name) = program.and_then(Path::file_name)
            && let Some(program) = program
        {
            bind(program.to_owned(), &format!("/{}", name.to_string_lossy()), true);
        }
        // Containers of one pod talk to each other through memory, or to the host. A volume that is to be there comes
        // over it.
        let is_apart = self.shared.machine.isolation != Isolation::Plain;
        if is_apart && namespaces::is_hosts_ipc(self.pod) {
            bind(PathBuf::from(MEMORY), MEMORY, false);
        } else if is_apart && has_several_containers(self.pod) {
            let failed = |error: io::Error| Refusal::create("failed to make shared memory", &error);
            if let Some(memory) = self.volumes.shared_memory().map_err(failed)? {
                bind(memory, MEMORY, false);
            }
        }
        mounts.extend(self.volumes.mounts(wanted, variables).map_err(Refusal::config)?);
        Ok(mounts)
    }

    /// Without namespaces nothing can appear where the pod wants it: it appears below a directory that a variable names.
    fn link(
        &self,
        directory: &Path,
        mounts: &[Mount],
        variables: &mut BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        let failed = |error: io::Error| Refusal::create("failed to link volumes", &error);
        let root = directory.join("root");
        fs::create_dir_all(&root).map_err(failed)?;
        for mount in mounts {
            let source = match &mount.inside {
                Some(inside) => mount.source.join(inside),
                None => mount.source.clone(),
            };
            let link = root.join(mount.target.strip_prefix("/").unwrap_or(&mount.target));
            if let Some(parent) = link.parent() {
                fs::create_dir_all(parent).map_err(failed)?;
            }
            symlink(source, link).map_err(failed)?;
        }
        variables.insert("POD_ROOT".to_owned(), root.display().to_string());
        if self.container.volume_mounts.as_ref().is_some_and(|mounts| !mounts.is_empty()) {
            let message = format!(
                "this node has no mount namespaces: the volumes of container {} are below $POD_ROOT, not at their mountPath",
                self.container.name
            );
            self.shared.events.warning(self.pod, Some(&self.container.name), "VolumesBelowPodRoot", message);
        }
        Ok(())
    }
}

fn has_several_containers(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let sidecars = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    spec.map_or(0, |spec| spec.containers.len()) + sidecars.count() > 1
}

/// The names that a pod knows: its own and those that it asks for, after the usual ones or, in the network of its host,
/// those that the host knows.
fn hosts(pod: &Pod, ip: &str) -> String {
    let in_hosts_network = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    let mut text = if in_hosts_network {
        let known = fs::read_to_string("/etc/hosts").unwrap_or_default();
        format!("# Kubernetes-managed hosts file (host network).\n{known}")
    } else {
        String::from(
            "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
             fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
        )
    };
    let mut add = |ip: &str, names: &str| {
        let _ = writeln!(text, "{ip}\t{names}"); // a String takes everything
    };
    if !in_hosts_network {
        let name = hostname::short(pod);
        match hostname::domain(pod) {
            Some(domain) => add(ip, &format!("{name}.{domain}\t{name}")),
            None => add(ip, &name),
        }
    }
    for alias in pod.spec.iter().flat_map(|spec| spec.host_aliases.iter().flatten()) {
        add(&alias.ip, &alias.hostnames.as_deref().unwrap_or_default().join("\t"));
    }
    text
}

fn memory_limit(container: &Container) -> Option<u64> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    let bytes = limits.get("memory")?.0.parse::<Quantity>().ok()?.units_saturating();
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_in_the_network_of_its_host_knows_the_names_that_the_host_knows() {
        let pod = |host: bool| -> Pod {
            let aliases = json!([{ "ip": "10.0.0.1", "hostnames": ["a", "b"] }]);
            let spec = json!({ "containers": [], "hostNetwork": host, "hostAliases": aliases });
            serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).expect("a pod")
        };
        let (own, hosts_own) = (hosts(&pod(false), "127.64.0.1"), hosts(&pod(true), "127.0.0.1"));
        assert!(
            own.starts_with("# Kubernetes-managed hosts file.\n") && own.contains("127.64.0.1\tp\n"),
            "{own}"
        );
        assert!(hosts_own.starts_with("# Kubernetes-managed hosts file (host network).\n"), "{hosts_own}");
        assert!(own.ends_with("10.0.0.1\ta\tb\n") && hosts_own.ends_with("10.0.0.1\ta\tb\n"));
    }
}
