//! Forwards what is sent to services: a socket for everything that is listened for, and another one to where it goes on.
//!
//! The addresses of services are local to the machine, so an ordinary socket listens on them. All of it ends with this
//! process.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::{IpAddr, SocketAddr, SocketAddrV4},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rules::service::{Forwards, Listener, Protocol, Target};
use tokio::{
    net::{TcpListener, TcpStream, UdpSocket},
    task::{AbortHandle, JoinSet},
    time::{Instant, timeout},
};
use tracing::{debug, warn};

/// How long the other side may take to answer a new connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a client's datagrams go the same way after the last one.
const QUIET: Duration = Duration::from_secs(60);
/// The largest datagram.
const LARGEST: usize = 65_535;
/// After something could not be accepted, for want of files mostly.
const PAUSE: Duration = Duration::from_millis(100);

/// Everything that is forwarded now.
#[derive(Default)]
pub(super) struct Proxy {
    listeners: BTreeMap<Listener, (Arc<Way>, AbortHandle)>,
    tasks: JoinSet<()>,
    /// Connections go on when nobody listens for new ones any more.
    connections: Connections,
}

type Connections = Arc<Mutex<JoinSet<()>>>;

impl Proxy {
    /// Forwards this from now on, and nothing else. Returns what cannot be listened for, and why.
    pub(super) async fn set(&mut self, forwards: Forwards) -> Vec<(Listener, io::Error)> {
        let gone: Vec<Listener> =
            self.listeners.keys().filter(|listener| !forwards.contains_key(listener)).copied().collect();
        for listener in &gone {
            if let Some((_, task)) = self.listeners.remove(listener) {
                task.abort();
                debug!(?listener, "nothing is forwarded any more");
            }
        }
        // No other task ever ends, and when these have, their sockets are closed.
        for _ in gone {
            self.tasks.join_next().await;
        }
        let mut refused = Vec::new();
        for (listener, target) in forwards {
            if let Some((way, _)) = self.listeners.get(&listener) {
                way.turn(target);
                continue;
            }
            let way = Arc::new(Way::new(target));
            match self.listen(listener, Arc::clone(&way)).await {
                Ok(task) => drop(self.listeners.insert(listener, (way, task))),
                Err(error) => refused.push((listener, error)),
            }
        }
        refused
    }

    async fn listen(&mut self, listener: Listener, way: Arc<Way>) -> io::Result<AbortHandle> {
        let connections = Arc::clone(&self.connections);
        Ok(match listener.protocol {
            Protocol::Tcp => {
                let socket = TcpListener::bind(listener.at).await?;
                self.tasks.spawn(accept(socket, way, connections))
            }
            Protocol::Udp => {
                let socket = Arc::new(UdpSocket::bind(listener.at).await?);
                self.tasks.spawn(receive(socket, way))
            }
        })
    }
}

/// Where clients of one listener go on.
struct Way(Mutex<Turns>);

struct Turns {
    target: Target,
    next: usize,
    /// Where clients went that are to come there again, and when.
    known: HashMap<IpAddr, (SocketAddrV4, Instant)>,
}

