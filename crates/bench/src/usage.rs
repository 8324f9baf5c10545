//! What processes have used of the machine.

use std::{fs, ops::Sub, time::Duration};

use anyhow::Context as _;

use crate::machine::{field, kibibytes};

/// Processor time of some processes, since they started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cpu(pub(crate) Duration);

impl Cpu {
    /// Of the processes with these ids together.
    pub(crate) fn of(ids: &[u32]) -> anyhow::Result<Cpu> {
        let mut ticks = 0;
        for id in ids {
            let stat = fs::read_to_string(format!("/proc/{id}/stat"))
                .with_context(|| format!("process {id} is gone"))?;
            ticks += ticks_in(&stat).with_context(|| format!("no processor time in {stat}"))?;
        }
        Ok(Cpu(Duration::from_micros(ticks * 1_000_000 / rustix::param::clock_ticks_per_second())))
    }
}

impl Sub for Cpu {
    type Output = Duration;

    fn sub(self, earlier: Cpu) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Memory that some processes hold together, in bytes. What they share with others is counted in parts.
pub(crate) fn memory_of(ids: &[u32]) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for id in ids {
        let path = format!("/proc/{id}/smaps_rollup");
        let text = fs::read_to_string(&path).with_context(|| format!("process {id} is gone"))?;
        let kept = field(&text, "Pss").and_then(|text| kibibytes(&text));
        bytes += kept.with_context(|| format!("no memory in {path}"))? * 1024;
    }
    Ok(bytes)
}

/// How long ago the first of some processes started.
pub(crate) fn oldest(ids: &[u32]) -> anyhow::Result<Duration> {
    let up = fs::read_to_string("/proc/uptime").context("failed to read how long the machine is up")?;
    let up = up.split(' ').next().and_then(|seconds| seconds.parse::<f64>().ok());
    let up = up.map(Duration::from_secs_f64).context("no time in /proc/uptime")?;
    let mut oldest = Duration::ZERO;
    for id in ids {
        let stat = fs::read_to_string(format!("/proc/{id}/stat"))
            .with_context(|| format!("process {id} is gone"))?;
        let started = started_in(&stat).with_context(|| format!("no start in {stat}"))?;
        let started = Duration::from_micros(started * 1_000_000 / rustix::param::clock_ticks_per_second());
        oldest = oldest.max(up.saturating_sub(started));
    }
    Ok(oldest)
}

/// When a process started, in ticks since the machine did: the 22nd field.
fn started_in(stat: &str) -> Option<u64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

/// The most memory that a process had at once, in bytes.
pub(crate) fn peak_memory(id: u32) -> anyhow::Result<u64> {
    let status =
        fs::read_to_string(format!("/proc/{id}/status")).with_context(|| format!("process {id} is gone"))?;
    let peak = field(&status, "VmHWM").and_then(|text| kibibytes(&text));
    Ok(peak.with_context(|| format!("no peak in {status}"))? * 1024)
}

/// User and system time, the 14th and 15th field. The second, the name of the program, may contain anything but ends with
/// the last parenthesis.
fn ticks_in(stat: &str) -> Option<u64> {
    let mut rest = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let (user, system) = (rest.next()?.parse::<u64>().ok()?, rest.next()?.parse::<u64>().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_a_process() {
        let stat = "42 (a) name) S 1 42 42 0 -1 4194560 9 0 0 0 17 5 0 0 20 0 1 0 8 0 0";
        assert_eq!(ticks_in(stat), Some(22));
        assert_eq!(ticks_in("42 (short) S 1"), None);
        assert_eq!(started_in(stat), Some(8));
        assert!(oldest(&[std::process::id()]).expect("our own process") < Duration::from_secs(3600));
    }

    #[test]
    fn memory_of_a_process() {
        let bytes = memory_of(&[std::process::id()]).expect("our own process");
        assert!(bytes > 100_000, "{bytes}");
    }

    #[test]
    fn a_process_that_works_uses_time() {
        let me = [std::process::id()];
        let before = Cpu::of(&me).expect("our own process");
        let mut sum = 0_u64;
        while Cpu::of(&me).expect("our own process") == before {
            sum = (0..10_000_u64).fold(sum, |sum, next| sum.wrapping_mul(31) ^ next);
        }
        assert!(Cpu::of(&me).expect("our own process") - before > Duration::ZERO, "{sum}");
    }
}
