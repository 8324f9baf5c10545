//! How answers look: tables, JSON and YAML on standard output, colour where somebody looks.
//!
//! Everything that a verb says as its answer goes through here, so that a closed pipe is an error that `main` knows and
//! not a panic.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Serialize;

/// What `-o` can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// The table with more columns.
    Wide,
    /// The objects as JSON.
    Json,
    /// The objects as YAML.
    Yaml,
    /// Only what they are and their names, one per line.
    Name,
}

/// What `-o` can be told where there is no table with more columns and nothing with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Structure {
    /// As JSON.
    Json,
    /// As YAML.
    Yaml,
}

/// What a text says, by its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Tone {
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// Not as it should be.
    Bad,
    /// Under way.
    Busy,
    /// Waits.
    Waiting,
    /// Less important.
    Dim,
    /// More important.
    Bold,
}

impl Tone {
    fn escape(self) -> &'static str {
        match self {
            Tone::Plain => "",
            Tone::Good => "\x1b[32m",
            Tone::Bad => "\x1b[31m",
            Tone::Busy => "\x1b[36m",
            Tone::Waiting => "\x1b[33m",
            Tone::Dim => "\x1b[2m",
            Tone::Bold => "\x1b[1m",
        }
    }
}

/// Whether there is colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Palette {
    coloured: bool,
}

impl Palette {
    /// As standard output can show it: on terminals, unless `NO_COLOR` is set.
    pub(crate) fn stdout() -> Palette {
        Palette { coloured: std::io::stdout().is_terminal() && wants_colour() }
    }

    /// The same for standard error.
    pub(crate) fn stderr() -> Palette {
        Palette { coloured: std::io::stderr().is_terminal() && wants_colour() }
    }

    pub(crate) fn is_coloured(self) -> bool {
        self.coloured
    }

    /// A text with its colour, if there is any.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        if self.coloured && tone != Tone::Plain && !text.is_empty() {
            format!("{}{text}\x1b[0m", tone.escape())
        } else {
            text.to_owned()
        }
    }
}

fn wants_colour() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// A field of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn toned(tone: Tone, text: impl Into<String>) -> Cell {
        Cell { text: text.into(), tone }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell { text: text.into(), tone: Tone::Plain }
    }
}

/// Rows under headings. Columns are as wide as they have to be; an empty field is shown as `-`.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    /// Columns are never narrower than they were when something was printed before.
    widths: Vec<usize>,
}

impl Table {
    pub(crate) fn new(headings: impl Into<Vec<&'static str>>) -> Table {
        let headings = headings.into();
        Table { widths: vec![0; headings.len()], headings, rows: Vec::new() }
    }

    /// With columns that are at least so wide, for rows that are not known yet.
    pub(crate) fn at_least(mut self, widths: &[usize]) -> Table {
        for (width, least) in self.widths.iter_mut().zip(widths) {
            *width = (*width).max(*least);
        }
        self
    }

    pub(crate) fn row(&mut self, row: impl Into<Vec<Cell>>) {
        self.rows.push(row.into());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Prints it with its headings.
    pub(crate) fn print(mut self) -> anyhow::Result<()> {
        let text = self.text(Palette::stdout(), true);
        print(&text)
    }

    /// What is printed. Rows that were printed are gone afterwards, so that more can follow below the same headings.
    pub(crate) fn text(&mut self, palette: Palette, with_headings: bool) -> String {
        let rows = std::mem::take(&mut self.rows);
        let headings: Vec<Cell> =
            self.headings.iter().map(|heading| Cell::toned(Tone::Bold, *heading)).collect();
        let mut lines = Vec::new();
        if with_headings {
            lines.push(headings);
        }
        lines.extend(rows.into_iter().map(|row| row.into_iter().map(or_dash).collect()));
        for line in &lines {
            for (width, cell) in self.widths.iter_mut().zip(line) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let mut text = String::new();
        for line in lines {
            let last = line.len().saturating_sub(1);
            for (i, (cell, width)) in line.iter().zip(&self.widths).enumerate() {
                text.push_str(&palette.paint(cell.tone, &cell.text));
                if i < last {
                    text.push_str(&" ".repeat(width + 3 - cell.text.chars().count()));
                }
            }
            text.push('\n');
        }
        text
    }
}

fn or_dash(cell: Cell) -> Cell {
    if cell.text.is_empty() { Cell::toned(Tone::Dim, "-") } else { cell }
}

/// Nobody reads standard output any more. Other pipes that break are other errors.
#[derive(Debug)]
pub(crate) struct Closed(pub(crate) io::Error);

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Closed {}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    let written = written.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Closed(error).into(),
        _ => anyhow::Error::from(error),
    });
    written.context("failed to write the answer")
}

/// Says something beside the answer, on standard error. Whoever does not want to hear it misses nothing else.
pub(crate) fn note(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr(), "{}", text.as_ref());
}

/// Says that something is there to be used, or was done. It is so even if nobody reads it.
pub(crate) fn announce(text: impl AsRef<str>) {
    let _ = line(text);
}

/// So many of something: `1 Job`, `2 Jobs`.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Writes a line to standard output.
pub(crate) fn line(text: impl AsRef<str>) -> anyhow::Result<()> {
    print(&format!("{}\n", text.as_ref()))
}

/// Prints a value as JSON.
pub(crate) fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    line(serde_json::to_string_pretty(value).context("failed to write JSON")?)
}

/// Prints a value as YAML.
pub(crate) fn yaml<T: Serialize>(value: &T) -> anyhow::Result<()> {
    print(&serde_saphyr::to_string(value).context("failed to write YAML")?)
}

/// How long ago something was, as short as kubectl says it.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    duration(now.duration_since(since).as_secs().max(0))
}

/// A time span in two units at most, and in one where the second one matters little.
pub(crate) fn duration(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    let two = |unit: i64, name: char, part: i64, part_name: char| {
        let rest = seconds % unit / part;
        let whole = seconds / unit;
        if rest == 0 { format!("{whole}{name}") } else { format!("{whole}{name}{rest}{part_name}") }
    };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two(MINUTE, 'm', 1, 's'),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(HOUR, 'h', MINUTE, 'm'),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(DAY, 'd', HOUR, 'h'),
        _ => format!("{}d", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Palette = Palette { coloured: false };

    #[test]
    fn columns_are_as_wide_as_their_fields() {
        let mut table = Table::new(["NAME", "STATUS"]);
        table.row(["a-long-name".into(), Cell::toned(Tone::Good, "Complete")]);
        table.row(["b".into(), Cell::from("")]);
        assert_eq!(
            table.text(PLAIN, true),
            "NAME          STATUS\na-long-name   Complete\nb             -\n"
        );
        table.row(["c", "Failed"].map(Cell::from));
        assert_eq!(table.text(PLAIN, false), "c             Failed\n", "later rows stay in line");
        let mut empty = Table::new(["NAME", "STATUS"]).at_least(&[11]);
        assert_eq!(empty.text(PLAIN, true), "NAME          STATUS\n", "and under headings that came first");
    }

    #[test]
    fn colour_only_where_it_is_wanted() {
        assert_eq!(PLAIN.paint(Tone::Bad, "no"), "no");
        assert_eq!(Palette { coloured: true }.paint(Tone::Bad, "no"), "\x1b[31mno\x1b[0m");
        assert_eq!(Palette { coloured: true }.paint(Tone::Plain, "no"), "no");
    }

    #[test]
    fn durations_are_short() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3600, "60m"),
            (10_860, "3h1m"),
            (86_400, "24h"),
            (176_400, "2d1h"),
            (864_000, "10d"),
        ] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
