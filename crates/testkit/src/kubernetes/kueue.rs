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

/// A running manager of Kueue. It ends when this is dropped.
#[derive(Debug)]
pub struct Kueue {
    program: Program,
    webhooks: (u16, String),
    _certificates: MetricsCertificates,
}

/// A certificate where Kueue looks for it, taken away again if it is ours.
#[derive(Debug)]
struct MetricsCertificates {
    ours: bool,
}

impl MetricsCertificates {
    fn ensure(certificate: &str, key: &str) -> Result<MetricsCertificates, Error> {
        let directory = Path::new(METRICS_CERTIFICATES);
        if directory.join("tls.crt").exists() {
            return Ok(MetricsCertificates { ours: false });
        }
        let write = || {
            fs::create_dir_all(directory)?;
            fs::write(directory.join("tls.key"), key)?;
            fs::write(directory.join("tls.crt"), certificate)
        };
        write().map_err(Error::io("write the certificate that Kueue asks for"))?;
        Ok(MetricsCertificates { ours: true })
    }
}

impl Drop for MetricsCertificates {
    fn drop(&mut self) {
        if self.ours {
            // Whatever is left is in nobody's way.
            let _ = fs::remove_dir_all(METRICS_CERTIFICATES);
            let _ = fs::remove_dir(Path::new(METRICS_CERTIFICATES).parent().unwrap_or(Path::new("/")));
            let _ = fs::remove_dir("/etc/kueue");
        }
    }
}

impl ControlPlane {
    /// Runs Kueue's manager here, as the user `admin`. `settings` is laid over its configuration, key by key. Its
    /// definitions have to be installed; its webhooks are not.
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
        let certificates =
            MetricsCertificates::ensure(&certified.cert.pem(), &certified.signing_key.serialize_pem())?;
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
        Ok(Kueue { program, webhooks, _certificates: certificates })
    }
}

impl Kueue {
    /// The loopback port of its webhooks, and the certificate that they show.
    pub fn webhooks(&self) -> (u16, &str) {
        (self.webhooks.0, &self.webhooks.1)
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
