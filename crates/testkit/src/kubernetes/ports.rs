//! Ports that are free now and not likely to be taken until they are used.

use std::{
    net::{Ipv4Addr, TcpListener},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use super::Error;

/// Below the range from which the kernel takes ports for outgoing connections (32768 and up on Linux): a port from there
/// could be lost to any client while its server is being restarted.
const FIRST: u32 = 10_240;
const COUNT: u32 = 32_768 - FIRST;

/// A loopback port on which nothing listens. Each call gives another one; processes start at different places.
pub(crate) fn free() -> Result<u16, Error> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..COUNT {
        // Odd and larger than the ports that one process needs, so that neighbouring process ids spread out.
        let start = process::id().wrapping_mul(37);
        let port = FIRST + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(port).expect("the range ends below 32768");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::NoFreePort)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_never_given_twice() {
        let ports: std::collections::BTreeSet<_> = (0..20).map(|_| free().expect("a free port")).collect();
        assert_eq!(ports.len(), 20);
        assert!(ports.iter().all(|port| (10_240..32_768).contains(port)));
    }
}
