//! Sets of completion indexes, and the text (`0-2,5`) that stands for them in the Job API.
//!
//! There are two readers, because Kubernetes has two: [`IndexSet::parse`] judges what a client wrote and says what is
//! wrong with it, [`IndexSet::read`] takes what it can from a list that is stored already. Both yield the same kind of
//! set, whatever spelling it came from, and a set prints in one spelling only.

use std::fmt;
use std::num::TryFromIntError;

use types::go;

/// A set of completion indexes, kept as runs so that ten thousand neighbours cost as much as one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct IndexSet {
    /// Ascending, and with at least one missing index between two runs.
    runs: Vec<Run>,
}

/// The indexes from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Run {
    first: u32,
    last: u32,
}

impl Run {
    fn len(self) -> usize {
        (self.last - self.first) as usize + 1
    }
}

/// What is wrong with the text of an index list. It prints as the API server prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseError {
    /// A fragment like `1-2-3`.
    TooManyParts(String),
    /// A part that is no decimal integer.
    NotAnInteger(String),
    /// A part that is no index of this Job; the text is kept as it was written.
    TooLarge(String),
    /// An index that does not come after the one before it.
    NotIncreasing {
        /// The index before.
        previous: u32,
        /// The index that should have been larger.
        current: u32,
    },
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParseError::TooManyParts(fragment) => write!(
                f,
                "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
                go::quote(fragment)
            ),
            ParseError::NotAnInteger(part) => {
                write!(f, "cannot convert string to integer for index: {}", go::quote(part))
            }
            ParseError::TooLarge(part) => write!(f, "too large index: {}", go::quote(part)),
            ParseError::NotIncreasing { previous, current } => {
                write!(f, "non-increasing order, previous: {previous}, current: {current}")
            }
        }
    }
}

impl std::error::Error for ParseError {}

impl IndexSet {
    /// The set without any index.
    pub fn new() -> Self {
        IndexSet::default()
    }

    /// Reads what a client wrote: ascending, every index below `completions`. Neighbours need not be written as a run.
    pub fn parse(text: &str, completions: i32) -> Result<Self, ParseError> {
        let mut set = IndexSet::new();
        if text.is_empty() {
            return Ok(set);
        }
        for fragment in text.split(',') {
            let run = parse_run(fragment, completions)?;
            if let Some(previous) = set.last()
                && previous >= run.first
            {
                return Err(ParseError::NotIncreasing { previous, current: run.first });
            }
            set.push(run);
        }
        Ok(set)
    }

    /// Reads a list that is stored already, and possibly for more `completions` than there are now: fragments that
    /// make no sense are skipped, reading stops at the first one that starts out of range, and one that ends out of
    /// range is cut.
    pub fn read(text: &str, completions: i32) -> Self {
        let mut runs = Vec::new();
        for fragment in text.split(',') {
            let mut parts = fragment.split('-').map(str::parse::<i64>);
            let Some(Ok(first)) = parts.next() else { continue };
            if first >= i64::from(completions) {
                break;
            }
            let last = match parts.next() {
                None => first,
                Some(Ok(last)) => last.min(i64::from(completions) - 1),
                Some(Err(_)) => continue,
            };
            if let (Ok(first), Ok(last)) = (u32::try_from(first), u32::try_from(last))
                && first <= last
            {
                runs.push(Run { first, last });
            }
        }
        IndexSet::from_runs(runs)
    }

    /// Whether the index is in the set.
    pub fn contains(&self, index: u32) -> bool {
        let at = self.runs.partition_point(|run| run.last < index);
        self.runs.get(at).is_some_and(|run| run.first <= index)
    }

