//! `$(VAR)` in commands, arguments and values.

/// Replaces `$(NAME)` by what `value` knows of the name. What it does not know stays as it is written, and `$$` is a
/// dollar sign that begins nothing.
pub fn expand<'a>(text: &str, value: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inside| inside.split_once(')')) {
            match value(name) {
                Some(value) => expanded.push_str(value),
                None => expanded.extend(["$(", name, ")"]),
            }
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansions() {
        let check = |text: &str, expected: &str| {
            let value = |name: &str| match name {
                "A" => Some("one"),
                "B" => Some("$(A)"),
                "" => Some("nothing"),
                _ => None,
            };
            assert_eq!(expand(text, value), expected, "{text}");
        };
        check("plain", "plain");
        check("$(A)", "one");
        check("x$(A)y$(A)", "xoneyone");
        check("$(B)", "$(A)"); // once, not again
        check("$(C)", "$(C)");
        check("$$(A)", "$(A)");
        check("$$$(A)", "$one");
        check("$A ${A} $", "$A ${A} $");
        check("$(A", "$(A");
        check("$()", "nothing");
    }
}
