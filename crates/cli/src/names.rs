//! Names that are not there: what was meant perhaps, or what there is.

/// How many names are told.
const TOLD: usize = 8;
/// How many letters may be wrong in a name for it to be meant, for each three that it has.
const LETTERS: usize = 3;

/// What to say to whoever asked for something by a name that nothing has.
pub(crate) fn hint(what: &str, wanted: &str, there: &[String], none: &str) -> String {
    if let Some(meant) = nearest(wanted, there) {
        return format!("did you mean {meant}?");
    }
    match there {
        [] => none.to_owned(),
        _ if there.len() <= TOLD => format!("{what} that are there: {}", there.join(", ")),
        _ => format!("{what} that are there: {}, and {} more", there[..TOLD].join(", "), there.len() - TOLD),
    }
}

/// The name that is most like it, if one is much like it.
fn nearest<'a>(wanted: &str, there: &'a [String]) -> Option<&'a String> {
    let letters = |name: &str| name.chars().count();
    let near = there.iter().map(|name| (strsim::damerau_levenshtein(wanted, name), name));
    let near = near.filter(|(wrong, name)| *wrong <= letters(name).max(letters(wanted)) / LETTERS);
    near.min().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_comes_before_what_there_is() {
        let there = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let check = |wanted: &str, names: &[&str]| hint("Jobs", wanted, &there(names), "look elsewhere");
        assert_eq!(check("redner", &["frames", "render"]), "did you mean render?");
        assert_eq!(check("fram", &["frames"]), "did you mean frames?");
        assert_eq!(check("nothing", &["frames", "render"]), "Jobs that are there: frames, render");
        assert_eq!(check("x", &["abcd"]), "Jobs that are there: abcd");
        assert_eq!(check("x", &[]), "look elsewhere");
        let many: Vec<String> = (0..10).map(|i| format!("long-name-{i}")).collect();
        assert!(hint("Jobs", "x", &many, "").ends_with("long-name-7, and 2 more"));
    }
}