    /// The number of indexes.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|run| run.len()).sum()
    }

    /// Whether there is no index at all.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds one index. For many at once, collect them and take the [`union`](Self::union).
    pub fn insert(&mut self, index: u32) {
        // The runs from `from` to `to` touch the new index and become one with it.
        let from = self.runs.partition_point(|run| run.last.saturating_add(1) < index);
        let to = self.runs.partition_point(|run| run.first <= index.saturating_add(1));
        let mut merged = Run { first: index, last: index };
        for run in &self.runs[from..to] {
            merged.first = merged.first.min(run.first);
            merged.last = merged.last.max(run.last);
        }
        self.runs.splice(from..to, [merged]);
    }

    /// The indexes that are in one of the two sets or in both.
    pub fn union(&self, other: &IndexSet) -> IndexSet {
        IndexSet::from_runs(self.runs.iter().chain(&other.runs).copied().collect())
    }

    /// How many indexes are in both sets.
    pub fn common_len(&self, other: &IndexSet) -> usize {
        let mut count = 0;
        let (mut mine, mut theirs) = (self.runs.iter().peekable(), other.runs.iter().peekable());
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            let common = Run { first: a.first.max(b.first), last: a.last.min(b.last) };
            if common.first <= common.last {
                count += common.len();
            }
            if a.last <= b.last {
                mine.next()
            } else {
                theirs.next()
            };
        }
        count
    }

    /// The indexes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|run| run.first..=run.last)
    }

    /// The indexes below `completions` that are not in the set, ascending. Taking a few is cheap, however many
    /// indexes the set has.
    pub fn missing(&self, completions: u32) -> impl Iterator<Item = u32> + '_ {
        let starts = std::iter::once(0).chain(self.runs.iter().map(|run| run.last.saturating_add(1)));
        let ends = self.runs.iter().map(|run| run.first).chain(std::iter::once(u32::MAX));
        starts.zip(ends).flat_map(move |(start, end)| start..end.min(completions))
    }

    fn last(&self) -> Option<u32> {
        self.runs.last().map(|run| run.last)
    }

    fn from_runs(mut runs: Vec<Run>) -> Self {
        runs.sort_unstable_by_key(|run| run.first);
        let mut set = IndexSet { runs: Vec::with_capacity(runs.len()) };
        for run in runs {
            set.push(run);
        }
        set
    }

    /// Appends a run that starts no earlier than the last one.
    fn push(&mut self, run: Run) {
        match self.runs.last_mut() {
            Some(last) if run.first <= last.last.saturating_add(1) => last.last = last.last.max(run.last),
            _ => self.runs.push(run),
        }
    }
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<T: IntoIterator<Item = u32>>(indexes: T) -> Self {
        IndexSet::from_runs(indexes.into_iter().map(|index| Run { first: index, last: index }).collect())
    }
}

/// Prints as the Job controller does: runs of three and more as `a-b`, two neighbours as `a,b`.
impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, run) in self.runs.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            match run.len() {
                1 => write!(f, "{}", run.first)?,
                2 => write!(f, "{},{}", run.first, run.last)?,
                _ => write!(f, "{}-{}", run.first, run.last)?,
            }
        }
        Ok(())
    }
}

/// An index that two lists share, as the API server finds it: it walks both lists side by side, skips the fragments
/// that do not parse (another rule reports those), and names the larger start of the first two runs that overlap.
/// Lists that are not ascending are walked the same way, and may hide an overlap.
pub fn overlap(completed: &str, failed: &str, completions: i32) -> Option<u32> {
    let runs = |text: &str| -> Vec<Run> {
        text.split(',').filter_map(|fragment| parse_run(fragment, completions).ok()).collect()
    };
    let (completed, failed) = (runs(completed), runs(failed));
    let (mut completed, mut failed) = (completed.iter().peekable(), failed.iter().peekable());
    while let (Some(c), Some(f)) = (completed.peek(), failed.peek()) {
        if c.first <= f.last && f.first <= c.last {
            return Some(c.first.max(f.first));
        }
        if c.first <= f.first {
            completed.next()
        } else {
            failed.next()
        };
    }
    None
}

/// Reads `a` or `a-b`.
fn parse_run(fragment: &str, completions: i32) -> Result<Run, ParseError> {
    let parts: Vec<&str> = fragment.split('-').collect();
    match parts[..] {
        [only] => {
            let index = parse_index(only, completions)?;
            Ok(Run { first: index, last: index })
        }
        [first, last] => {
            let (first, last) = (parse_index(first, completions)?, parse_index(last, completions)?);
            if first >= last {
                return Err(ParseError::NotIncreasing { previous: first, current: last });
            }
            Ok(Run { first, last })
        }
        _ => Err(ParseError::TooManyParts(fragment.to_owned())),
    }
}

