//! How far a log was read, so that what breaks off is taken up where it was, and nothing is shown twice.

use jiff::Timestamp;

/// How far a log was read: up to the lines of this time. Lines are read with their times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    last: Option<Timestamp>,
    /// How many lines of that time were taken.
    taken: usize,
    /// How many lines of that time come once more; `None` if the log is not read again.
    again: Option<usize>,
}

impl Cursor {
    /// From when on the log is to be read once more. Servers know whole seconds, so that more may come than is new.
    pub(super) fn resume(&mut self) -> Option<Timestamp> {
        self.again = self.last.map(|_| self.taken);
        self.last
    }

    /// What a line says, with its time if that is wanted; `None` if it was taken before. A line without a time is new.
    pub(super) fn take<'a>(&mut self, line: &'a str, with_time: bool) -> Option<&'a str> {
        let Some((at, text)) = timed(line) else { return Some(line) };
        if let Some(left) = self.again.as_mut() {
            let last = self.last.unwrap_or(Timestamp::MIN);
            if at < last {
                return None;
            }
            if at == last && *left > 0 {
                *left -= 1;
                return None;
            }
            self.again = None;
        }
        match self.last {
            Some(last) if at < last => {}
            Some(last) if at == last => self.taken += 1,
            _ => (self.last, self.taken) = (Some(at), 1),
        }
        Some(if with_time { line } else { text })
    }

    /// Of two that have read the same log, the one that got farther.
    pub(super) fn farther(self, other: Cursor) -> Cursor {
        if (other.last, other.taken) > (self.last, self.taken) { other } else { self }
    }
}

/// A line apart from its time.
fn timed(line: &str) -> Option<(Timestamp, &str)> {
    let (at, text) = line.split_once(' ').unwrap_or((line, ""));
    Some((at.parse().ok()?, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: u8, text: &str) -> String {
        format!("2026-01-01T00:00:{second:02}.5Z {text}")
    }

    fn taken(cursor: &mut Cursor, lines: &[String]) -> Vec<String> {
        lines.iter().filter_map(|line| cursor.take(line, false)).map(str::to_owned).collect()
    }

    /// What a server sends again, from the last whole second on, is not shown again, and nothing is left out.
    #[test]
    fn a_log_goes_on_where_it_broke_off() {
        let all = [line(1, "a"), line(2, "b"), line(2, "c"), line(2, ""), line(3, "d")];
        for broken_after in 0..=all.len() {
            let mut cursor = Cursor::default();
            let mut shown = taken(&mut cursor, &all[..broken_after]);
            assert_eq!(cursor.resume().is_some(), broken_after > 0);
            shown.extend(taken(&mut cursor, &all));
            assert_eq!(shown, ["a", "b", "c", "", "d"], "after {broken_after}");
        }
    }

    #[test]
    fn times_are_shown_on_request_and_may_be_missing() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.take(&line(1, "a b"), true), Some(line(1, "a b").as_str()));
        assert_eq!(cursor.take(&line(1, "a b"), false), Some("a b"));
        assert_eq!(cursor.take("no time", false), Some("no time"));
        assert_eq!(cursor.take("", false), Some(""));
        // Two streams of one container may be written down out of order.
        assert_eq!(cursor.take(&line(0, "earlier"), false), Some("earlier"));
    }

    #[test]
    fn the_farther_one_counts() {
        let at = |lines: &[String]| {
            let mut cursor = Cursor::default();
            taken(&mut cursor, lines);
            cursor
        };
        let (one, two) = (at(&[line(1, "a")]), at(&[line(1, "a"), line(1, "b")]));
        assert_eq!(one.clone().farther(two.clone()), two);
        assert_eq!(two.clone().farther(one), two);
    }
}
