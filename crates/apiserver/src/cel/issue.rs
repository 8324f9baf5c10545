//! What is wrong with an expression before it is ever run, printed as cel-go prints it.

use std::fmt::Write as _;

/// One thing the compiler complains about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Where: a byte offset into the source.
    pub at: usize,
    /// What.
    pub message: String,
}

impl Issue {
    pub(super) fn at(at: usize, message: impl Into<String>) -> Issue {
        Issue { at, message: message.into() }
    }

    pub(super) fn syntax(at: usize, message: impl AsRef<str>) -> Issue {
        Issue::at(at, format!("Syntax error: {}", message.as_ref()))
    }
}

/// All issues of `source` in order, each with its line and a mark below the column.
pub(super) fn print(source: &str, issues: &[Issue]) -> String {
    let mut ordered: Vec<&Issue> = issues.iter().collect();
    ordered.sort_by_key(|issue| issue.at);
    let mut printed = String::new();
    for issue in ordered {
        // Where there is nothing, nothing is pointed at.
        if source.is_empty() {
            return format!("ERROR: <input>:1:0: {}", issue.message);
        }
        let before = &source[..issue.at.min(source.len())];
        let line = before.matches('\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[start..].chars().count();
        if !printed.is_empty() {
            printed.push('\n');
        }
        let text = source[start..].lines().next().unwrap_or_default();
        // Below wide characters stand wide marks.
        let is_wide = |c: char| c.len_utf8() > 1;
        let mark: String =
            text.chars().take(column).map(|c| if is_wide(c) { '\u{ff0e}' } else { '.' }).collect();
        let arrow = if text.chars().nth(column).is_some_and(is_wide) { '\u{ff3e}' } else { '^' };
        write!(
            printed,
            "ERROR: <input>:{line}:{}: {}\n | {text}\n | {mark}{arrow}",
            column + 1,
            issue.message
        )
        .expect("writing to a string cannot fail");
    }
    printed
}
