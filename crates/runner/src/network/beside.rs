//! Connections in the network that a process sees, to whoever listens there for itself alone.

use std::{
    fs::File,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::AsFd as _,
    time::Duration,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::net::TcpStream;

use crate::threads;

/// How long whoever listens may take.
const WITHIN: Duration = Duration::from_secs(30);

/// Connects to a port of the machine that a process believes to be on; to our own without one.
pub(crate) async fn connect_beside(process: Option<i32>, port: u16) -> io::Result<TcpStream> {
    let stream = threads::apart(move || enter(process).and_then(|()| connect(port))).await?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    TcpStream::from_std(stream)
}

/// Enters the network namespace of a process, unless it is ours.
fn enter(process: Option<i32>) -> io::Result<()> {
    let Some(process) = process else { return Ok(()) };
    let place = format!("/proc/{process}/ns/net");
    if std::fs::read_link(&place)? == std::fs::read_link("/proc/thread-self/ns/net")? {
        return Ok(());
    }
    let space = File::open(place)?;
    Ok(move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Connects to whoever listens, on the older or the newer loopback.
fn connect(port: u16) -> io::Result<std::net::TcpStream> {
    let connect = |address| std::net::TcpStream::connect_timeout(&SocketAddr::new(address, port), WITHIN);
    connect(Ipv4Addr::LOCALHOST.into())
        .or_else(|refused| connect(Ipv6Addr::LOCALHOST.into()).map_err(|_| refused))
}
