//! The commands in a document, and what they are said to print.
//!
//! In a fenced block `console`, a line that begins with `$ ` is a command, one with `> ` goes on with it, and what follows
//! is what it prints: `...` alone stands for any lines, `…` for anything within one. A fenced block `sh` is one command, of
//! which only success is expected. Blocks of these other kinds are not run: yaml, json and text. There are no more kinds, so that
//! no command goes unrun because of its mark.

/// A command and what it prints.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Step {
    pub(super) command: String,
    /// `None` if nothing is said about it.
    pub(super) expected: Option<Vec<String>>,
}

/// The kinds of blocks that there are.
const KINDS: [&str; 6] = ["console", "sh", "yaml", "json", "text", ""];

/// The commands of a document, in order.
pub(super) fn steps(document: &str) -> Vec<Step> {
    let (mut steps, mut block): (Vec<Step>, Option<String>) = (Vec::new(), None);
    for line in document.lines() {
        match (&block, line.strip_prefix("```")) {
            (None, Some(kind)) => {
                assert!(KINDS.contains(&kind), "a block of unknown kind: {kind}");
                if kind == "sh" {
                    steps.push(Step::default());
                }
                block = Some(kind.to_owned());
            }
            (Some(_), Some(_)) => block = None,
            (Some(kind), None) if kind == "console" => console(line, &mut steps),
            (Some(kind), None) if kind == "sh" => {
                let step = steps.last_mut().expect("a step begins with its block");
                step.command = format!("{}{line}\n", step.command);
            }
            _ => {}
        }
    }
    steps
}

fn console(line: &str, steps: &mut Vec<Step>) {
    if let Some(command) = line.strip_prefix("$ ") {
        steps.push(Step { command: command.to_owned(), expected: Some(Vec::new()) });
        return;
    }
    let step = steps.last_mut().expect("a console block begins with a command");
    let expected = step.expected.get_or_insert_default();
    match line.strip_prefix("> ").or_else(|| (line == ">").then_some("")) {
        Some(more) if expected.is_empty() => step.command = format!("{}\n{more}", step.command),
        _ => expected.push(line.to_owned()),
    }
}

/// Whether what was printed is what was said.
pub(super) fn matches(expected: &[String], printed: &[&str]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "..." => {
            (0..=printed.len()).any(|skipped| matches(rest, &printed[skipped..]))
        }
        Some((first, rest)) => match printed.split_first() {
            Some((line, others)) => line_matches(first, line) && matches(rest, others),
            None => false,
        },
    }
}

fn line_matches(expected: &str, printed: &str) -> bool {
    // Columns are as wide as what differs makes them.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (expected, printed) = (words(expected), words(printed));
    let mut rest = printed.as_str();
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(after) = rest.strip_prefix(first) else { return false };
    rest = after;
    let mut ends_open = !expected.contains('…');
    for part in parts {
        ends_open = part.is_empty();
        match if part.is_empty() { Some(rest.len()) } else { rest.find(part) } {
            Some(at) => rest = &rest[at + part.len().min(rest.len() - at)..],
            None => return false,
        }
    }
    rest.is_empty() || (ends_open && expected.contains('…'))
}

#[test]
fn commands_and_what_they_print() {
    let document = "text\n```console\n$ cat <<EOF\n> a\n> EOF\na\n$ true\n```\n```yaml\n$ no\n```\n```sh\necho 1\necho 2\n```\n";
    let step = |command: &str, expected: Option<&[&str]>| Step {
        command: command.to_owned(),
        expected: expected.map(|lines| lines.iter().map(ToString::to_string).collect()),
    };
    assert_eq!(
        steps(document),
        [step("cat <<EOF\na\nEOF", Some(&["a"])), step("true", Some(&[])), step("echo 1\necho 2\n", None),]
    );
}

/// A command that nobody runs is not true for long.
#[test]
#[should_panic(expected = "a block of unknown kind: bash")]
fn a_block_of_another_kind_is_refused() {
    steps("```bash\nferry nothing\n```\n");
}

#[test]
fn what_may_differ_is_marked() {
    let check = |expected: &[&str], printed: &[&str]| {
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        matches(&expected, printed)
    };
    assert!(check(&["a", "...", "z"], &["a", "b", "c", "z"]));
    assert!(check(&["...", "z"], &["z"]));
    assert!(!check(&["a"], &["a", "b"]) && !check(&["a", "b"], &["a"]));
    assert!(check(&["took … s"], &["took 12 s"]) && !check(&["took … s"], &["took 12 m"]));
    assert!(check(&["on …"], &["on east"]) && check(&["… is up"], &["east is up"]));
    assert!(!check(&["on"], &["on east"]));
    assert!(check(&["a   … ms   b"], &["a   100 ms b"]));
}
