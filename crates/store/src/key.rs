//! Where an object lives, and which objects a reader is interested in.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::event::Event;
use crate::object::Object;

/// The name of an object within a store: resource, namespace (empty for objects outside of one) and name.
///
/// Keys are ordered by resource and then by the text `namespace/name`. That is the order in which Kubernetes lists
/// objects: `a-b/x` comes before `a/x`, because `-` sorts before `/`.
#[derive(Clone)]
pub struct Key {
    /// Resource, namespace, `/` and name in a row: one allocation per key.
    text: Arc<str>,
    resource: u32,
    namespace: u32,
}

impl Key {
    /// The key of an object. The parts may be any text shorter than 4 GiB.
    pub fn new(resource: &str, namespace: &str, name: &str) -> Self {
        let length = |part: &str| u32::try_from(part.len()).expect("no part of a key is as long as 4 GiB");
        Key {
            text: format!("{resource}{namespace}/{name}").into(),
            resource: length(resource),
            namespace: length(namespace),
        }
    }

    /// The resource, for example `batch/jobs`.
    pub fn resource(&self) -> &str {
        &self.text[..self.resource as usize]
    }

    /// The namespace, empty for objects outside of one.
    pub fn namespace(&self) -> &str {
        &self.path()[..self.namespace as usize]
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.path()[self.namespace as usize + 1..]
    }

    /// Namespace and name as one text, `namespace/name`.
    pub fn path(&self) -> &str {
        &self.text[self.resource as usize..]
    }

    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_text = if self.resource == other.resource {
            self.text.cmp(&other.text) // resources of one length: one comparison does for both parts
        } else {
            self.resource().cmp(other.resource()).then_with(|| self.path().cmp(other.path()))
        };
        by_text.then(self.namespace.cmp(&other.namespace))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.text, self.resource, self.namespace).hash(state);
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            "" => write!(f, "{} {}", self.resource(), self.name()),
            _ => write!(f, "{} {}", self.resource(), self.path()),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The objects that a list or a watch is about: those of a resource, and of these the ones in a namespace, with a
/// name, or with a value of an indexed field. Each of these is looked up, none is searched for among all watchers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    pub(crate) resource: Arc<str>,
    pub(crate) namespace: Option<Arc<str>>,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) field: Option<(Arc<str>, Arc<str>)>,
}

impl Scope {
    /// All objects of a resource.
    pub fn resource(resource: &str) -> Self {
        Scope { resource: resource.into(), namespace: None, name: None, field: None }
    }

    /// The one object with this key.
    pub fn object(key: &Key) -> Self {
        Scope::resource(key.resource()).namespace(key.namespace()).name(key.name())
    }

    /// Only those in a namespace. The empty one is that of the objects outside of any.
    pub fn namespace(self, namespace: &str) -> Self {
        Scope { namespace: Some(namespace.into()), ..self }
    }

    /// Only those with a name.
    pub fn name(self, name: &str) -> Self {
        Scope { name: Some(name.into()), ..self }
    }

    /// Only those whose index has this value among its fields.
    pub fn field(self, field: &str, value: &str) -> Self {
        Scope { field: Some((field.into(), value.into())), ..self }
    }

    /// Whether an object belongs to the scope.
    pub fn contains(&self, object: &Object) -> bool {
        self.contains_key(&object.key) && self.has_field(object)
    }

    /// Whether an event can change what is in the scope: the object belongs to it, or did.
    pub fn concerns(&self, event: &Event) -> bool {
        self.contains_key(event.key())
            && [event.before(), event.after()].into_iter().flatten().any(|o| self.has_field(o))
    }

    /// Whether the scope is nothing but a contiguous range of keys, so that its size is known without a walk.
    pub(crate) fn is_range(&self) -> bool {
        self.name.is_none() && self.field.is_none()
    }

