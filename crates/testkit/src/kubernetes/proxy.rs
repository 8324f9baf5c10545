//! A TCP proxy in front of an API server, for everything that a network does to those who trust it.
//!
//! It passes encrypted bytes on and understands none of them, except where the answers of a TLS handshake end: a client
//! whose answers are lost must still be able to connect and ask.

use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4, TcpListener as StdListener},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, JoinHandle},
    time::Duration,
};

use kube::{Client, Config};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    runtime,
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};

use super::{Error, control_plane::client};

/// What goes wrong between client and server until [`Proxy::heal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing arrives, in either direction, and no connection is closed. After healing, what was sent meanwhile arrives,
    /// as TCP would have sent it again.
    Drop,
    /// Everything arrives so much later, in each direction.
    Delay(Duration),
    /// Every connection is reset, and so is every new one.
    Cut,
    /// Requests arrive and take effect; the answers are lost. Healing closes the connections that lost something.
    SwallowAnswers,
}

/// A way to an API server that can be made to fail. Dropping it closes every connection.
#[derive(Debug)]
pub struct Proxy {
    forwarder: Forwarder,
    config: Config,
    kubeconfig: PathBuf,
}

impl Proxy {
    pub(super) fn new(forwarder: Forwarder, config: Config, kubeconfig: PathBuf) -> Proxy {
        Proxy { forwarder, config, kubeconfig }
    }

    /// Makes `fault` happen from now on, instead of the one before.
    pub fn inject(&self, fault: Fault) {
        self.forwarder.fault.send_replace(Some(fault));
    }

    /// Makes everything pass again.
    pub fn heal(&self) {
        self.forwarder.fault.send_replace(None);
    }

    /// A new client that goes through the proxy; see [`super::ControlPlane::client`].
    pub fn client(&self) -> Client {
        client(&self.config)
    }

