//! Clients that are slow, silent, too many or hostile: the server does not wait for them, and nobody else does (issue of
//! security, rule 1.1).

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use apiserver::credentials::Credentials;
use apiserver::serve::{Limits, Server};
use base64::Engine as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::cluster;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);
/// What no test waits for.
const NEVER: Duration = Duration::from_secs(3600);
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Limits that nobody reaches.
fn generous() -> Limits {
    Limits {
        hello: NEVER,
        head: NEVER,
        body: NEVER,
        idle: NEVER,
        idle_in_a_crowd: NEVER,
        connections: 4096,
        requests: 4096,
    }
}

/// A server with these limits, and what its clients need to know.
struct Under {
    server: Server,
    client: Client,
    authority: CertificateDer<'static>,
}

impl Under {
    async fn start(limits: Limits) -> Under {
        let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = Server::listen(anywhere).await.expect("a port");
        let server = Server::start_within(cluster().await, credentials.clone(), listener, limits);
        let server = server.await.expect("a server");
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("kubeconfig");
        let url = format!("https://{}", server.address());
        credentials.write_kubeconfig(&path, "test", &url).expect("written");
        let kubeconfig = Kubeconfig::read_from(&path).expect("a kubeconfig");
        let known = kubeconfig.clusters[0].cluster.clone().expect("a cluster");
        let authority = known.certificate_authority_data.expect("its authority");
        let authority = base64::engine::general_purpose::STANDARD.decode(authority).expect("base64");
        let authority = CertificateDer::from_pem_slice(&authority).expect("a certificate");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.expect("a configuration")).expect("a client");
        Under { server, client, authority }
    }

    /// A connection that speaks one protocol.
    async fn connect(&self, protocol: &[u8]) -> TlsStream<TcpStream> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.authority.clone()).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().expect("versions");
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(self.server.address()).await.expect("a connection");
        let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS")
    }

    /// Another client gets what it asks for.
    async fn serves_others(&self) {
        let path = "/api/v1/namespaces/default";
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        let found: Value =
            timeout(PATIENCE, self.client.request(request)).await.expect("in time").expect(path);
        assert_eq!(found["metadata"]["name"], "default");
    }
}

/// Everything that comes until the connection ends, however it ends.
async fn until_end(stream: &mut TlsStream<TcpStream>) -> Vec<u8> {
    let mut read = Vec::new();
    let mut piece = [0; 4096];
    timeout(PATIENCE, async {
        while let Ok(count @ 1..) = stream.read(&mut piece).await {
            read.extend_from_slice(&piece[..count]);
        }
    })
    .await
    .expect("the server ends the connection");
    read
}

