//! Requests of probes and hooks: where they go, what goes along, and what their answers mean.

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Uri,
    header::{ACCEPT, AUTHORIZATION, CONNECTION, HOST, LOCATION, USER_AGENT},
};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

use super::{LONGEST, port_of};

/// Who asks, as servers are told.
const PROBE: &str = "kube-probe/1.35";
const HOOK: &str = "kube-lifecycle/1.35";
/// So many requests one probe makes at most, if each is answered with where to ask instead.
const MOST_REQUESTS: usize = 10;

/// Asks how a container is, wherever on its own host that leads. Whoever is sent to another host is content.
pub(super) async fn probe(
    get: &HTTPGetAction,
    container: &Container,
    ip: &str,
) -> Result<Option<String>, String> {
    let mut target = Target::of(get, container, ip)?;
    for _ in 0..MOST_REQUESTS {
        let headers = headers(get, &target, PROBE).map_err(|error| target.failed(&error))?;
        let answer = target.ask(headers).await.map_err(|unanswered| unanswered.why)?;
        let next = answer.leads_to.as_ref().map(|location| target.redirected(location)).transpose()?;
        match next.filter(|next| next.host == target.host) {
            Some(next) => target = next,
            None => return answer.judge(),
        }
    }
    Err(target.failed(&format!("stopped after {MOST_REQUESTS} redirects")))
}

/// Tells a container something. Whatever it answers, it was told.
pub(super) async fn hook(
    get: &HTTPGetAction,
    container: &Container,
    ip: &str,
) -> Result<Option<String>, String> {
    let target = Target::of(get, container, ip)?;
    let mut headers = headers(get, &target, HOOK).map_err(|error| target.failed(&error))?;
    let Err(unanswered) = target.ask(headers.clone()).await else { return Ok(None) };
    if !unanswered.without_tls {
        return Err(unanswered.why);
    }
    headers.remove(AUTHORIZATION); // it was not meant to be read on the way
    let authority = target.authority.clone();
    match (Target { is_secure: false, ..target }).ask(headers).await {
        Ok(_) => Ok(Some(format!(
            "request to HTTPS lifecycle hook {authority} got HTTP response, retry with HTTP succeeded"
        ))),
        Err(_) => Err(unanswered.why),
    }
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    is_secure: bool,
    host: String,
    port: u16,
    /// Host and port, as the server is told them.
    authority: String,
    /// With what is asked there.
    path: String,
    /// Whether the server is told the name that the probe gives it, if it gives one.
    is_named: bool,
}

impl Target {
    fn of(get: &HTTPGetAction, container: &Container, ip: &str) -> Result<Target, String> {
        let port = port_of(&get.port, container)?;
        let host = get.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(ip).to_owned();
        let path = get.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let is_secure = get.scheme.as_deref() == Some("HTTPS");
        let authority = format!("{host}:{port}");
        Ok(Target { is_secure, host, port, authority, path, is_named: true })
    }

    /// Where an answer sends whoever has asked here.
    fn redirected(&self, location: &str) -> Result<Target, String> {
        let location = location.split('#').next().unwrap_or_default();
        let scheme = location.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| is_scheme(scheme));
        let absolute = match scheme {
            Some(_) => location.to_owned(),
            None if location.starts_with("//") => {
                format!("{}:{location}", if self.is_secure { "https" } else { "http" })
            }
            None => return Ok(Target { path: resolve(&self.path, location), ..self.clone() }),
        };
        let is_secure = match absolute.split_once(':').map(|(scheme, _)| scheme.to_lowercase()).as_deref() {
            Some("http") => false,
            Some("https") => true,
            // No host is asked in this way, and so it is not ours.
            _ => return Ok(Target { host: String::new(), ..self.clone() }),
        };
        let uri: Uri = absolute.parse().map_err(|error| {
            self.failed(&format!("failed to parse Location header {location:?}: {error}"))
        })?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Target {
            is_secure,
            host: uri.host().unwrap_or_default().to_owned(),
            port: uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 }),
            authority: uri.authority().map(ToString::to_string).unwrap_or_default(),
            path: resolve("/", path),
            is_named: false,
        })
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> String {
        let scheme = if self.is_secure { "https" } else { "http" };
        let url = format!("{scheme}://{}{}", self.authority, self.path);
        format!("Get {url:?}: {error}")
    }

    async fn ask(&self, headers: HeaderMap) -> Result<Answer, Unanswered> {
        let failed =
            |error: &dyn std::fmt::Display| Unanswered { why: self.failed(error), without_tls: false };
        let connected = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = connected.map_err(|error| failed(&error))?;
        let stream: Box<dyn Connection> = if self.is_secure {
            let secured = tls::connect(&self.host, stream).await;
            Box::new(
                secured
                    .map_err(|error| Unanswered { without_tls: tls::is_plain(&error), ..failed(&error) })?,
            )
        } else {
            Box::new(stream)
        };
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| failed(&error))?;
        let request = Request::get(&self.path).body(Empty::<Bytes>::new());
        let mut request = request.map_err(|error| failed(&error))?;
        *request.headers_mut() = headers;
        let asking = async {
            let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
            Ok(Answer::read(answer).await)
        };
        tokio::pin!(asking, connection);
        tokio::select! {
            biased;
            answer = &mut asking => answer,
            ended = &mut connection => {
                ended.map_err(|error| failed(&error))?;
                asking.await
            }
        }
    }
}

