//! Resource quantities, exact: `100m`, `1.5Gi`, `12e6`.
//!
//! A quantity is a decimal number of any size with at most nine places, and the notation in which it was written. It
//! prints in Kubernetes' canonical form, which keeps the notation and moves the number to the largest suffix that needs
//! no fraction. What a resource is called and how much of it there may be is not known here.

mod fraction;

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource;
use num_bigint::{BigInt, Sign};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An exact amount of some resource.
///
/// Equality and order are those of the number: `1` equals `1000m` and `1e0`.
#[derive(Debug, Clone)]
pub struct Quantity {
    /// The number is `unscaled * 10^exponent`.
    unscaled: BigInt,
    exponent: i32,
    format: Format,
    /// The text it was parsed from, where Kubernetes prints that instead of the canonical form: it takes some spellings
    /// (`+1`, `007`, `1.500`) for canonical at a glance, and clients read them back unchanged.
    text: Option<Box<str>>,
}

/// How a quantity is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// With powers of 1000: `12M`.
    DecimalSi,
    /// With powers of 1024: `12Mi`.
    BinarySi,
    /// With powers of ten: `12e6`.
    DecimalExponent,
}

/// Why a text is no quantity, in Kubernetes' words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ParseError {
    /// There is something after the suffix, or nothing at all.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The number is none.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is none.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// Decimal places that are kept. A smaller amount is rounded up: who asks for something gets something.
const NANO: i32 = -9;
const MILLI: i32 = -3;

/// Digits that a sum or a binary form may need beyond those of its parts. An exponent may say `1e2000000000`; where
/// writing out its zeros would exhaust memory, the smaller summand is nothing beside it.
const MAX_SPREAD: i64 = 10_000;