/// One answer that holds a known text.
async fn answer(stream: &mut TlsStream<TcpStream>, end: &str) -> String {
    let mut read = Vec::new();
    let mut piece = [0; 4096];
    timeout(PATIENCE, async {
        while !String::from_utf8_lossy(&read).contains(end) {
            let count = stream.read(&mut piece).await.expect("an answer");
            assert_ne!(count, 0, "the connection ended after {:?}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&piece[..count]);
        }
    })
    .await
    .expect("an answer in time");
    String::from_utf8(read).expect("text")
}

#[tokio::test]
async fn a_server_that_stops_waits_for_nobody_for_ever() {
    let under = Under::start(generous()).await;
    let mut silent = TcpStream::connect(under.server.address()).await.expect("a connection");
    let mut slow = under.connect(b"http/1.1").await;
    let head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.expect("half a request");
    under.serves_others().await;
    timeout(PATIENCE, under.server.stop()).await.expect("it stops");
    until_end(&mut slow).await;
    let read = timeout(PATIENCE, silent.read(&mut [0])).await.expect("the server ends the connection");
    assert_eq!(read.unwrap_or(0), 0, "and says nothing");
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_ends_the_connection() {
    let under = Under::start(Limits { head: Duration::from_millis(300), ..generous() }).await;
    let stream = under.connect(b"http/1.1").await;
    let (mut read, mut write) = tokio::io::split(stream);
    let drip = async {
        // Every byte shows that somebody is there, and none gives more time.
        write.write_all(b"GET /livez HTTP/1.1\r\nX-Slow: ").await.expect("a beginning");
        while write.write_all(b"a").await.is_ok() && write.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let closed = async {
        let mut byte = [0; 1];
        while let Ok(1..) = read.read(&mut byte).await {}
    };
    tokio::select! {
        () = drip => {}
        () = closed => {}
        () = tokio::time::sleep(PATIENCE) => panic!("the head may go on for ever"),
    }
    under.serves_others().await;
}

#[tokio::test]
async fn what_a_head_may_take_is_not_what_a_connection_may_rest() {
    let under = Under::start(Limits { head: Duration::from_millis(200), ..generous() }).await;
    let mut stream = under.connect(b"http/1.1").await;
    for _ in 0..3 {
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("a request");
        assert!(answer(&mut stream, "\r\n\r\nok").await.starts_with("HTTP/1.1 200"));
        // Longer than a head may take: the connection rests, which is something else.
        tokio::time::sleep(Duration::from_millis(600)).await;
    }
}

#[tokio::test]
async fn a_connection_that_rests_too_long_is_closed() {
    let under = Under::start(Limits { idle: Duration::from_millis(300), ..generous() }).await;
    for protocol in ["http/1.1", "h2"] {
        let mut silent = under.connect(protocol.as_bytes()).await;
        until_end(&mut silent).await;
    }
    let mut used = under.connect(b"http/1.1").await;
    used.write_all(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("a request");
    let answered = String::from_utf8(until_end(&mut used).await).expect("text");
    assert!(answered.starts_with("HTTP/1.1 200"), "it was answered first: {answered}");
    under.serves_others().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let under = Under::start(Limits { body: Duration::from_millis(300), ..generous() }).await;
    let mut stream = under.connect(b"http/1.1").await;
    stream.write_all(UNFINISHED.as_bytes()).await.expect("a head");
    let answered = String::from_utf8(until_end(&mut stream).await).expect("text");
    assert!(answered.starts_with("HTTP/1.1 408"), "{answered}");
    under.serves_others().await;
}

/// A request that anybody may make, of whose body only the beginning comes.
const UNFINISHED: &str = "GET /version HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{";

#[tokio::test]
async fn the_body_of_who_may_not_is_not_read() {
    let under = Under::start(generous()).await;
    let mut stream = under.connect(b"http/1.1").await;
    let head = "POST /api/v1/namespaces HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.expect("a head");
    let answered = answer(&mut stream, "cannot create resource").await;
    assert!(answered.starts_with("HTTP/1.1 403"), "{answered}");
}

#[tokio::test]
async fn rule_3_2_who_asks_too_much_at_once_comes_back_later() {
    let under = Under::start(Limits { requests: 3, ..generous() }).await;
    let version = "GET /version HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut busy = Vec::new();
    // One client has two thirds of the places. When both are taken is not told, so it is asked until it is so.
    for _ in 0..2 {
        let mut stream = under.connect(b"http/1.1").await;
        stream.write_all(UNFINISHED.as_bytes()).await.expect("a head");
        busy.push(stream);
    }
    let refused = timeout(PATIENCE, async {
        loop {
            let mut stream = under.connect(b"http/1.1").await;
            stream.write_all(version.as_bytes()).await.expect("a request");
            let answered = answer(&mut stream, "\r\n\r\n").await;
            if answered.starts_with("HTTP/1.1 429") {
                return answered.to_ascii_lowercase();
            }
        }
    });
    let refused = refused.await.expect("it is too much");
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    under.serves_others().await; // a master
    for mut stream in busy {
        stream.write_all(&[b' '; 99]).await.expect("the rest");
        let answered = answer(&mut stream, "\r\n\r\n").await;
        assert!(!answered.starts_with("HTTP/1.1 429"), "{answered}");
    }
}

#[tokio::test]
async fn a_handshake_that_does_not_come_is_not_waited_for() {
    let under = Under::start(Limits { hello: Duration::from_millis(300), ..generous() }).await;
    let mut stream = TcpStream::connect(under.server.address()).await.expect("a connection");
    stream.write_all(&[22, 3, 1]).await.expect("the beginning of a handshake");
    let mut rest = Vec::new();
    let ended =
        timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("the server ends the connection");
    // Whether it is closed or reset is not the point.
    assert!(ended.is_err() || rest.is_empty(), "{rest:?}");
    under.serves_others().await;
}

#[tokio::test]
async fn silent_connections_make_way_when_there_are_many() {
    let limits = Limits { connections: 16, idle_in_a_crowd: Duration::from_millis(100), ..generous() };
    let under = Under::start(limits).await;
    let mut silent = Vec::new();
    for _ in 0..64 {
        // Beyond the sixteenth, each waits until one of those before has made way.
        let stream = timeout(PATIENCE, under.connect(b"http/1.1")).await.expect("a place");
        silent.push(stream);
    }
    under.serves_others().await;
}

#[tokio::test]
async fn more_than_is_read_is_refused() {
    let under = Under::start(generous()).await;
    let mut heads = under.connect(b"http/1.1").await;
    let long = format!("GET /livez HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "a".repeat(2 * 1024 * 1024));
    // The server may have ended the connection before all of it is written.
    let _ = heads.write_all(long.as_bytes()).await;
    let answered = String::from_utf8(until_end(&mut heads).await).expect("text");
    assert!(answered.is_empty() || answered.starts_with("HTTP/1.1 431"), "{answered}");

    let mut bodies = under.connect(b"http/1.1").await;
    let length = 4 * 1024 * 1024;
    let head = format!(
        "GET /version HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    bodies.write_all(head.as_bytes()).await.expect("a head");
    let _ = bodies.write_all(&vec![b' '; length]).await;
    let answered = String::from_utf8(until_end(&mut bodies).await).expect("text");
    let is_refused = answered.starts_with("HTTP/1.1 413") && answered.contains("\r\naudit-id: ");
    assert!(answered.is_empty() || is_refused, "{answered}");
    under.serves_others().await;
}

#[tokio::test]
async fn clients_that_vanish_leave_nothing_behind() {
    let under = Under::start(Limits { connections: 8, ..generous() }).await;
    for i in 0..32 {
        let mut stream = under.connect(b"http/1.1").await;
        let head = match i % 2 {
            0 => "GET /livez HTTP/1.1\r\nHo",
            _ => UNFINISHED,
        };
        stream.write_all(head.as_bytes()).await.expect("a part");
        // Gone without a word: the other side gets a reset.
        stream.get_ref().0.set_zero_linger().expect("a socket");
    }
    under.serves_others().await;
}

#[tokio::test]
async fn a_watch_that_nobody_reads_delays_nobody() {
    let under = Under::start(generous()).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let mut unread = Vec::new();
    for _ in 0..4 {
        let watch = http::Request::get(format!("{path}?watch=true")).body(kube::client::Body::empty());
        unread.push(under.client.send(watch.expect("a request")).await.expect("a watch"));
    }
    let data = "x".repeat(256 * 1024);
    for i in 0..40 {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{i}")}, "data": {"k": data}});
        let request = http::Request::post(path).header("Content-Type", "application/json");
        let request = request.body(map.to_string().into_bytes()).expect("a request");
        let made = timeout(PATIENCE, under.client.request::<Value>(request)).await.expect("in time");
        assert_eq!(made.expect("made")["metadata"]["name"], format!("m{i}"));
    }
    under.serves_others().await;
    drop(unread);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small frame").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// `GET https://a/` as a frame that begins and ends a stream.
fn get(stream: u32, ends: bool) -> Vec<u8> {
    frame(1, 4 | u8::from(ends), stream, &[0x82, 0x87, 0x84, 0x41, 0x01, b'a'])
}

#[tokio::test]
async fn floods_of_streams_end_their_own_connection_at_most() {
    let under = Under::start(generous()).await;
    let reset = |stream: u32| [get(stream, true), frame(3, 0, stream, &8u32.to_be_bytes())].concat();
    let unended = |stream: u32| get(stream, false);
    let ping = |_: u32| frame(6, 0, 0, &[0; 8]);
    let settings = |_: u32| frame(4, 0, 0, &[]);
    // A head that is never ended.
    let endless = |stream: u32| match stream {
        1 => frame(1, 0, 1, &[0x82, 0x87, 0x84]),
        _ => frame(9, 0, 1, &[0x00, 0x01, b'x', 0x01, b'y']),
    };
    let floods: [&(dyn Fn(u32) -> Vec<u8> + Sync); 5] = [&reset, &unended, &ping, &settings, &endless];
    for flood in floods {
        let stream = under.connect(b"h2").await;
        let (mut read, mut write) = tokio::io::split(stream);
        let reading = tokio::spawn(async move {
            let mut piece = [0; 4096];
            while let Ok(1..) = read.read(&mut piece).await {}
        });
        write.write_all(PREFACE).await.expect("a preface");
        write.write_all(&frame(4, 0, 0, &[])).await.expect("settings");
        let written = timeout(PATIENCE, async {
            for i in 0..20_000 {
                // The server may have had enough at any time.
                if write.write_all(&flood(2 * i + 1)).await.is_err() {
                    return;
                }
            }
        });
        written.await.expect("the server reads on, or ends the connection");
        under.serves_others().await;
        reading.abort();
    }
}
