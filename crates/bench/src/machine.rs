//! The machine that the numbers are from, without which they mean little.

use std::{fmt, fs, thread};

use anyhow::Context as _;
use serde::Serialize;

/// What a reader needs in order to compare with another machine.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    cores: usize,
    memory_bytes: u64,
    kernel: String,
    processor: String,
    /// How much else ran in the minute before the benchmark ended, in processes that wanted a core.
    load: f64,
}

impl Machine {
    pub(crate) fn read() -> anyhow::Result<Machine> {
        let file = |path: &str| fs::read_to_string(path).with_context(|| format!("failed to read {path}"));
        let memory = field(&file("/proc/meminfo")?, "MemTotal").and_then(|text| kibibytes(&text));
        Ok(Machine {
            cores: thread::available_parallelism()?.get(),
            memory_bytes: memory.context("no MemTotal in /proc/meminfo")? * 1024,
            kernel: file("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            processor: field(&file("/proc/cpuinfo")?, "model name").unwrap_or_else(|| "unknown".to_owned()),
            load: file("/proc/loadavg")?
                .split(' ')
                .next()
                .and_then(|load| load.parse().ok())
                .unwrap_or_default(),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cores, memory_bytes, kernel, processor, load } = self;
        let gib = memory_bytes >> 30;
        write!(f, "{cores} cores of {processor}, {gib} GiB, Linux {kernel}, load {load}")
    }
}

/// The value of `name : value` in a file of /proc.
pub(crate) fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

/// `16 kB` as a number.
pub(crate) fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        let text = "MemTotal:       24576 kB\nmodel name\t: A: fast one\n";
        assert_eq!(field(text, "MemTotal").and_then(|value| kibibytes(&value)), Some(24576));
        assert_eq!(field(text, "model name").as_deref(), Some("A: fast one"));
        assert_eq!(field(text, "missing"), None);
    }
}