const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
/// By the power of 1024.
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    /// Nothing.
    pub fn zero() -> Self {
        Self::new(0, 0, Format::DecimalSi)
    }

    /// So many whole units.
    pub fn from_units(units: i64, format: Format) -> Self {
        Self::new(units, 0, format)
    }

    /// So many thousandths.
    pub fn from_millis(millis: i64, format: Format) -> Self {
        Self::new(millis, MILLI, format)
    }

    fn new(unscaled: impl Into<BigInt>, exponent: i32, format: Format) -> Self {
        Quantity { unscaled: unscaled.into(), exponent, format, text: None }
    }

    /// How it is written.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.unscaled.sign() == Sign::NoSign
    }

    /// Whether it is less than nothing.
    pub fn is_negative(&self) -> bool {
        self.unscaled.sign() == Sign::Minus
    }

    /// Whether it is more than nothing.
    pub fn is_positive(&self) -> bool {
        self.unscaled.sign() == Sign::Plus
    }

    /// Whole units, rounded away from zero; `None` if that does not fit.
    pub fn units(&self) -> Option<i64> {
        self.scaled(0)
    }

    /// Thousandths, rounded away from zero; `None` if that does not fit.
    pub fn millis(&self) -> Option<i64> {
        self.scaled(MILLI)
    }

    /// Whole units, rounded away from zero; the nearest representable number if that does not fit.
    pub fn units_saturating(&self) -> i64 {
        self.units().unwrap_or(self.bound())
    }

    /// Thousandths, rounded away from zero; the nearest representable number if that does not fit.
    pub fn millis_saturating(&self) -> i64 {
        self.millis().unwrap_or(self.bound())
    }

    /// The same without places below thousandths, rounded away from zero, as resource lists are stored.
    pub fn rounded_to_millis(&self) -> Quantity {
        if self.exponent >= MILLI { self.clone() } else { self.rounded(MILLI).0 }
    }

    /// Whether it needs no fraction.
    pub fn is_integer(&self) -> bool {
        self.rounded(0).1
    }

    /// The number of units of `10^exponent`, rounded away from zero, if it fits.
    fn scaled(&self, exponent: i32) -> Option<i64> {
        if self.is_zero() {
            return Some(0);
        }
        if self.magnitude() - i64::from(exponent) > 20 {
            return None;
        }
        let (rounded, _) = self.rounded(exponent);
        i64::try_from(rounded.unscaled * power_of_ten(i64::from(rounded.exponent) - i64::from(exponent))).ok()
    }

    /// The largest or smallest `i64`, whichever is nearer.
    fn bound(&self) -> i64 {
        if self.is_negative() { i64::MIN } else { i64::MAX }
    }

    /// The same with an exponent of at least `exponent`, rounded away from zero, and whether that lost nothing.
    fn rounded(&self, exponent: i32) -> (Quantity, bool) {
        let places = i64::from(exponent) - i64::from(self.exponent);
        if places <= 0 || self.is_zero() {
            return (Self::new(self.unscaled.clone(), self.exponent.max(exponent), self.format), true);
        }
        let unit = BigInt::from(if self.is_negative() { -1 } else { 1 });
        if self.magnitude() < i64::from(exponent) {
            return (Self::new(unit, exponent, self.format), false);
        }
        let divisor = power_of_ten(places);
        let (quotient, rest) = (&self.unscaled / &divisor, &self.unscaled % &divisor);
        let exact = rest.sign() == Sign::NoSign;
        let unscaled = if exact { quotient } else { quotient + unit };
        (Self::new(unscaled, exponent, self.format), exact)
    }

    /// The power of ten above the number: 3 for 123, 0 for 0.5. Two numbers of one sign that differ here are already
    /// in order, however far apart their exponents are.
    fn magnitude(&self) -> i64 {
        let digits = self.unscaled.magnitude().to_str_radix(10).len();
        i64::try_from(digits).expect("a number in memory has fewer digits") + i64::from(self.exponent)
    }

    /// Both numbers as multiples of one power of ten.
    fn aligned(&self, other: &Quantity) -> (BigInt, BigInt, i32) {
        let exponent = self.exponent.min(other.exponent);
        let at = |q: &Quantity| &q.unscaled * power_of_ten(i64::from(q.exponent) - i64::from(exponent));
        (at(self), at(other), exponent)
    }

    fn sum(&self, other: &Quantity) -> Quantity {
        let format = if self.is_zero() { other.format } else { self.format };
        let with = |q: &Quantity| Self::new(q.unscaled.clone(), q.exponent, format);
        if other.is_zero() {
            return with(self);
        }
        if self.is_zero() {
            return with(other);
        }
        if i64::from(self.exponent).abs_diff(i64::from(other.exponent)) > MAX_SPREAD.unsigned_abs() {
            return with(if self.magnitude() >= other.magnitude() { self } else { other });
        }
        let (a, b, exponent) = self.aligned(other);
        Self::new(a + b, exponent, format)
    }

    /// The canonical text, without regard to the one it was parsed from.
    fn canonical(&self) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        let limit = Self::from_units(1024, self.format);
        let small = *self < limit && *self > -&limit;
        if self.format == Format::BinarySi && !small && i64::from(self.exponent) <= MAX_SPREAD {
            let (whole, exact) = self.rounded(0);
            if exact {
                return canonical_binary(whole.unscaled * power_of_ten(whole.exponent.into()));
            }
        }
        self.canonical_decimal()
    }

    fn canonical_decimal(&self) -> String {
        let digits = self.unscaled.to_str_radix(10);
        let significant = digits.trim_end_matches('0');
        let zeros = i32::try_from(digits.len() - significant.len()).expect("a text in memory is shorter");
        let exponent = self.exponent.wrapping_add(zeros);
        let padding = exponent.rem_euclid(3);
        let exponent = exponent.wrapping_sub(padding);
        let zeros = &"00"[..usize::try_from(padding).expect("a remainder is not negative")];
        if self.format == Format::DecimalExponent {
            return if exponent == 0 {
                format!("{significant}{zeros}")
            } else {
                format!("{significant}{zeros}e{exponent}")
            };
        }
        // Past `E` Kubernetes has no suffix and prints none: `1000E` reads back as `1`.
        let suffix =
            DECIMAL_SUFFIXES.iter().find(|(_, power)| *power == exponent).map_or("", |(text, _)| *text);
        format!("{significant}{zeros}{suffix}")
    }
}

/// Writes a whole number with the largest power of 1024 that divides it.
fn canonical_binary(mut number: BigInt) -> String {
    let mut power = 0;
    while (&number % 1024_u32) == BigInt::ZERO {
        number /= 1024;
        power += 1;
    }
    format!("{number}{}", BINARY_SUFFIXES.get(power).copied().unwrap_or_default())
}

fn power_of_ten(exponent: i64) -> BigInt {
    BigInt::from(10).pow(u32::try_from(exponent).expect("callers bound the exponent"))
}

/// A text taken apart: a sign, digits before and after the point, and what follows.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    /// Whether any digit was written, a zero included.
    is_number: bool,
}

impl<'a> Parts<'a> {
    /// Accepts a little more than the regular expression promises, as Kubernetes does: `.`, `-` and `Ki` are zero.
    fn split(text: &'a str) -> Result<Self, ParseError> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned.trim_start_matches('0'));
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if text.is_empty() || !exponent.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ParseError::Format);
        }
        let is_number = unsigned.starts_with('0') || !whole.is_empty() || !fraction.is_empty();
        let whole = if whole.is_empty() { "0" } else { whole };
        Ok(Parts { negative, whole, fraction, suffix, is_number })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// The base-two or base-ten exponent that a suffix stands for.
