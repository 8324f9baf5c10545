//! What the images of pods are on a node that runs processes: a table from names to programs and directories.

use std::{fmt, path::PathBuf, str::FromStr};

/// The reason of a container whose image could not be had just now.
pub const NOT_PULLED: &str = "ErrImagePull";
/// And of one that waits until that is tried again.
pub const BACK_OFF: &str = "ImagePullBackOff";

/// What is told of one that waits: as an event, and with the failure before in its status.
pub fn back_off(image: &str, failure: &str) -> (String, String) {
    let event = format!("Back-off pulling image {image:?}");
    let message = format!("{event}: {NOT_PULLED}: {failure}");
    (event, message)
}

/// What images are. The first entry that matches counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    entries: Vec<Entry>,
}

/// `NAME=PATH[:ENTRYPOINT [ARGUMENT]…]`: images whose name matches, with `*` for anything, are this directory as the root of
/// their containers, or this program of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    name: String,
    path: PathBuf,
    entrypoint: Option<String>,
    arguments: Vec<String>,
}

/// What one image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// A directory to be the container's root, or a program of the host.
    pub path: PathBuf,
    /// What runs in a directory if the container names no command.
    pub entrypoint: Option<String>,
    /// What that is called with if the container names neither a command nor arguments.
    pub arguments: Vec<String>,
}

impl Images {
    /// A table of these.
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Images {
        Images { entries: entries.into_iter().collect() }
    }

    /// Reads a file: an entry per line, `#` begins a comment.
    pub fn parse(text: &str) -> Result<Images, String> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        lines
            .filter(|line| !line.is_empty())
            .map(str::parse)
            .collect::<Result<Vec<Entry>, _>>()
            .map(Images::new)
    }

    /// Adds the entries of another table, which count after ours.
    pub fn extend(&mut self, more: Images) {
        self.entries.extend(more.entries);
    }

    /// What this image is, if the table says so: by its full name, or by the one without its tag and digest.
    pub fn find(&self, image: &str) -> Option<Found> {
        let entry = self
            .entries
            .iter()
            .find(|entry| matches(&entry.name, image) || matches(&entry.name, untagged(image)))?;
        Some(Found {
            path: entry.path.clone(),
            entrypoint: entry.entrypoint.clone(),
            arguments: entry.arguments.clone(),
        })
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> Result<Entry, String> {
        let wrong = || format!("{text:?} is not NAME=PATH or NAME=PATH:ENTRYPOINT");
        let (name, path) = text.split_once('=').ok_or_else(wrong)?;
        let (path, words) = path.split_once(':').unwrap_or((path, ""));
        let mut words = words.split_whitespace().map(str::to_owned);
        let (entrypoint, arguments) = (words.next(), words.collect());
        if name.is_empty() || !path.starts_with('/') {
            return Err(wrong());
        }
        Ok(Entry { name: name.to_owned(), path: PathBuf::from(path), entrypoint, arguments })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.path.display())?;
        self.entrypoint.as_ref().map_or(Ok(()), |entrypoint| write!(f, ":{entrypoint}"))?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

/// The image without tag and digest. A colon before the last slash belongs to a port.
fn untagged(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(image, _)| image);
    match image.rfind(':') {
        Some(colon) if !image[colon..].contains('/') => &image[..colon],
        _ => image,
    }
}

/// Whether a pattern with `*` for anything is the whole of a text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// What a container waits with if nothing says what its image is.
pub fn unknown(image: &str) -> (&'static str, String) {
    let message = format!(
        "Container image {image:?} is not known to this node, which runs programs of its host and pulls no images. \
         Give the container a command, or start the node with --image {}=PATH[:ENTRYPOINT]",
        untagged(image)
    );
    ("ErrImageNeverPull", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entrypoint_may_have_arguments_of_its_own() {
        let entry: Entry = "agnhost=/opt/agnhost:/agnhost pause".parse().expect("an entry");
        assert_eq!(entry.to_string(), "agnhost=/opt/agnhost:/agnhost pause");
        let found = Images::new([entry]).find("agnhost").expect("it is there");
        assert_eq!(
            (found.entrypoint.as_deref(), found.arguments),
            (Some("/agnhost"), vec!["pause".to_owned()])
        );
    }

    #[test]
    fn the_first_entry_that_matches_counts() {
        let text = "busybox=/opt/busybox:/bin/sh # a root\n\n*/agnhost:2.*=/usr/bin/agnhost\n*=/";
        let images = Images::parse(text).expect("a table");
        let found = |image: &str| {
            images.find(image).map(|found| (found.path.display().to_string(), found.entrypoint))
        };
        let root = Some(("/opt/busybox".to_owned(), Some("/bin/sh".to_owned())));
        assert_eq!(found("busybox"), root);
        assert_eq!(found("busybox:1.36"), root);
        assert_eq!(found("busybox@sha256:abc"), root);
        assert_eq!(
            found("registry.example:5000/e2e/agnhost:2.53"),
            Some(("/usr/bin/agnhost".to_owned(), None))
        );
        assert_eq!(found("registry.example:5000/other"), Some(("/".to_owned(), None)));
        assert_eq!(Images::default().find("busybox"), None);
        assert!("busybox".parse::<Entry>().is_err() && "busybox=relative".parse::<Entry>().is_err());
        assert!(unknown("a.b:5000/c:1").1.contains("--image a.b:5000/c=PATH"));
    }
}