fn parse_index(part: &str, completions: i32) -> Result<u32, ParseError> {
    // As wide as Go's `int`, so that what is no integer and what is only too large differ at the same place.
    let index: i64 = part.parse().map_err(|_| ParseError::NotAnInteger(part.to_owned()))?;
    if index >= i64::from(completions) {
        return Err(ParseError::TooLarge(part.to_owned()));
    }
    // A minus sign separates parts, so none is left to make an index negative.
    u32::try_from(index).map_err(|_: TryFromIntError| ParseError::NotAnInteger(part.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parse_judges_what_a_client_wrote() {
        for (rule, text, completions, expected) in [
            ("empty text is the empty set", "", 0, Ok("")),
            ("one", "0", 1, Ok("0")),
            ("canonical compression is not required", "0,1,2", 3, Ok("0-2")),
            ("a run of two", "0-1", 2, Ok("0,1")),
            ("runs that touch", "0-2,3-4", 5, Ok("0-4")),
            ("the controller's own spelling", "1,3-5,7", 8, Ok("1,3-5,7")),
            ("a plus sign and zeros", "+1,002", 5, Ok("1,2")),
            (
                "three parts",
                "0-1-2",
                5,
                Err(
                    r#"the fragment "0-1-2" violates the requirement that an index interval can have at most two parts separated by '-'"#,
                ),
            ),
            (
                "parts are counted before they are read",
                "a-b-c",
                5,
                Err(
                    r#"the fragment "a-b-c" violates the requirement that an index interval can have at most two parts separated by '-'"#,
                ),
            ),
            ("no number", "invalid", 5, Err(r#"cannot convert string to integer for index: "invalid""#)),
            ("quoted as Go quotes", "\"\t", 5, Err(r#"cannot convert string to integer for index: "\"\t""#)),
            ("a space", "0, 1", 5, Err(r#"cannot convert string to integer for index: " 1""#)),
            ("nothing after a comma", "0,", 5, Err(r#"cannot convert string to integer for index: """#)),
            ("a negative index", "-1", 5, Err(r#"cannot convert string to integer for index: """#)),
            ("no end", "1-", 5, Err(r#"cannot convert string to integer for index: """#)),
            (
                "more than 64 bits",
                "9223372036854775808",
                5,
                Err(r#"cannot convert string to integer for index: "9223372036854775808""#),
            ),
            ("just 64 bits", "9223372036854775807", 5, Err(r#"too large index: "9223372036854775807""#)),
            ("a start out of range", "0,5", 5, Err(r#"too large index: "5""#)),
            ("an end out of range", "0,3-05", 5, Err(r#"too large index: "05""#)),
            ("nothing is in range of none", "0", 0, Err(r#"too large index: "0""#)),
            ("backwards", "2-1", 5, Err("non-increasing order, previous: 2, current: 1")),
            ("a run of one", "1-1", 5, Err("non-increasing order, previous: 1, current: 1")),
            ("twice", "1,1", 5, Err("non-increasing order, previous: 1, current: 1")),
            ("not after the end", "0-3,2", 5, Err("non-increasing order, previous: 3, current: 2")),
            ("the first error wins", "3,x,1", 5, Err(r#"cannot convert string to integer for index: "x""#)),
        ] {
            let got = IndexSet::parse(text, completions);
            let got = got.map(|set| set.to_string()).map_err(|error| error.to_string());
            assert_eq!(got, expected.map(str::to_owned).map_err(str::to_owned), "{rule}");
        }
    }

    #[test]
    fn i_07_read_takes_what_it_can() {
        for (rule, text, completions, expected) in [
            ("empty", "", 5, ""),
            ("clean", "0-2,4", 5, "0-2,4"),
            ("runs that touch become one", "0,1,2", 5, "0-2"),
            ("a start out of range ends the list", "1,5,2", 5, "1"),
            ("an end out of range is cut", "0,3-8", 5, "0,3,4"),
            ("cut to one", "4-8", 5, "4"),
            ("corrupted fragments are skipped", "0,1-foo,x,3-", 5, "0"),
            ("only two parts are looked at", "1-2-9", 5, "1,2"),
            ("a negative start", "-1,2", 5, "2"),
            ("backwards", "3-1,4", 5, "4"),
            ("all indexes gone", "0-4", 0, ""),
        ] {
            assert_eq!(IndexSet::read(text, completions).to_string(), expected, "{rule}");
        }
    }

    #[test]
    fn i_06_prints_runs_of_three_and_more() {
        for (indexes, text) in [
            (vec![], ""),
            (vec![0], "0"),
            (vec![0, 1], "0,1"),
            (vec![0, 1, 2], "0-2"),
            (vec![7, 5, 4, 3, 1, 1], "1,3-5,7"),
            (vec![0, 1, 3, 4, 6, 7, 8], "0,1,3,4,6-8"),
        ] {
            assert_eq!(IndexSet::from_iter(indexes).to_string(), text);
        }
    }

    #[test]
    fn s_14_overlap() {
        for (rule, completed, failed, completions, expected) in [
            ("nothing", "", "", 10, None),
            ("apart", "0,2-4", "1,5", 10, None),
            ("the same index", "1", "1", 10, Some(1)),
            ("completed starts later", "2-5", "0-3", 10, Some(2)),
            ("failed starts later", "0-3", "2-5", 10, Some(2)),
            ("the first of several", "0,4-6,8", "5,8", 10, Some(5)),
            ("unparsable fragments are skipped", "x,1-2-3,4", "y,4", 10, Some(4)),
            ("only unparsable fragments", "x", "0", 10, None),
            ("out of range does not parse", "4,10", "10", 10, None),
            ("a list that is not ascending hides its overlap", "5,1", "2,1", 10, None),
            ("even a plain one", "5,1", "1", 10, None),
            ("no fragment at all", "", "0", 10, None),
        ] {
            assert_eq!(overlap(completed, failed, completions), expected, "{rule}");
        }
    }

    #[test]
    fn i_05_missing_indexes_ascend_and_stop() {
        let set = IndexSet::read("0,3-5,8", 100);
        assert_eq!(set.missing(7).collect::<Vec<_>>(), [1, 2, 6]);
        assert_eq!(set.missing(11).collect::<Vec<_>>(), [1, 2, 6, 7, 9, 10]);
        assert_eq!(IndexSet::new().missing(2).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(IndexSet::new().missing(0).count(), 0);
        assert_eq!(IndexSet::from_iter([u32::MAX]).missing(3).count(), 3);
    }

    fn indexes() -> impl Strategy<Value = BTreeSet<u32>> {
        // Dense enough that runs of every length occur.
        proptest::collection::btree_set(0..60u32, 0..50)
    }

    fn set(indexes: &BTreeSet<u32>) -> IndexSet {
        indexes.iter().copied().collect()
    }

    proptest! {
        #[test]
        fn both_readers_understand_what_is_printed(a in indexes()) {
            let text = set(&a).to_string();
            prop_assert_eq!(IndexSet::parse(&text, 60), Ok(set(&a)));
            prop_assert_eq!(IndexSet::read(&text, 60), set(&a));
        }

        #[test]
        fn what_parses_reads_the_same(text in "[0-9,+-]{0,12}", completions in 0..40i32) {
            if let Ok(parsed) = IndexSet::parse(&text, completions) {
                prop_assert_eq!(IndexSet::read(&text, completions), parsed);
            }
        }

        #[test]
        fn behaves_like_a_set(a in indexes(), b in indexes(), extra in 0..60u32) {
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert!((0..60).all(|index| x.contains(index) == a.contains(&index)));
            prop_assert_eq!(x.missing(60).collect::<Vec<_>>(), (0..60).filter(|i| !a.contains(i)).collect::<Vec<_>>());
            prop_assert_eq!(x.union(&y), set(&(&a | &b)));
            prop_assert_eq!(x.union(&y), y.union(&x));
            prop_assert_eq!(x.union(&x), x.clone());
            prop_assert_eq!(x.common_len(&y), (&a & &b).len());
            let mut inserted = x.clone();
            inserted.insert(extra);
            prop_assert_eq!(inserted, x.union(&IndexSet::from_iter([extra])));
        }

        #[test]
        fn reading_for_fewer_completions_cuts_the_set(a in indexes(), completions in 0..60u32) {
            let cut = IndexSet::read(&set(&a).to_string(), i32::try_from(completions).unwrap());
            prop_assert_eq!(cut, a.range(..completions).copied().collect::<IndexSet>());
        }

        #[test]
        fn s_14_overlap_finds_the_first_common_index(a in indexes(), b in indexes()) {
            let (x, y) = (set(&a), set(&b));
            let first = (&a & &b).first().copied();
            prop_assert_eq!(overlap(&x.to_string(), &y.to_string(), 60), first);
        }
    }

    #[test]
    fn a_hundred_thousand_indexes_are_no_burden() {
        let evens: IndexSet = (0..200_000).step_by(2).collect();
        let odds: IndexSet = (1..200_000).step_by(2).collect();
        let text = evens.to_string();
        assert_eq!(IndexSet::parse(&text, 200_000).as_ref(), Ok(&evens));
        assert_eq!(overlap(&text, &odds.to_string(), 200_000), None);
        assert_eq!(evens.missing(200_000).take(3).collect::<Vec<_>>(), [1, 3, 5]);
        let mut all = evens.union(&odds);
        assert_eq!(all.to_string(), "0-199999");
        all.insert(200_000);
        assert_eq!((all.len(), all.runs.len()), (200_001, 1));
        assert_eq!(IndexSet::parse("0-2147483646", i32::MAX).map(|set| set.len()), Ok(2_147_483_647));
    }
}