    /// What [`Proxy::client`] is made of, for a client with other timeouts or layers.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// A kubeconfig file for the user `admin` that goes through the proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

/// Accepts connections on a thread of its own, so that it depends on no test's runtime.
#[derive(Debug)]
pub(super) struct Forwarder {
    pub(super) port: u16,
    fault: watch::Sender<Option<Fault>>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Forwards what comes to an address to the loopback port `target`; its port 0 is any free one.
    pub(super) fn start(at: SocketAddrV4, target: u16) -> Result<Forwarder, Error> {
        let listener = StdListener::bind(at).map_err(Error::io("listen"))?;
        listener.set_nonblocking(true).map_err(Error::io("listen"))?;
        let port = listener.local_addr().map_err(Error::io("listen"))?.port();
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("start a runtime"))?;
        let (fault, faults) = watch::channel(None);
        let (stop, mut stopped) = mpsc::channel(1);
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener that does not block");
                tokio::select! {
                    _ = stopped.recv() => {}
                    () = accept(&listener, target, &faults) => {}
                }
            });
        });
        Ok(Forwarder { port, fault, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop = None; // ends the thread, and its runtime with every connection
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(listener: &TcpListener, target: u16, faults: &watch::Receiver<Option<Fault>>) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => drop(tokio::spawn(forward(client, target, faults.clone()))),
            // The client has left again, or there are no more file descriptors: others may have better luck later.
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves one connection. However it ends, both sides are reset, since a real fault says no goodbye.
async fn forward(
    mut client: TcpStream,
    target: u16,
    faults: watch::Receiver<Option<Fault>>,
) -> io::Result<()> {
    client.set_zero_linger()?;
    if *faults.borrow() == Some(Fault::Cut) {
        return Ok(());
    }
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let connection = Connection { faults, asked: AtomicBool::new(false), lost: AtomicBool::new(false) };
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    tokio::select! {
        result = connection.pump(from_client, to_server, Direction::Request) => result,
        result = connection.pump(from_server, to_client, Direction::Answer) => result,
        () = connection.severed() => Ok(()),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Request,
    Answer,
}

struct Connection {
    faults: watch::Receiver<Option<Fault>>,
    /// The client has all it needs from the server in order to ask.
    asked: AtomicBool,
    /// Bytes of an answer are missing, so nothing that follows can be understood.
    lost: AtomicBool,
}

impl Connection {
    /// Passes bytes on until one side closes.
    async fn pump(
        &self,
        mut from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
        direction: Direction,
    ) -> io::Result<()> {
        let (sender, mut chunks) = mpsc::channel::<(Instant, Vec<u8>)>(256);
        let read = async move {
            let mut records = Records::default();
            let mut buffer = vec![0; 64 * 1024];
            loop {
                let count = from.read(&mut buffer).await?;
                if direction == Direction::Request && records.carry_data(&buffer[..count]) {
                    self.asked.store(true, Ordering::Relaxed);
                }
                let delay = match *self.faults.borrow() {
                    Some(Fault::Delay(delay)) => delay,
                    _ => Duration::ZERO,
                };
                if count == 0
                    || sender.send((Instant::now() + delay, buffer[..count].to_vec())).await.is_err()
                {
                    return Ok::<_, io::Error>(());
                }
            }
        };
        let write = async {
            while let Some((due, chunk)) = chunks.recv().await {
                sleep_until(due).await;
                if self.passes(direction).await {
                    to.write_all(&chunk).await?;
                }
            }
            Ok(())
        };
        tokio::try_join!(read, write).map(drop)
    }

    /// Whether a chunk is passed on (or lost) as things stand when its turn comes.
    async fn passes(&self, direction: Direction) -> bool {
        let mut faults = self.faults.clone();
        let fault = faults.wait_for(|fault| *fault != Some(Fault::Drop)).await.map(|fault| *fault);
        match fault {
            Ok(None | Some(Fault::Delay(_) | Fault::Drop)) => !self.lost.load(Ordering::Relaxed),
            Ok(Some(Fault::Cut)) | Err(_) => false,
            Ok(Some(Fault::SwallowAnswers)) => {
                let swallowed = direction == Direction::Answer && self.asked.load(Ordering::Relaxed);
                self.lost.fetch_or(swallowed, Ordering::Relaxed);
                !swallowed
            }
        }
    }

    /// Returns when the connection is to be reset.
    async fn severed(&self) {
        let mut faults = self.faults.clone();
        let cut = |fault: &Option<Fault>| match fault {
            Some(Fault::Cut) => true,
            Some(Fault::SwallowAnswers) => false,
            _ => self.lost.load(Ordering::Relaxed),
        };
        let _ = faults.wait_for(cut).await; // an error: the proxy is gone, and this connection with it
    }
}

/// The framing of TLS, as far as needed to know when a client is past its handshake: it has then sent a first record of
/// application data, which in TLS 1.3 also hides the end of the handshake, and needs no further word to be understood.
#[derive(Default)]
struct Records {
    header: Vec<u8>,
    /// Bytes of the current record that are still to come.
    left: usize,
}

impl Records {
    const APPLICATION_DATA: u8 = 23;

    /// Follows the stream through `bytes`, and says whether a record of application data starts in them.
    fn carry_data(&mut self, mut bytes: &[u8]) -> bool {
        let mut found = false;
        while !bytes.is_empty() {
            if self.left > 0 {
                let skipped = self.left.min(bytes.len());
                self.left -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            self.header.push(bytes[0]);
            bytes = &bytes[1..];
            if let [kind, _, _, high, low] = self.header[..] {
                found |= kind == Self::APPLICATION_DATA;
                self.left = usize::from(u16::from_be_bytes([high, low]));
                self.header.clear();
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_asked_with_its_first_record_of_application_data() {
        let handshake = [&[22, 3, 1, 0, 6][..], &[23; 6], &[20, 3, 3, 0, 1, 1]].concat();
        let data = [&[23, 3, 3, 0, 2][..], &[0; 2]].concat();
        assert!(!Records::default().carry_data(&handshake), "a 23 inside another record is none");
        assert!(Records::default().carry_data(&[&handshake[..], &data].concat()));
        let mut bytewise = Records::default();
        let found: Vec<bool> =
            [handshake, data].concat().iter().map(|byte| bytewise.carry_data(&[*byte])).collect();
        assert_eq!(found.iter().position(|found| *found), Some(17 + 4), "header cut into pieces");
    }
}
