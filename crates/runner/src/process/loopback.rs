//! Addresses of pods without a network of their own: of the many that every machine has for itself, each is one pod's.

use std::{
    collections::BTreeSet,
    net::Ipv4Addr,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// From 127.64.0.0 on; what is below is used by other programs.
const FIRST: Ipv4Addr = Ipv4Addr::new(127, 64, 0, 0);
/// So many of them.
const COUNT: u32 = 1 << 22;

/// All nodes in this process share the machine, whatever their clusters.
static TAKEN: Mutex<Taken> = Mutex::new(Taken { next: 0, numbers: BTreeSet::new() });

struct Taken {
    /// Where to look next: what has just been given back is not given to another at once.
    next: u32,
    numbers: BTreeSet<u32>,
}

impl Taken {
    fn any(&mut self) -> u32 {
        let all = (self.next..COUNT).chain(0..self.next);
        // The first and the last of a block of 256 mean something else to some programs.
        let mut usable = all.filter(|number| !matches!(number % 256, 0 | 255));
        let number = usable.find(|number| !self.numbers.contains(number)).unwrap_or(1);
        self.next = (number + 1) % COUNT;
        self.numbers.insert(number);
        number
    }
}

fn taken() -> MutexGuard<'static, Taken> {
    // A set is changed by one entry at a time.
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An address that no other pod has, until it is dropped.
#[derive(Debug)]
pub(super) struct Address(u32);

impl Address {
    /// Any that is free.
    pub(super) fn any() -> Address {
        Address(taken().any())
    }

    /// The one that a pod has already; `None` if it is none of these.
    pub(super) fn known(address: &str) -> Option<Address> {
        let address: Ipv4Addr = address.parse().ok()?;
        let number = address.to_bits().checked_sub(FIRST.to_bits()).filter(|number| *number < COUNT)?;
        taken().numbers.insert(number);
        Some(Address(number))
    }

    pub(super) fn ip(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST.to_bits() + self.0)
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        taken().numbers.remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_pods_have_one_address() {
        let mut taken = Taken { next: 250, numbers: BTreeSet::from([253]) };
        let given: Vec<u32> = (0..6).map(|_| taken.any()).collect();
        assert_eq!(given, [250, 251, 252, 254, 257, 258]);
        taken.next = COUNT - 1;
        assert_eq!(taken.any(), 1, "and from the beginning again");

        // Those that a restart finds in use are not given to others.
        let kept = Address::known("127.127.255.7").expect("one of ours");
        assert_eq!(kept.ip(), Ipv4Addr::new(127, 127, 255, 7));
        assert!(super::taken().numbers.contains(&kept.0));
        let number = kept.0;
        drop(kept);
        assert!(!super::taken().numbers.contains(&number));
        for other in ["127.0.0.1", "127.128.0.1", "10.0.0.1", "", "::1"] {
            assert!(Address::known(other).is_none(), "{other}");
        }
        let (one, other) = (Address::any(), Address::any());
        assert_ne!(one.ip(), other.ip());
    }
}