fn interpret(suffix: &str) -> Result<(Format, i32), ParseError> {
    if let Some((_, power)) = DECIMAL_SUFFIXES.iter().find(|(text, _)| *text == suffix) {
        return Ok((Format::DecimalSi, *power));
    }
    if let Some(power) = (1..).zip(&BINARY_SUFFIXES[1..]).find_map(|(n, text)| (*text == suffix).then_some(n))
    {
        return Ok((Format::BinarySi, power * 10));
    }
    let power = suffix.strip_prefix(['e', 'E']).ok_or(ParseError::Suffix)?;
    let power: i64 = power.parse().map_err(|_| ParseError::Suffix)?;
    // Kubernetes keeps the low 32 bits, so `1e4294967296` is one.
    #[expect(clippy::cast_possible_truncation, reason = "truncated as upstream does")]
    Ok((Format::DecimalExponent, power as i32))
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let Parts { negative, whole, fraction, suffix, is_number } = Parts::split(text)?;
        let (format, power) = interpret(suffix)?;
        let digits = format!("{whole}{fraction}");
        let mut unscaled = digits.parse::<BigInt>().map_err(|_| ParseError::Number)?;
        let places = i32::try_from(fraction.len()).map_err(|_| ParseError::Number)?;
        let exponent = if format == Format::BinarySi { 0 } else { power }.wrapping_sub(places);

        // Numbers that upstream handles in 64 bits are kept as they are; others are rounded and bounded.
        let simple = match format {
            Format::BinarySi => {
                fraction.is_empty() && whole.len() + usize::try_from(power * 3 / 10).unwrap_or(0) <= 14
            }
            Format::DecimalSi | Format::DecimalExponent => digits.len() <= 18 && exponent >= NANO,
        };
        let kept = simple
            && match format {
                Format::BinarySi => &unscaled % 8_u32 != BigInt::ZERO,
                Format::DecimalSi | Format::DecimalExponent => {
                    exponent % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
                }
            };
        if format == Format::BinarySi {
            unscaled <<= power;
        }
        let mut quantity = Quantity::new(if negative { -unscaled } else { unscaled }, exponent, format);
        if !simple {
            if !is_number {
                return Err(ParseError::Number);
            }
            quantity = quantity.rounded(NANO).0;
            if format == Format::BinarySi {
                quantity = quantity.bounded();
            }
        }
        Ok(Quantity { text: kept.then(|| text.into()), ..quantity })
    }
}

impl Quantity {
    /// Binary amounts end at the largest `i64`, and below one they are written in decimals.
    fn bounded(self) -> Quantity {
        let (limit, one) = (Self::from_units(i64::MAX, self.format), Self::from_units(1, self.format));
        let size = if self.is_negative() { -&self } else { self.clone() };
        if size > limit {
            return if self.is_negative() { -&limit } else { limit };
        }
        if size < one && !self.is_zero() { Quantity { format: Format::DecimalSi, ..self } } else { self }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => f.pad(text),
            None => f.pad(&self.canonical()),
        }
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::zero()
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_sign = self.unscaled.sign().cmp(&other.unscaled.sign());
        if by_sign != Ordering::Equal || self.is_zero() || self.exponent == other.exponent {
            return by_sign.then_with(|| self.unscaled.cmp(&other.unscaled));
        }
        let by_magnitude = self.magnitude().cmp(&other.magnitude());
        if by_magnitude != Ordering::Equal {
            return if self.is_negative() { by_magnitude.reverse() } else { by_magnitude };
        }
        let (a, b, _) = self.aligned(other);
        a.cmp(&b)
    }
}

impl Neg for &Quantity {
    type Output = Quantity;

    fn neg(self) -> Quantity {
        Quantity::new(-&self.unscaled, self.exponent, self.format)
    }
}

/// The sum keeps the notation of the first summand unless that is zero.
impl Add for &Quantity {
    type Output = Quantity;

    fn add(self, other: &Quantity) -> Quantity {
        self.sum(other)
    }
}

impl Sub for &Quantity {
    type Output = Quantity;

    fn sub(self, other: &Quantity) -> Quantity {
        self.sum(&-other)
    }
}

impl AddAssign<&Quantity> for Quantity {
    fn add_assign(&mut self, other: &Quantity) {
        *self = self.sum(other);
    }
}

impl SubAssign<&Quantity> for Quantity {
    fn sub_assign(&mut self, other: &Quantity) {
        *self = self.sum(&-other);
    }
}

impl TryFrom<&resource::Quantity> for Quantity {
    type Error = ParseError;

    fn try_from(wire: &resource::Quantity) -> Result<Self, ParseError> {
        wire.0.parse()
    }
}

impl From<&Quantity> for resource::Quantity {
    fn from(quantity: &Quantity) -> Self {
        resource::Quantity(quantity.to_string())
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// From a string, or from a number as many people write `cpu: 2`.
impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.trim().parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests;
