//! A stored object: bytes that the store does not look into, and the little about them that it is told.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::key::Key;
use crate::map::Keyed;
use crate::revision::Revision;

/// One state of an object. Never changes: the next state is another `Object`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Where it lives.
    pub key: Key,
    /// The change that led to this state.
    pub revision: Revision,
    /// The change that created the object.
    pub created: Revision,
    /// The bytes as given, with the revision spliced in.
    pub value: Bytes,
    /// What the writer said about the bytes.
    pub index: Index,
    /// Where in the bytes the revision stands, as decimal digits.
    pub(crate) revision_at: Option<u32>,
}

impl Object {
    /// The same bytes with another revision in the place of this one, as a watcher must see an object that left its
    /// selection or was deleted: the content of before, the revision of the change.
    pub fn value_at(&self, revision: Revision) -> Bytes {
        let Some(at) = self.revision_at else { return self.value.clone() };
        let at = at as usize;
        splice(&self.value[..at], revision, &self.value[at + self.revision.digits()..])
    }

    /// Where in the bytes the revision stands, if the writer left a place for it. It stands there in [`Object::value_at`], too.
    pub fn revision_at(&self) -> Option<usize> {
        self.revision_at.map(|at| at as usize)
    }

    /// The state in which a deletion leaves an object: its last content under the deletion's revision.
    pub(crate) fn deleted_at(&self, revision: Revision) -> Object {
        Object { value: self.value_at(revision), revision, ..self.clone() }
    }

    /// Whether its revision stands where it is said to stand. Checked of what is read from disk.
    pub(crate) fn holds_its_revision(&self) -> bool {
        let Some(at) = self.revision_at else { return true };
        self.value
            .get(at as usize..)
            .is_some_and(|rest| rest.starts_with(self.revision.to_string().as_bytes()))
    }

    /// About how many bytes of memory it holds.
    pub(crate) fn size(&self) -> usize {
        size_of::<Object>() + self.key.len() + self.value.len() + self.index.size()
    }
}

impl Keyed for Arc<Object> {
    type Key = Key;

    fn key(&self) -> &Key {
        &self.key
    }
}

/// What a writer says about an object's bytes, so that nobody has to parse them again to select by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    /// Tells an object from another one that had the same key before, as a Kubernetes uid does.
    pub token: Arc<str>,
    /// Labels.
    pub labels: Pairs,
    /// Selectable fields and whatever else is looked up by value, such as owners. A name may stand more than once.
    pub fields: Pairs,
}

impl Index {
    pub(crate) fn size(&self) -> usize {
        self.token.len() + self.labels.0.len() + self.fields.0.len()
    }
}

/// Names with values, packed into one allocation. Small on purpose: every object carries two of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairs(Arc<[u8]>);

impl Pairs {
    /// The value of a name, the first one if it stands more than once.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Whether a name stands there with this value.
    pub fn has(&self, name: &str, value: &str) -> bool {
        self.iter().any(|pair| pair == (name, value))
    }

    /// All pairs in the order in which they were given.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || Some((take(&mut rest)?, take(&mut rest)?)))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// `None` if the bytes are not those of pairs.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            take(&mut rest)?;
            take(&mut rest)?;
        }
        Some(Pairs(bytes.into()))
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut bytes = Vec::new();
        for (name, value) in pairs {
            for text in [name.as_ref(), value.as_ref()] {
                let length = u32::try_from(text.len()).expect("no name or value is as long as 4 GiB");
                bytes.extend(length.to_le_bytes());
                bytes.extend(text.as_bytes());
            }
        }
        Pairs(bytes.into())
    }
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (length, after) = rest.split_first_chunk()?;
    let (text, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

/// Two pieces with a revision between them, in one new buffer.
pub(crate) fn splice(before: &[u8], revision: Revision, after: &[u8]) -> Bytes {
    let digits = revision.to_string();
    let mut bytes = BytesMut::with_capacity(before.len() + digits.len() + after.len());
    bytes.extend_from_slice(before);
    bytes.extend_from_slice(digits.as_bytes());
    bytes.extend_from_slice(after);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_found_again() {
        let pairs: Pairs = [("app", "web"), ("owner", "1"), ("owner", "2"), ("", "")].into_iter().collect();
        assert_eq!(pairs.get("app"), Some("web"));
        assert_eq!(pairs.get("owner"), Some("1"));
        assert_eq!(pairs.get("web"), None);
        assert!(pairs.has("owner", "2") && pairs.has("", "") && !pairs.has("owner", "3"));
        assert_eq!(pairs.iter().count(), 4);
        assert_eq!(Pairs::from_bytes(pairs.as_bytes()), Some(pairs.clone()));
        assert_eq!(Pairs::from_bytes(&pairs.as_bytes()[1..]), None);
        assert_eq!(Pairs::default().get("app"), None);
    }

    #[test]
    fn c_2_2_a_deleted_object_carries_the_revision_of_the_deletion() {
        let object = Object {
            key: Key::new("jobs", "a", "x"),
            revision: Revision(99),
            created: Revision(7),
            value: Bytes::from_static(br#"{"rv":"99"}"#),
            index: Index::default(),
            revision_at: Some(7),
        };
        let deleted = object.deleted_at(Revision(100));
        assert_eq!(&*deleted.value, br#"{"rv":"100"}"#);
        assert_eq!((deleted.revision, deleted.created), (Revision(100), Revision(7)));
        assert_eq!(&*deleted.value_at(Revision(5)), br#"{"rv":"5"}"#);
    }
}
