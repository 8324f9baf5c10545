//! Names of container images, as far as defaults depend on them.
//!
//! Validation only asks that there is a name: whether it leads to an image is found out on a node.

const DEFAULT_DOMAIN: &str = "docker.io";
const MAX_PATH: usize = 255;

/// Whether an image stands for whatever is newest: it says `latest`, or neither tag nor digest. A name that cannot be
/// parsed does not.
pub(super) fn is_latest(image: &str) -> bool {
    match parse(image) {
        Some(Reference { tag: Some(tag), .. }) => tag == "latest",
        Some(Reference { tag: None, digest }) => digest.is_none(),
        None => false,
    }
}

struct Reference<'a> {
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

fn parse(image: &str) -> Option<Reference<'_>> {
    if image.len() == 64 && image.bytes().all(is_lower_hex) {
        return None; // the id of an image, not its name
    }
    let (image, digest) = match image.split_once('@') {
        Some((image, digest)) => (image, Some(digest)),
        None => (image, None),
    };
    let (domain, remainder) = split_domain(image);
    let (path, tag) = match remainder.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (remainder, None),
    };
    // A first part that is no domain may still be the first part of a path.
    let named = if is_domain(domain) {
        path.len() <= MAX_PATH
    } else {
        domain.len() + 1 + path.len() <= MAX_PATH && is_path_component(domain)
    };
    let named = named && path.split('/').all(is_path_component);
    (named && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)).then_some(Reference { tag, digest })
}

/// The registry and the rest. What has neither dot nor colon nor upper case is no registry, `localhost` excepted.
fn split_domain(image: &str) -> (&str, &str) {
    match image.split_once('/') {
        Some((first, rest))
            if first == "localhost"
                || first.contains(['.', ':'])
                || first.chars().any(|c| c.is_ascii_uppercase()) =>
        {
            (first, rest)
        }
        _ => (DEFAULT_DOMAIN, image),
    }
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[') {
        Some(address) => match address.split_once(']') {
            Some((address, rest)) if is_all(address, |b| b.is_ascii_hexdigit() || b == b':') => {
                return rest.is_empty() || rest.strip_prefix(':').is_some_and(is_number);
            }
            _ => return false,
        },
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_label = |label: &str| {
        is_all(label, |b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_number)
}

/// Lower-case words joined by one dot, one or two underscores, or dashes.
fn is_path_component(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let edges = text.bytes().next().is_some_and(is_word) && text.bytes().next_back().is_some_and(is_word);
    let separators = text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    edges
        && separators.into_iter().all(|s| matches!(s, "" | "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|b| is_word(b) || b == b'.' || b == b'-')
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hex)) = text.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length && hex.bytes().all(is_lower_hex)
}

fn is_number(text: &str) -> bool {
    is_all(text, |b| b.is_ascii_digit())
}

fn is_lower_hex(b: u8) -> bool {
    b.is_ascii_digit() || (b'a'..=b'f').contains(&b)
}

fn is_all(text: &str, test: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(test)
}

#[cfg(test)]
mod tests {
    use super::is_latest;

    #[test]
    fn d_13_which_images_are_pulled_always() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (image, latest) in [
            ("busybox", true),
            ("busybox:latest", true),
            ("busybox:1.36", false),
            ("registry.example.com:5000/team/app", true),
            ("registry.example.com:5000/team/app:v1", false),
            ("[::1]:5000/app", true),
            ("localhost/app", true),
            ("foo_bar.x/app", true),
            ("Registry/app", true),
            (&format!("app@{digest}"), false),
            (&format!("app:latest@{digest}"), true),
            (&format!("app:latest@{digest}0"), false),
            // Not names of images at all.
            ("", false),
            ("Busybox", false),
            (" busybox", false),
            ("a//b", false),
            ("a___b", false),
            ("a..b", false),
            ("-a", false),
            ("a:", false),
            (&"a".repeat(64), false),
        ] {
            assert_eq!(is_latest(image), latest, "{image:?}");
        }
    }
}
