//! Files that containers write for the variables of others, in a part of what shells read: `NAME='value'`, with comments, and
//! with values of several lines.

/// The value that a file gives a variable; none if that is empty or not there. What comes after it is not looked at.
pub fn value(text: &str, wanted: &str) -> Result<Option<String>, String> {
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let wrong = |why: &str| Err(format!("line {}: {why}", index + 1));
        let line = line.trim_start_matches(BLANK);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, rest)) = line.split_once('=') else { return wrong("there is no '='") };
        if name.is_empty() {
            return wrong("there is no name");
        }
        if name.ends_with(BLANK) {
            return wrong("there is a space before the '='");
        }
        // As a shell reads it: the value is empty, and what follows is not its.
        if rest.starts_with(BLANK) {
            if name == wanted {
                return Ok(None);
            }
            continue;
        }
        let Some(mut rest) = rest.strip_prefix('\'') else {
            return wrong("the value is not in single quotes");
        };
        let mut value = String::new();
        let after = loop {
            if let Some((end, after)) = rest.split_once('\'') {
                value.push_str(end);
                break after.trim_start_matches(BLANK);
            }
            value.push_str(rest);
            value.push('\n');
            match lines.next() {
                Some((_, line)) => rest = line,
                None => return wrong("the quotes are not closed"),
            }
        };
        if !(after.is_empty() || after.starts_with('#')) {
            return wrong("something follows the value");
        }
        if name == wanted {
            return Ok(Some(value).filter(|value| !value.is_empty()));
        }
    }
    Ok(None)
}

const BLANK: [char; 2] = [' ', '\t'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |text: &str, expected: Result<Option<&str>, &str>| {
            let found = value(text, "A");
            assert_eq!(found.as_ref().map(Option::as_deref).map_err(String::as_str), expected, "{text}");
        };
        check("", Ok(None));
        check("A='1'", Ok(Some("1")));
        check("# A='0'\n\n \t\n  A='1' # one\nA='2'", Ok(Some("1")));
        check("B='x\ny # no comment\n'\r\nA='1\n\n2'", Ok(Some("1\n\n2")));
        check("A='$B \\n \"'", Ok(Some("$B \\n \"")));
        check("B='1'", Ok(None));
        check("A=''", Ok(None));
        check("A= '1'\nA='2'", Ok(None));
        check("B= 1\nA='2'", Ok(Some("2")));
        check("A='1'\nnonsense", Ok(Some("1")));
        check("B='1'\nnonsense", Err("line 2: there is no '='"));
        check("='1'", Err("line 1: there is no name"));
        check("A ='1'", Err("line 1: there is a space before the '='"));
        check("A=1", Err("line 1: the value is not in single quotes"));
        check("B='1\n2\n", Err("line 1: the quotes are not closed"));
        check("A='1'2", Err("line 1: something follows the value"));
    }
}