impl Way {
    fn new(target: Target) -> Way {
        Way(Mutex::new(Turns { target, next: 0, known: HashMap::new() }))
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        // Nothing in there is ever half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leads elsewhere from now on.
    fn turn(&self, target: Target) {
        let mut turns = self.turns();
        turns.known.retain(|_, (to, _)| target.affinity.is_some() && target.to.contains(to));
        turns.target = target;
    }

    /// Whether it still leads there.
    fn leads_to(&self, to: SocketAddrV4) -> bool {
        self.turns().target.to.contains(&to)
    }

    /// Where a client goes: one after the other in turn, the first of which it is to come back to if it is.
    fn choose(&self, client: IpAddr, now: Instant) -> Vec<SocketAddrV4> {
        let mut turns = self.turns();
        let turns = &mut *turns;
        if let Some(time) = turns.target.affinity {
            turns.known.retain(|_, (_, last)| now.duration_since(*last) < time);
            if let Some((to, last)) = turns.known.get_mut(&client) {
                *last = now;
                return vec![*to];
            }
        }
        let all = &turns.target.to;
        if all.is_empty() {
            return Vec::new();
        }
        let first = turns.next % all.len();
        turns.next = first + 1;
        let chosen: Vec<SocketAddrV4> = all[first..].iter().chain(&all[..first]).copied().collect();
        if turns.target.affinity.is_some() {
            turns.known.insert(client, (chosen[0], now));
        }
        chosen
    }
}

async fn accept(socket: TcpListener, way: Arc<Way>, connections: Connections) {
    loop {
        match socket.accept().await {
            Ok((client, from)) => {
                let to = way.choose(from.ip(), Instant::now());
                let mut all = connections.lock().unwrap_or_else(PoisonError::into_inner);
                while all.try_join_next().is_some() {} // those that are done
                all.spawn(connect(client, to));
            }
            Err(error) => {
                warn!(%error, "failed to accept a connection to a service");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Connects a client with the first one that answers.
async fn connect(mut client: TcpStream, to: Vec<SocketAddrV4>) {
    for to in to {
        match timeout(CONNECT, TcpStream::connect(to)).await {
            Ok(Ok(mut server)) => {
                for stream in [&client, &server] {
                    let _ = stream.set_nodelay(true); // one that waits is slower, and no worse
                }
                // One of them has closed it early, which both know.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                return;
            }
            Ok(Err(error)) => debug!(%to, %error, "an endpoint of a service does not answer"),
            Err(_) => debug!(%to, "an endpoint of a service does not answer in time"),
        }
    }
    // Nobody answers, and so does the kernel: a close that does not look like an end.
    let _ = client.set_zero_linger();
}

/// Forwards datagrams, each client's from a socket of its own, so that answers find their way back.
async fn receive(socket: Arc<UdpSocket>, way: Arc<Way>) {
    let mut clients: HashMap<SocketAddr, (SocketAddrV4, Arc<UdpSocket>)> = HashMap::new();
    let mut answering: JoinSet<(SocketAddr, SocketAddrV4)> = JoinSet::new();
    let mut datagram = vec![0; LARGEST];
    loop {
        let (length, client) = tokio::select! {
            biased;
            Some(done) = answering.join_next() => {
                // It may go elsewhere by now.
                if let Ok((client, to)) = done
                    && clients.get(&client).is_some_and(|(now, _)| *now == to)
                {
                    clients.remove(&client);
                }
                continue;
            }
            received = socket.recv_from(&mut datagram) => match received {
                Ok(received) => received,
                // An earlier answer has reached nobody.
                Err(_) => continue,
            },
        };
        let known = clients.get(&client).filter(|(to, _)| way.leads_to(*to));
        let out = if let Some((_, out)) = known {
            Arc::clone(out)
        } else {
            let Some(to) = way.choose(client.ip(), Instant::now()).first().copied() else { continue };
            let out = match open(to).await {
                Ok(out) => Arc::new(out),
                Err(error) => {
                    warn!(%to, %error, "failed to forward a datagram");
                    continue;
                }
            };
            clients.insert(client, (to, Arc::clone(&out)));
            let (answers, back) = (Arc::clone(&out), Arc::clone(&socket));
            answering.spawn(async move {
                answer(answers, back, client).await;
                (client, to)
            });
            out
        };
        // What is lost is lost, as datagrams are.
        let _ = out.send(&datagram[..length]).await;
    }
}

async fn open(to: SocketAddrV4) -> io::Result<UdpSocket> {
    let out = UdpSocket::bind("0.0.0.0:0").await?;
    out.connect(to).await?;
    Ok(out)
}

/// Sends answers back until there have been none for a while.
async fn answer(from: Arc<UdpSocket>, through: Arc<UdpSocket>, client: SocketAddr) {
    let mut datagram = vec![0; LARGEST];
    loop {
        match timeout(QUIET, from.recv(&mut datagram)).await {
            Ok(Ok(length)) => drop(through.send_to(&datagram[..length], client).await),
            // Nobody listens there just now; the client will try again.
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn target(ports: &[u16], affinity: Option<u64>) -> Target {
        let to = ports.iter().map(|port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, *port)).collect();
        Target { to, affinity: affinity.map(Duration::from_secs) }
    }

    fn first(way: &Way, client: u8, now: Instant) -> u16 {
        way.choose(IpAddr::from([10, 0, 0, client]), now)[0].port()
    }

    #[test]
    fn clients_take_turns_unless_they_are_to_come_back() {
        let now = Instant::now();
        let way = Way::new(target(&[1, 2], None));
        assert_eq!([0; 4].map(|_| first(&way, 1, now)), [1, 2, 1, 2]);
        way.turn(target(&[1, 2], Some(60)));
        let (one, other) = (first(&way, 1, now), first(&way, 2, now));
        assert_ne!(one, other);
        assert_eq!(first(&way, 1, now + Duration::from_secs(59)), one);
        way.turn(target(&[other], Some(60)));
        assert_eq!(first(&way, 1, now + Duration::from_secs(59)), other, "the first one is gone");
    }

    #[test]
    fn a_client_that_was_away_for_long_is_a_new_one() {
        let now = Instant::now();
        let way = Way::new(target(&[1, 2], Some(60)));
        assert_eq!(first(&way, 1, now), 1);
        assert_eq!(first(&way, 1, now + Duration::from_secs(61)), 2);
    }
}
