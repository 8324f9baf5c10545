//! The name of an object within its kind.

use std::fmt;

use kube::ResourceExt;

/// Which object of a kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for kinds that live in no namespace.
    pub namespace: String,
    /// Its name there.
    pub name: String,
}

impl Key {
    /// The key of an object in a namespace, or of one in none if `namespace` is empty.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Key { namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object.
    pub fn of<K: ResourceExt>(object: &K) -> Self {
        Key { namespace: object.namespace().unwrap_or_default(), name: object.name_any() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}