/// What a request goes through.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Why there is no answer.
struct Unanswered {
    why: String,
    /// Who was spoken to in TLS does not understand it, and has answered without.
    without_tls: bool,
}

struct Answer {
    status: u16,
    /// Where to ask instead, if it says so.
    leads_to: Option<String>,
    /// Its beginning.
    body: String,
}

impl Answer {
    async fn read(answer: http::Response<Incoming>) -> Answer {
        let status = answer.status().as_u16();
        let location = answer.headers().get(LOCATION).filter(|_| matches!(status, 301..=303 | 307 | 308));
        let leads_to = location.map(|location| String::from_utf8_lossy(location.as_bytes()).into_owned());
        let leads_to = leads_to.filter(|location| !location.is_empty());
        // Read, so that the one who answers does not see a broken connection; too much of it is no failure.
        let (mut text, mut body) = (Vec::new(), answer.into_body());
        while text.len() < LONGEST
            && let Some(Ok(frame)) = body.frame().await
        {
            text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
        text.truncate(LONGEST);
        Answer { status, leads_to, body: String::from_utf8_lossy(&text).into_owned() }
    }

    fn judge(self) -> Result<Option<String>, String> {
        match self.status {
            200..300 => Ok(None),
            300..400 => Ok(Some(format!("Probe terminated redirects, Response body: {}", self.body))),
            status => Err(format!("HTTP probe failed with statuscode: {status}")),
        }
    }
}

/// What goes along with a request: what the probe says comes before what is usual.
fn headers(get: &HTTPGetAction, target: &Target, agent: &'static str) -> Result<HeaderMap, http::Error> {
    let mut headers = HeaderMap::new();
    for own in get.http_headers.iter().flatten() {
        headers.append(HeaderName::try_from(&own.name)?, HeaderValue::try_from(&own.value)?);
    }
    // There is one host, and a name of none is the address.
    let host = headers.get(HOST).filter(|host| target.is_named && !host.is_empty()).cloned();
    headers.insert(HOST, host.map_or_else(|| HeaderValue::try_from(&target.authority), Ok)?);
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
    // Whoever says nothing here wants it not to be said.
    if headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*")).is_empty() {
        headers.remove(ACCEPT);
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(headers)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|it| it.is_ascii_alphanumeric() || "+-.".contains(it))
}

