//! Where a walk stands in an object. Every node has a place, and next to none of them is ever told, so a place is a chain
//! of steps on the stack and becomes text only for an error.

use rules::field::Path;

use super::correlate::Correlated;

/// A place in an object: how one gets there from where the walk began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'a> {
    last: Option<(&'a At<'a>, Step<'a>)>,
}

/// One step down.
#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    /// To a field of a structure.
    Field(&'a str),
    /// To an entry of a map.
    Entry(&'a str),
    /// To an item of a list.
    Item(usize),
}

impl<'a> At<'a> {
    /// Where a walk begins.
    pub(crate) const ROOT: At<'static> = At { last: None };

    /// A field of the structure here.
    pub(crate) fn field(&'a self, name: &'a str) -> At<'a> {
        At { last: Some((self, Step::Field(name))) }
    }

    /// An entry of the map here.
    pub(crate) fn entry(&'a self, name: &'a str) -> At<'a> {
        At { last: Some((self, Step::Entry(name))) }
    }

    /// An item of the list here.
    pub(crate) fn item(&'a self, index: usize) -> At<'a> {
        At { last: Some((self, Step::Item(index))) }
    }

    /// Whether this is where the walk began.
    pub(crate) fn is_root(&self) -> bool {
        self.last.is_none()
    }

    /// In the notation of go-openapi, which knows no maps: `spec.list[0].key`. Where the walk began is empty.
    pub(crate) fn dotted(&self) -> String {
        let Some((parent, step)) = self.last else { return String::new() };
        let mut text = parent.dotted();
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) | Step::Entry(name) => text.extend([".", name]),
            Step::Item(index) => text.extend(["[", &index.to_string(), "]"]),
        }
        text
    }

    /// In Kubernetes' notation, below the path of where the walk began: `spec.list[0][key]`.
    pub(crate) fn below(&self, root: &Path) -> Path {
        match self.last {
            None => root.clone(),
            Some((parent, Step::Field(name))) => parent.below(root).child(name),
            Some((parent, Step::Entry(name))) => parent.below(root).key(name),
            Some((parent, Step::Item(index))) => parent.below(root).index(index),
        }
    }

    /// What stands here in the new and the old object, from what stands where the walk began; none if that cannot be told,
    /// and then what is the nearest above of which it can. The types of an object are the request's and not the object's:
    /// there is nothing that they could have been before.
    pub(crate) fn correlated<'b>(&self, root: Option<Correlated<'b>>) -> Found<'b> {
        let Some((parent, step)) = self.last else { return Found { here: root, above: None } };
        if parent.is_root() && matches!(step, Step::Field(name) | Step::Entry(name) if is_type(name)) {
            return Found { here: None, above: None };
        }
        let found = parent.correlated(root);
        let Some(above) = found.here else { return found };
        let here = match step {
            Step::Field(name) | Step::Entry(name) => above.field(name),
            Step::Item(index) => above.item(index),
        };
        Found { here, above: Some(above) }
    }
}

/// What is known of a place in the old object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    /// At this place.
    pub(crate) here: Option<Correlated<'a>>,
    /// At the nearest place above of which it is known.
    pub(crate) above: Option<Correlated<'a>>,
}

/// Whether a field of an object says what that is.
pub(crate) fn is_type(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_in_two_notations() {
        let root = At::ROOT;
        let spec = root.field("spec");
        let list = spec.field("list");
        let item = list.item(2);
        let entry = item.entry("a/b");
        let top = root.entry("x");
        let nil = Path::root();
        for (at, dotted, path) in [
            (&root, "", "<nil>"),
            (&spec, "spec", "spec"),
            (&item, "spec.list[2]", "spec.list[2]"),
            (&entry, "spec.list[2].a/b", "spec.list[2][a/b]"),
            (&top, ".x", "<nil>[x]"),
        ] {
            assert_eq!(at.dotted(), dotted);
            assert_eq!(at.below(&nil).to_string(), path);
        }
        assert_eq!(entry.below(&Path::new("status")).to_string(), "status.spec.list[2][a/b]");
    }
}
