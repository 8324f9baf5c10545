//! Points in time as Go's `time` package reads and Kubernetes writes them.
//!
//! Reading keeps fractions of a second, because Kubernetes compares times as it read them and cuts fractions off only
//! when it writes.

use std::fmt::{self, Write as _};

/// A point in time, in seconds since 1970 and nanoseconds after that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
}

/// The two layouts of times in the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `metav1.Time`. Any fraction may follow the seconds.
    Seconds,
    /// `metav1.MicroTime`. Exactly six decimal places follow the seconds.
    Micros,
}

/// What Go's zero time is: the first second of the year 1.
pub(crate) const ZERO: Time = Time { seconds: -62_135_596_800, nanos: 0 };

impl Layout {
    fn text(self) -> &'static str {
        match self {
            Layout::Seconds => "2006-01-02T15:04:05Z07:00",
            Layout::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }

    /// Reads a time. The error is Go's sentence.
    pub(crate) fn parse(self, text: &str) -> Result<Time, String> {
        Parser { layout: self, text, rest: text.as_bytes() }.time()
    }

    /// Whether a text is, at first sight, what this layout writes: most times were written by it before.
    pub(crate) fn is_plain(self, text: &str) -> bool {
        let form: &[u8] = match self {
            Layout::Seconds => b"dddd-dd-ddTdd:dd:ddZ",
            Layout::Micros => b"dddd-dd-ddTdd:dd:dd.ddddddZ",
        };
        let text = text.as_bytes();
        let fits =
            |(form, byte): (&u8, &u8)| if *form == b'd' { byte.is_ascii_digit() } else { form == byte };
        text.len() == form.len()
            && form.iter().zip(text).all(fits)
            && text[0] != b'0' // the zero time is among the others
            && (*b"01"..=*b"12").contains(&[text[5], text[6]])
            && (*b"01"..=*b"28").contains(&[text[8], text[9]])
            && [text[11], text[12]] <= *b"23"
            && text[14] <= b'5'
            && text[17] <= b'5'
    }

    /// Writes a time as this layout does, in UTC.
    pub(crate) fn format(self, time: Time) -> String {
        let mut text = String::with_capacity(27);
        write(&mut text, format_args!("{}", DateTime(time.seconds)));
        if self == Layout::Micros {
            write(&mut text, format_args!(".{:06}", time.nanos / 1000));
        }
        text.push('Z');
        text
    }
}

impl Time {
    /// Writes all of it: as many decimal places as it needs.
    pub(crate) fn exact(self) -> String {
        let mut text = String::with_capacity(30);
        write(&mut text, format_args!("{}", DateTime(self.seconds)));
        if self.nanos > 0 {
            let places = format!("{:09}", self.nanos);
            write(&mut text, format_args!(".{}", places.trim_end_matches('0')));
        }
        text.push('Z');
        text
    }
}

struct Parser<'a> {
    layout: Layout,
    text: &'a str,
    rest: &'a [u8],
}