/// The path that a relative one means, seen from another.
fn resolve(from: &str, to: &str) -> String {
    let path_of = |text: &str| text.split('?').next().unwrap_or_default().to_owned();
    let (path, query) = to.split_once('?').map_or((to, None), |(path, query)| (path, Some(query)));
    let from = path_of(from);
    let whole = match path {
        "" => from,
        path if path.starts_with('/') => path.to_owned(),
        path => format!("{}/{path}", from.rsplit_once('/').map_or("", |(directory, _)| directory)),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/').skip(1) {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let is_directory = whole.ends_with("/.") || whole.ends_with("/..");
    let end = if is_directory && !parts.is_empty() { "/" } else { "" };
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("/{}{end}{query}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    fn action(value: Value) -> HTTPGetAction {
        serde_json::from_value(value).expect("an action")
    }

    /// Answers each request with what is said of its path; returns the port.
    async fn server(answers: &'static [(&'static str, &'static str)]) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = vec![0; 4096];
                let length = stream.read(&mut bytes).await.unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                let asked = text.split(' ').nth(1).unwrap_or_default();
                let said = answers.iter().find(|(path, _)| *path == asked);
                let said = said.map_or("400 Bad Request\r\n\r\n", |(_, said)| *said);
                let said = said.replace("PORT", &port.to_string());
                // One that has heard enough may be gone.
                let _ = stream.write_all(format!("HTTP/1.1 {said}").as_bytes()).await;
            }
        });
        port
    }

    #[test]
    fn a_request_has_one_host_and_what_the_probe_says_comes_first() {
        let print = |own: &[(&str, &str)]| {
            let own: Vec<_> =
                own.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
            let get = action(json!({ "port": 80, "httpHeaders": own }));
            let target = Target::of(&get, &Container::default(), "10.0.0.1").expect("a target");
            let headers = headers(&get, &target, PROBE).expect("headers");
            let mut lines: Vec<String> = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
                .collect();
            lines.sort();
            lines
        };
        let usual = ["accept: */*", "connection: close", "host: 10.0.0.1:80", "user-agent: kube-probe/1.35"];
        assert_eq!(print(&[]), usual);
        assert_eq!(print(&[("Host", "")]), usual);
        assert_eq!(
            print(&[("Host", "a.example"), ("user-agent", "me"), ("Accept", ""), ("X", "1"), ("X", "2")]),
            ["connection: close", "host: a.example", "user-agent: me", "x: 1", "x: 2"]
        );
    }

    #[test]
    fn locations_are_seen_from_where_they_were_given() {
        let get = action(json!({ "port": 8080, "path": "/a/b?c=d" }));
        let target = Target::of(&get, &Container::default(), "10.0.0.1").expect("a target");
        let check = |location: &str, expected: &str| {
            let next = target.redirected(location).expect("a target");
            let url = next.failed(&"").replace("Get ", "");
            assert_eq!(url.trim_end_matches(": "), format!("{expected:?}"), "{location}");
            next
        };
        check("/e?f=g#h", "http://10.0.0.1:8080/e?f=g");
        check("e", "http://10.0.0.1:8080/a/e");
        check("../e/./f/..", "http://10.0.0.1:8080/e/");
        check("?f=g", "http://10.0.0.1:8080/a/b?f=g");
        assert!(check("e", "http://10.0.0.1:8080/a/e").is_named);
        let other = check("https://other.example", "https://other.example/");
        assert_eq!((other.port, other.is_named, other.host.as_str()), (443, false, "other.example"));
        check("//10.0.0.1:81/e", "http://10.0.0.1:81/e");
        assert_eq!(target.redirected("mailto:me").expect("a target").host, "");
        assert!(target.redirected("http://").is_err());
    }

    #[tokio::test]
    async fn a_probe_goes_where_it_is_sent_on_its_host_and_the_last_answer_counts() {
        let port = server(&[
            ("/ok", "200 OK\r\n\r\n"),
            ("/bad", "500 Internal Server Error\r\n\r\n"),
            ("/to-ok", "302 Found\r\nLocation: /ok\r\n\r\n"),
            ("/to-bad", "307 Temporary Redirect\r\nLocation: http://127.0.0.1:PORT/bad\r\n\r\n"),
            ("/away", "302 Found\r\nLocation: http://0.0.0.0/\r\n\r\n<a>Found</a>"),
            ("/nowhere", "302 Found\r\n\r\n"),
            ("/round", "302 Found\r\nLocation: round\r\n\r\n"),
        ])
        .await;
        let check = async |path: &str, expected: Result<Option<&str>, &str>| {
            let get = action(json!({ "port": port, "path": path }));
            let found = probe(&get, &Container::default(), "127.0.0.1").await;
            let expected = expected.map(|warning| warning.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(found, expected, "{path}");
        };
        check("/ok", Ok(None)).await;
        check("/to-ok", Ok(None)).await;
        check("/bad", Err("HTTP probe failed with statuscode: 500")).await;
        check("/to-bad", Err("HTTP probe failed with statuscode: 500")).await;
        check("/away", Ok(Some("Probe terminated redirects, Response body: <a>Found</a>"))).await;
        check("/nowhere", Ok(Some("Probe terminated redirects, Response body: "))).await;
        let round = format!("Get \"http://127.0.0.1:{port}/round\": stopped after 10 redirects");
        check("/round", Err(&round)).await;
    }

    #[tokio::test]
    async fn whatever_is_answered_to_a_hook_it_was_told() {
        let port = server(&[("/bad", "500 Internal Server Error\r\n\r\n")]).await;
        let told = async |value: Value| hook(&action(value), &Container::default(), "127.0.0.1").await;
        assert_eq!(told(json!({ "port": port, "path": "/none" })).await, Ok(None));
        assert_eq!(told(json!({ "port": port, "path": "/bad" })).await, Ok(None));
        // Who does not speak TLS is told without.
        let warning = format!(
            "request to HTTPS lifecycle hook 127.0.0.1:{port} got HTTP response, retry with HTTP succeeded"
        );
        assert_eq!(told(json!({ "port": port, "scheme": "HTTPS" })).await, Ok(Some(warning)));
        let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = closed.local_addr().expect("an address").port();
        drop(closed);
        assert!(told(json!({ "port": port })).await.is_err(), "nobody was told");
    }
}
