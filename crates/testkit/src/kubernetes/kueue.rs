//! Kueue's manager on a control plane, for those who are compared with it.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{Binary, ControlPlane, Error, ports, program::Program};

/// Where Kueue looks for the certificate of its metrics when it does not manage certificates itself. It cannot be told
/// otherwise.
const METRICS_CERTIFICATES: &str = "/etc/kueue/metrics/certs";
/// The same for the server that says who waits where.
const VISIBILITY_CERTIFICATES: &str = "/visibility";

/// A running manager of Kueue. It ends when this is dropped.
#[derive(Debug)]
pub struct Kueue {
    program: Program,
    webhooks: (u16, String),
    visibility: Option<u16>,
    _certificates: Vec<Certificates>,
}

/// A certificate where Kueue looks for it, taken away again if it is ours.
#[derive(Debug)]
struct Certificates {
    directory: &'static Path,
    ours: bool,
}

impl Certificates {
    fn ensure(directory: &'static str, certificate: &str, key: &str) -> Result<Certificates, Error> {
        let directory = Path::new(directory);
        if directory.join("tls.crt").exists() {
            return Ok(Certificates { directory, ours: false });
        }
        let write = || {
            fs::create_dir_all(directory)?;
            fs::write(directory.join("tls.key"), key)?;
            fs::write(directory.join("tls.crt"), certificate)
        };
        write().map_err(Error::io("write the certificate that Kueue asks for"))?;
        Ok(Certificates { directory, ours: true })
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        if self.ours {
            // Whatever is left is in nobody's way; what others have a use for is not empty.
            let _ = fs::remove_dir_all(self.directory);
            for above in self.directory.ancestors().skip(1).take(2) {
                let _ = fs::remove_dir(above);
            }
        }
    }
}

impl ControlPlane {
    /// Runs Kueue's manager here, as the user `admin`. `settings` is laid over its configuration, key by key. Its
    /// definitions have to be installed; its webhooks are not. It says who waits where only if its gate is switched on.
    pub async fn kueue(&self, settings: &Value) -> Result<Kueue, Error> {
        let path = Binary::Kueue.ensure()?;
        let directory = self.directory().join("kueue");
        let io = |what| Error::io(what);
        fs::create_dir_all(&directory).map_err(io("make a directory"))?;
        // Its webhook server starts whether it is asked or not, and wants a certificate.
        let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
        fs::write(directory.join("tls.crt"), certified.cert.pem()).map_err(io("write a certificate"))?;
        fs::write(directory.join("tls.key"), certified.signing_key.serialize_pem())
            .map_err(io("write a key"))?;
        let certificates = |directory| {
            Certificates::ensure(directory, &certified.cert.pem(), &certified.signing_key.serialize_pem())
        };
        let is_visible = settings["featureGates"]["VisibilityOnDemand"] == true;
        let mut all = vec![certificates(METRICS_CERTIFICATES)?];
        let mut visibility = None;
        if is_visible {
            all.push(certificates(VISIBILITY_CERTIFICATES)?);
            visibility = Some(ports::free()?);
        }
        let (health, webhooks) = (ports::free()?, ports::free()?);
        let mut config = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": "kueue-system",
            "webhook": { "host": "127.0.0.1", "port": webhooks, "certDir": directory },
            "health": { "healthProbeBindAddress": format!("127.0.0.1:{health}") },
            "metrics": { "bindAddress": "0" },
            "leaderElection": { "leaderElect": false },
            "internalCertManagement": { "enable": false },
            "integrations": { "frameworks": ["batch/job"] },
            // Its server wants to be called by the aggregator of a whole cluster.
            "visibilityServer": { "bindAddress": "127.0.0.1", "bindPort": visibility.unwrap_or(8082) },
            "featureGates": { "VisibilityOnDemand": false },
        });
        for (key, value) in settings.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        let file = directory.join("config.json");
        fs::write(&file, config.to_string()).map_err(io("write a configuration"))?;
        let arguments = vec![
            format!("--config={}", file.display()),
            format!("--kubeconfig={}", self.kubeconfig().display()),
        ];
        let program = Program::new("kueue", &path, arguments, health, self.directory());
        program.start()?;
        self.until("kueue", &program, || is_ready(health)).await?;
        let webhooks = (webhooks, certified.cert.pem());
        Ok(Kueue { program, webhooks, visibility, _certificates: all })
    }
}

impl Kueue {
    /// The loopback port of its webhooks, and the certificate that they show.
    pub fn webhooks(&self) -> (u16, &str) {
        (self.webhooks.0, &self.webhooks.1)
    }

    /// The loopback port on which it says who waits where, if it does.
    pub fn visibility(&self) -> Option<u16> {
        self.visibility
    }

    /// Its process, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.program.id()
    }
}

async fn is_ready(port: u16) -> Result<(), String> {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = ask.await.map_err(|error| error.to_string())?;
    if answer.contains(" 200 ") { Ok(()) } else { Err(answer) }
}
