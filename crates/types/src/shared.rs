//! Values that many objects have in common, and that are held once for all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that others may hold, too. It reads and is written as the value itself; what is changed is a copy, as long as
/// others hold it.
pub struct Shared<T>(Arc<T>);

impl<T> Shared<T> {
    /// Whether both are the same value, held once.
    pub fn is_same(one: &Shared<T>, other: &Shared<T>) -> bool {
        Arc::ptr_eq(&one.0, &other.0)
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Shared(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(Arc::clone(&self.0))
    }
}

impl<T: Default> Default for Shared<T> {
    fn default() -> Self {
        Shared::from(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Shared::is_same(self, other) || self.0 == other.0
    }
}

impl<T: Serialize> Serialize for Shared<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shared<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Shared::from)
    }
}

/// How many values a pool knows at least before it looks which of them are still held.
const FEW: usize = 256;

/// What was seen of a kind of values, for as long as somebody holds it.
pub struct Pool<T> {
    known: Mutex<Known<T>>,
}

struct Known<T> {
    /// By the hash of what they are on the wire. Of two that have the same hash, one is known; the other is held by itself.
    values: BTreeMap<u64, Weak<T>>,
    /// How many there may be before those are forgotten that nobody holds.
    limit: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Pool { known: Mutex::new(Known { values: BTreeMap::new(), limit: FEW }) }
    }
}

impl<T: Serialize + PartialEq> Pool<T> {
    /// Makes `value` the one that was seen before, if one that equals it was seen and is still held.
    pub fn share(&self, value: &mut Shared<T>) {
        let Some(hash) = hash(&**value) else { return };
        // A panic in a comparison leaves nothing half done.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.values.get(&hash).and_then(Weak::upgrade) {
            Some(seen) if *seen == **value => value.0 = seen,
            Some(_) => {}
            None => known.remember(hash, &value.0),
        }
    }
}

impl<T> Known<T> {
    fn remember(&mut self, hash: u64, value: &Arc<T>) {
        if self.values.len() >= self.limit {
            self.values.retain(|_, value| value.strong_count() > 0);
            self.limit = (self.values.len() * 2).max(FEW);
        }
        self.values.insert(hash, Arc::downgrade(value));
    }
}

/// The hash of a value as it is written; `None` if it cannot be.
fn hash<T: Serialize>(value: &T) -> Option<u64> {
    let mut written = Hashed(DefaultHasher::new());
    serde_json::to_writer(&mut written, value).ok()?;
    Some(written.0.finish())
}

/// Takes the hash of what is written to it, and keeps nothing.
struct Hashed(DefaultHasher);

impl io::Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(text: &str) -> Shared<String> {
        Shared::from(text.to_owned())
    }

    #[test]
    fn equal_values_are_held_once_for_as_long_as_somebody_holds_them() {
        let pool = Pool::default();
        let (mut one, mut equal, mut other) = (shared("a"), shared("a"), shared("b"));
        for value in [&mut one, &mut equal, &mut other] {
            pool.share(value);
        }
        assert!(Shared::is_same(&one, &equal));
        assert!(!Shared::is_same(&one, &other));
        assert_eq!((one.as_str(), equal.as_str(), other.as_str()), ("a", "a", "b"));
        let gone = Arc::downgrade(&one.0);
        drop((one, equal));
        assert!(gone.upgrade().is_none(), "the pool alone holds nothing");
        let mut again = shared("a");
        pool.share(&mut again);
        assert_eq!(*again, "a");
    }

    #[test]
    fn what_is_changed_is_a_copy_while_others_hold_it() {
        let pool = Pool::default();
        let (mut one, mut equal) = (shared("a"), shared("a"));
        pool.share(&mut one);
        pool.share(&mut equal);
        equal.push('b');
        assert_eq!((one.as_str(), equal.as_str()), ("a", "ab"));
    }

    #[test]
    fn values_that_nobody_holds_are_forgotten() {
        let pool = Pool::default();
        let mut kept = shared("kept");
        pool.share(&mut kept);
        for number in 0..10 * FEW {
            pool.share(&mut shared(&number.to_string()));
        }
        assert!(pool.known.lock().expect("no panic").values.len() <= FEW);
        let mut equal = shared("kept");
        pool.share(&mut equal);
        assert!(Shared::is_same(&kept, &equal), "what is held is not forgotten");
    }

    #[test]
    fn it_is_on_the_wire_what_the_value_is() {
        let value: Shared<Vec<i32>> = serde_json::from_str("[1,2]").expect("a list");
        assert_eq!(serde_json::to_string(&value).expect("a list"), "[1,2]");
        assert_eq!(format!("{value:?}"), "[1, 2]");
        assert_eq!(value, Shared::from(vec![1, 2]));
        assert_ne!(value, Shared::from(vec![1, 3]));
    }
}