impl Parser<'_> {
    fn time(mut self) -> Result<Time, String> {
        let year = match self.rest {
            [a, b, c, d, rest @ ..] if [a, b, c, d].into_iter().all(u8::is_ascii_digit) => {
                let year =
                    [a, b, c, d].into_iter().fold(0, |year, digit| year * 10 + i64::from(digit - b'0'));
                self.rest = rest;
                year
            }
            _ => return Err(self.cannot_parse(self.rest, "2006")),
        };
        self.literal("-")?;
        let month = self.number("01", true)?;
        if month == 0 || month > 12 {
            return Err(self.out_of_range("month"));
        }
        self.literal("-")?;
        let day = self.number("02", true)?;
        self.literal("T")?;
        let hour = self.number("15", false)?;
        if hour > 23 {
            return Err(self.out_of_range("hour"));
        }
        self.literal(":")?;
        let minute = self.number("04", true)?;
        if minute > 59 {
            return Err(self.out_of_range("minute"));
        }
        self.literal(":")?;
        let second = self.number("05", true)?;
        if second > 59 {
            return Err(self.out_of_range("second"));
        }
        let nanos = self.fraction()?;
        let offset = self.zone()?;
        if !self.rest.is_empty() {
            let extra = format!(": extra text: {}", quote(self.rest));
            return Err(self.error(&extra));
        }
        if day == 0 || day > days_in(month, year) {
            return Err(self.out_of_range("day"));
        }
        let seconds =
            days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
        Ok(Time { seconds, nanos })
    }

    fn literal(&mut self, expected: &str) -> Result<(), String> {
        match self.rest.strip_prefix(expected.as_bytes()) {
            Some(rest) => self.rest = rest,
            None => return Err(self.cannot_parse(self.rest, expected)),
        }
        Ok(())
    }

    /// Two digits, or one where Go takes that too.
    fn number(&mut self, element: &str, fixed: bool) -> Result<i64, String> {
        let (number, rest) = match *self.rest {
            [a @ b'0'..=b'9', b @ b'0'..=b'9', ..] => {
                (i64::from(a - b'0') * 10 + i64::from(b - b'0'), &self.rest[2..])
            }
            [a @ b'0'..=b'9', ..] if !fixed => (i64::from(a - b'0'), &self.rest[1..]),
            _ => return Err(self.cannot_parse(self.rest, element)),
        };
        self.rest = rest;
        Ok(number)
    }

    /// Nanoseconds.
    fn fraction(&mut self) -> Result<u32, String> {
        let places = match (self.layout, self.rest) {
            (Layout::Seconds, [b'.' | b',', digits @ ..]) => {
                digits.iter().take_while(|digit| digit.is_ascii_digit()).count()
            }
            (Layout::Seconds, _) => 0,
            (Layout::Micros, [b'.' | b',', digits @ ..]) if digits.len() >= 6 => {
                if !digits[..6].iter().all(u8::is_ascii_digit) {
                    return Err(self.bad_micros(&digits[..6]));
                }
                6
            }
            (Layout::Micros, _) => return Err(self.cannot_parse(self.rest, ".000000")),
        };
        if places == 0 {
            return Ok(0);
        }
        let digits = &self.rest[1..=places];
        self.rest = &self.rest[1 + places..];
        let digit = |place: usize| digits.get(place).map_or(0, |digit| u32::from(digit - b'0'));
        Ok((0..9).fold(0, |nanos, place| nanos * 10 + digit(place)))
    }

    /// Go reads the six places with a sign in front if there is one, and then finds it out of range.
    fn bad_micros(&mut self, places: &[u8]) -> String {
        let value = str::from_utf8(places).ok().and_then(|places| places.parse::<i64>().ok());
        match value {
            Some(value) if value < 0 => {
                self.rest = &self.rest[7..];
                self.out_of_range("fractional second")
            }
            _ => self.cannot_parse(self.rest, ".000000"),
        }
    }

    /// Seconds east of Greenwich.
    fn zone(&mut self) -> Result<i64, String> {
        if let [b'Z', rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(0);
        }
        let start = self.rest;
        let bad = |parser: &Self| parser.cannot_parse(start, "Z07:00");
        let &[sign, a, b, b':', c, d, ref rest @ ..] = self.rest else { return Err(bad(self)) };
        self.rest = rest;
        let two = |tens: u8, ones: u8| {
            (tens.is_ascii_digit() && ones.is_ascii_digit())
                .then(|| i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
        };
        let (hours, minutes) = (two(a, b), two(a, b).and_then(|_| two(c, d)));
        if minutes.is_some_and(|minutes| minutes > 60) {
            return Err(self.out_of_range("time zone offset minute"));
        }
        if hours.is_some_and(|hours| hours > 24) {
            return Err(self.out_of_range("time zone offset hour"));
        }
        let (Some(hours), Some(minutes)) = (hours, minutes) else { return Err(bad(self)) };
        match sign {
            b'+' => Ok(hours * 3600 + minutes * 60),
            b'-' => Ok(-(hours * 3600 + minutes * 60)),
            _ => Err(bad(self)),
        }
    }

    fn cannot_parse(&self, rest: &[u8], element: &str) -> String {
        let layout = quote(self.layout.text().as_bytes());
        self.error(&format!(" as {layout}: cannot parse {} as {}", quote(rest), quote(element.as_bytes())))
    }

    fn out_of_range(&self, what: &str) -> String {
        self.error(&format!(": {what} out of range"))
    }

    fn error(&self, why: &str) -> String {
        format!("parsing time {}{why}", quote(self.text.as_bytes()))
    }
}

