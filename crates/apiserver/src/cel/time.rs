//! Durations and timestamps, read and written as Go does.

use jiff::{
    Timestamp, Zoned,
    civil::Date,
    tz::{Offset, TimeZone},
};

const NANOS: f64 = 1e9;

/// Reads `1h2.5m` as Go's `time.ParseDuration` does, in nanoseconds.
pub fn duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (digits, tail) = rest.split_at(number);
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()?.into() };
        total = total.checked_add(whole.checked_mul(scale)?)?;
        let kept = &fraction[..fraction.len().min(18)];
        if !kept.is_empty() {
            let power = 10_i128.pow(u32::try_from(kept.len()).ok()?);
            total = total.checked_add(kept.parse::<i128>().ok()? * scale / power)?;
        }
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Writes a duration as CEL's `string()` does: in seconds.
pub(super) fn print_duration(nanos: i64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "Go prints the same double")]
    let seconds = nanos as f64 / NANOS;
    format!("{seconds}s")
}

/// Reads an RFC 3339 time.
pub fn timestamp(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let shaped = bytes.len() >= 20 && bytes[10] == b'T' && bytes[13] == b':' && bytes[16] == b':';
    let zoned = text.ends_with('Z') || (bytes.len() > 6 && matches!(bytes[bytes.len() - 6], b'+' | b'-'));
    if shaped && zoned { text.parse().ok() } else { None }
}

/// Reads a day as the instant at which it begins in UTC.
pub fn date(text: &str) -> Option<Timestamp> {
    let shaped = text.len() == 10 && text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    let date: Date = if shaped { text.parse().ok()? } else { return None };
    date.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

/// The time in a zone: a name of the time zone database, or an offset like `-08:00`; UTC if none is given.
pub(super) fn in_zone(at: Timestamp, zone: Option<&str>) -> Option<Zoned> {
    let zone = match zone {
        None | Some("" | "UTC") => TimeZone::UTC,
        Some(zone) if zone.contains(':') => {
            let (sign, rest) = match zone.strip_prefix('-') {
                Some(rest) => (-1, rest),
                None => (1, zone.strip_prefix('+').unwrap_or(zone)),
            };
            let (hours, minutes) = rest.split_once(':')?;
            let seconds = hours
                .parse::<i32>()
                .ok()?
                .checked_mul(3600)?
                .checked_add(minutes.parse::<i32>().ok()? * 60)?;
            TimeZone::fixed(Offset::from_seconds(sign * seconds).ok()?)
        }
        Some(zone) => TimeZone::get(zone).ok()?,
    };
    Some(at.to_zoned(zone))
}

/// Go's `time.Duration` between two instants, if it fits.
pub(super) fn between(later: Timestamp, earlier: Timestamp) -> Option<i64> {
    i64::try_from(later.as_nanosecond() - earlier.as_nanosecond()).ok()
}

/// An instant, moved.
pub(super) fn moved(at: Timestamp, nanos: i128) -> Option<Timestamp> {
    Timestamp::from_nanosecond(at.as_nanosecond().checked_add(nanos)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_go_reads_them() {
        for (text, nanos) in [
            ("1h30m", Some(5_400_000_000_000)),
            ("-1.5s", Some(-1_500_000_000)),
            (".5s", Some(500_000_000)),
            ("0", Some(0)),
            ("1us", Some(1000)),
            ("", None),
            ("1", None),
            ("1d", None),
            (".s", None),
            ("9999999h", None),
        ] {
            assert_eq!(duration(text), nanos, "{text}");
        }
        assert_eq!(print_duration(5_400_000_000_000), "5400s");
        assert_eq!(print_duration(1_500_000), "0.0015s");
    }

    #[test]
    fn times_as_go_reads_them() {
        assert!(
            timestamp("2026-01-02T03:04:05Z").is_some()
                && timestamp("2026-01-02T03:04:05.123+01:00").is_some()
        );
        assert!(timestamp("2026-01-02").is_none() && timestamp("2026-01-02 03:04:05Z").is_none());
        assert!(date("2026-01-02").is_some() && date("2026-13-02").is_none());
        let at = timestamp("2026-01-02T03:04:05Z").expect("a time");
        assert_eq!(in_zone(at, Some("-08:00")).expect("a zone").hour(), 19);
    }
}