    /// Whether a key comes before all keys of the scope.
    pub(crate) fn starts_after(&self, key: &Key) -> bool {
        match key.resource().cmp(&self.resource) {
            Ordering::Less => true,
            Ordering::Equal => self.position(key).is_lt(),
            Ordering::Greater => false,
        }
    }

    /// Whether a key comes after all keys of the scope.
    pub(crate) fn ends_before(&self, key: &Key) -> bool {
        match key.resource().cmp(&self.resource) {
            Ordering::Less => false,
            Ordering::Equal => self.position(key).is_gt(),
            Ordering::Greater => true,
        }
    }

    /// Where a path stands relative to the paths of the scope's namespace, or to the one of its object.
    fn position(&self, key: &Key) -> Ordering {
        let Some(namespace) = &self.namespace else { return Ordering::Equal };
        let path = key.path().as_bytes();
        if let Some(name) = &self.name {
            return path.iter().copied().cmp(namespace.bytes().chain([b'/']).chain(name.bytes()));
        }
        let common = path.len().min(namespace.len());
        let (start, rest) = path.split_at(common);
        start.cmp(&namespace.as_bytes()[..common]).then_with(|| match rest.first() {
            None => Ordering::Less,
            Some(after) => after.cmp(&b'/'),
        })
    }

    fn contains_key(&self, key: &Key) -> bool {
        key.resource() == &*self.resource
            && self.namespace.as_deref().is_none_or(|namespace| namespace == key.namespace())
            && self.name.as_deref().is_none_or(|name| name == key.name())
    }

    fn has_field(&self, object: &Object) -> bool {
        self.field.as_ref().is_none_or(|(field, value)| object.index.fields.has(field, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_again_whatever_they_contain() {
        for (resource, namespace, name) in [
            ("pods", "a", "b"),
            ("batch/jobs", "", "x"),
            ("", "", ""),
            ("r/s", "n/m", "o/p"),
            ("é", "ü", "ß"),
        ] {
            let key = Key::new(resource, namespace, name);
            assert_eq!((key.resource(), key.namespace(), key.name()), (resource, namespace, name));
        }
        assert_ne!(Key::new("r", "a/b", "c"), Key::new("r", "a", "b/c"));
        assert_ne!(Key::new("ra", "", "c"), Key::new("r", "a", "c"));
    }

    #[test]
    fn order_is_that_of_kubernetes() {
        let sorted = [("a-b", "x"), ("a.c", "x"), ("a", "w"), ("a", "x"), ("ab", "a"), ("b", "a")];
        let keys: Vec<Key> =
            sorted.iter().map(|(namespace, name)| Key::new("jobs", namespace, name)).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        assert!(Key::new("jobs", "z", "z") < Key::new("pods", "a", "a"));
    }

    #[test]
    fn a_namespace_is_a_contiguous_range() {
        let mut keys = Vec::new();
        for namespace in ["", "a", "a-b", "a.b", "ab", "b"] {
            for (resource, name) in [("jobs", "x"), ("jobs", "0"), ("pods", "x"), ("a", "x")] {
                keys.push(Key::new(resource, namespace, name));
            }
        }
        keys.sort();
        for namespace in ["", "a", "a-b", "a.b", "ab", "b", "none"] {
            let scope = Scope::resource("jobs").namespace(namespace);
            let start = keys.partition_point(|key| scope.starts_after(key));
            let end = keys.partition_point(|key| !scope.ends_before(key));
            let inside: Vec<_> = keys.iter().filter(|key| scope.contains_key(key)).collect();
            assert_eq!(keys[start..end].iter().collect::<Vec<_>>(), inside, "{namespace}");
            let object = scope.name("x");
            let range = |key: &&Key| !object.starts_after(key) && !object.ends_before(key);
            let inside: Vec<_> = keys.iter().filter(|key| object.contains_key(key)).collect();
            assert_eq!(keys.iter().filter(range).collect::<Vec<_>>(), inside, "{namespace}/x");
        }
    }
}