/// The quotes of Go's `time` package, which are not those of `%q`.
fn quote(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=0x7f => out.push(char::from(byte)),
            _ => write(&mut out, format_args!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

fn days_in(month: i64, year: i64) -> i64 {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so that the day that a leap
/// year adds is its last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Prints seconds since 1970 as a date and a time of day.
struct DateTime(i64);

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0.div_euclid(86_400) + 719_468, self.0.rem_euclid(86_400));
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        if year < 0 {
            write!(f, "-{:04}", -year)?;
        } else {
            write!(f, "{year:04}")?;
        }
        write!(f, "-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
    }
}

fn write(out: &mut String, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn api_10_reads_rfc_3339_and_writes_utc() {
        for (text, exact, seconds) in [
            ("2024-02-29T12:34:56Z", "2024-02-29T12:34:56Z", "2024-02-29T12:34:56Z"),
            ("2024-02-29T12:34:56.789Z", "2024-02-29T12:34:56.789Z", "2024-02-29T12:34:56Z"),
            ("2024-01-01T00:30:00+01:00", "2023-12-31T23:30:00Z", "2023-12-31T23:30:00Z"),
            ("2023-12-31T23:30:00-00:45", "2024-01-01T00:15:00Z", "2024-01-01T00:15:00Z"),
            ("1969-12-31T23:59:59,000000001Z", "1969-12-31T23:59:59.000000001Z", "1969-12-31T23:59:59Z"),
            ("2024-01-01T1:02:03Z", "2024-01-01T01:02:03Z", "2024-01-01T01:02:03Z"),
            ("0000-03-01T00:00:00Z", "0000-03-01T00:00:00Z", "0000-03-01T00:00:00Z"),
        ] {
            let time = Layout::Seconds.parse(text).expect(text);
            assert_eq!(
                (time.exact().as_str(), Layout::Seconds.format(time).as_str()),
                (exact, seconds),
                "{text}"
            );
        }
        assert_eq!(Layout::Seconds.parse("0001-01-01T00:00:00Z"), Ok(ZERO));
    }

    #[test]
    fn spec_8_25_micro_times_have_six_places() {
        let time = Layout::Micros.parse("2024-05-06T07:08:09.000123+02:00").expect("six places");
        assert_eq!(Layout::Micros.format(time), "2024-05-06T05:08:09.000123Z");
        let error = Layout::Micros.parse("2024-05-06T07:08:09Z").expect_err("no places");
        assert_eq!(
            error,
            r#"parsing time "2024-05-06T07:08:09Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
    }

    #[test]
    fn refuses_in_gos_words() {
        let layout = r#" as "2006-01-02T15:04:05Z07:00": cannot parse "#;
        for (text, why) in [
            ("", format!(r#"{layout}"" as "2006""#)),
            ("soon", format!(r#"{layout}"soon" as "2006""#)),
            ("2024-1-02T00:00:00Z", format!(r#"{layout}"1-02T00:00:00Z" as "01""#)),
            ("2024-01-02 00:00:00Z", format!(r#"{layout}" 00:00:00Z" as "T""#)),
            ("2024-01-02T00:00:00", format!(r#"{layout}"" as "Z07:00""#)),
            ("2024-01-02T00:00:00+0100", format!(r#"{layout}"+0100" as "Z07:00""#)),
            ("2024-13-02T00:00:00Z", ": month out of range".to_owned()),
            ("2024-02-30T00:00:00Z", ": day out of range".to_owned()),
            ("2024-01-02T24:00:00Z", ": hour out of range".to_owned()),
            ("2024-01-02T00:60:00Z", ": minute out of range".to_owned()),
            ("2024-01-02T00:00:60Z", ": second out of range".to_owned()),
            ("2024-01-02T00:00:00+25:00", ": time zone offset hour out of range".to_owned()),
            ("2024-01-02T00:00:00Zé", r#": extra text: "Z\xc3\xa9""#.replace('Z', "")),
        ] {
            let error = Layout::Seconds.parse(text).expect_err(text);
            assert_eq!(error, format!("parsing time {}{why}", quote(text.as_bytes())), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(seconds in -62_167_219_200_i64..253_402_300_800, nanos in 0_u32..1_000_000_000) {
            let time = Time { seconds, nanos };
            prop_assert_eq!(Layout::Seconds.parse(&time.exact()), Ok(time));
        }

        #[test]
        fn what_looks_as_it_is_written_is_so(
            seconds in "[0-2][0-9]{3}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]", places in "[0-9]{6}",
        ) {
            for (layout, text) in [(Layout::Seconds, format!("{seconds}Z")), (Layout::Micros, format!("{seconds}.{places}Z"))] {
                if layout.is_plain(&text) {
                    let time = layout.parse(&text).expect("a time");
                    prop_assert_eq!(layout.format(time), text);
                    prop_assert_ne!(time, ZERO);
                }
            }
        }
    }
}
