//! Amounts of one resource, as quota counts them.
//!
//! An [`Amount`] is a whole number of the resource's smallest counted unit: thousandths of a core for `cpu`, and one
//! (byte, device, pod) for everything else. Which unit that is, is known where a quantity enters or leaves
//! ([`Amount::from_quantity`], [`Amount::to_quantity`]) and nowhere between.

use std::{fmt, iter::Sum, ops};

use crate::quantity::{Format, Quantity};

/// The resource whose amounts are counted in thousandths.
const CPU: &str = "cpu";

/// From here on cores are without limit: Kueue compares whole cores, so the last thousand does not count.
const MOST_MILLICORES: i64 = i64::MAX / 1000 * 1000;

/// How much of one resource there is, is used or is asked for.
///
/// Arithmetic saturates: a quota as large as an `i64` can hold means "no limit" and stays that in every sum, so adding
/// up the quotas of a cohort can never wrap around to a small or negative number.
///
/// ```
/// use types::Amount;
/// assert_eq!(Amount::new(3) + Amount::new(4), Amount::new(7));
/// assert_eq!(Amount::UNLIMITED - Amount::new(4), Amount::UNLIMITED);
/// assert!(Amount::new(i64::MAX - 1) < Amount::UNLIMITED);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Amount(i64);

impl Amount {
    /// Nothing at all.
    pub const ZERO: Amount = Amount(0);
    /// More than anybody can ask for.
    pub const UNLIMITED: Amount = Amount(i64::MAX);

    /// So many of the smallest counted unit; `i64::MAX` of them are [`Amount::UNLIMITED`].
    pub const fn new(units: i64) -> Amount {
        Amount(units)
    }

    /// The number of smallest counted units; `i64::MAX` if there is no limit.
    pub const fn units(self) -> i64 {
        self.0
    }

    /// Whether this is more than anybody can ask for.
    pub const fn is_unlimited(self) -> bool {
        self.0 == i64::MAX
    }

    /// `self`, or nothing where `self` is a debt.
    pub fn or_zero(self) -> Amount {
        self.max(Amount::ZERO)
    }

    /// So many times `self`, as for the pods of a pod set.
    pub const fn times(self, count: i64) -> Amount {
        Amount(self.0.saturating_mul(count))
    }

    /// The amount that a quantity of `resource` stands for: `cpu` in thousandths, everything else in whole units,
    /// both rounded away from zero. What is too large to count is [`Amount::UNLIMITED`].
    ///
    /// ```
    /// use types::{Amount, Quantity};
    /// let quantity: Quantity = "1500m".parse().unwrap();
    /// assert_eq!(Amount::from_quantity("cpu", &quantity), Amount::new(1500));
    /// assert_eq!(Amount::from_quantity("example.com/gpu", &quantity), Amount::new(2));
    /// ```
    pub fn from_quantity(resource: &str, quantity: &Quantity) -> Amount {
        if resource != CPU {
            return Amount(quantity.units_saturating());
        }
        let millis = quantity.millis_saturating();
        if millis >= MOST_MILLICORES { Amount::UNLIMITED } else { Amount(millis) }
    }

    /// The amount that somebody uses, by the same units. Only quotas are without limit: two who use nearly all that can be
    /// counted do not use it up (API-5).
    ///
    /// ```
    /// use types::{Amount, Quantity};
    /// let quantity: Quantity = "9223372036854775".parse().unwrap();
    /// assert!(Amount::from_quantity("cpu", &quantity).is_unlimited());
    /// assert!(!Amount::used("cpu", &quantity).is_unlimited());
    /// ```
    pub fn used(resource: &str, quantity: &Quantity) -> Amount {
        Amount(if resource == CPU { quantity.millis_saturating() } else { quantity.units_saturating() })
    }

    /// The quantity that says this amount of `resource` on the wire: bytes of memory, ephemeral storage and huge pages
    /// with binary suffixes, everything else with decimal ones.
    pub fn to_quantity(self, resource: &str) -> Quantity {
        if resource == CPU {
            return Quantity::from_millis(self.0, Format::DecimalSi);
        }
        let format = if is_counted_in_bytes(resource) { Format::BinarySi } else { Format::DecimalSi };
        Quantity::from_units(self.0, format)
    }

    /// This amount of `resource` as a message says it, for example `1500m`, `2Gi` or `<unlimited>`.
    pub fn text(self, resource: &str) -> String {
        if self.is_unlimited() { self.to_string() } else { self.to_quantity(resource).to_string() }
    }
}

/// Whether a resource's quantities are written with binary suffixes.
fn is_counted_in_bytes(resource: &str) -> bool {
    matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-")
}

impl ops::Add for Amount {
    type Output = Amount;

    fn add(self, other: Amount) -> Amount {
        if self.is_unlimited() || other.is_unlimited() {
            Amount::UNLIMITED
        } else {
            Amount(self.0.saturating_add(other.0))
        }
    }
}

impl ops::Sub for Amount {
    type Output = Amount;

    /// Without limit minus without limit is zero; a limited amount minus one without limit is a debt that no quota
    /// can pay.
    fn sub(self, other: Amount) -> Amount {
        match (self.is_unlimited(), other.is_unlimited()) {
            (true, true) => Amount::ZERO,
            (true, false) => Amount::UNLIMITED,
            (false, true) => Amount(i64::MIN),
            (false, false) => Amount(self.0.saturating_sub(other.0)),
        }
    }
}

impl ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        *self = *self + other;
    }
}

impl ops::SubAssign for Amount {
    fn sub_assign(&mut self, other: Amount) {
        *self = *self - other;
    }
}

impl Sum for Amount {
    fn sum<I: Iterator<Item = Amount>>(amounts: I) -> Amount {
        amounts.fold(Amount::ZERO, ops::Add::add)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() { f.write_str("<unlimited>") } else { self.0.fmt(f) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BIG: Amount = Amount::new(i64::MAX - 1);

    #[test]
    fn api_5_arithmetic_saturates_and_unlimited_stays_unlimited() {
        assert_eq!(Amount::UNLIMITED + Amount::new(-5), Amount::UNLIMITED);
        assert_eq!(Amount::new(-5) + Amount::UNLIMITED, Amount::UNLIMITED);
        assert_eq!(Amount::UNLIMITED - Amount::UNLIMITED, Amount::ZERO);
        assert_eq!(Amount::UNLIMITED - BIG, Amount::UNLIMITED);
        assert_eq!(BIG - Amount::UNLIMITED, Amount::new(i64::MIN));
        assert_eq!(BIG + BIG, Amount::UNLIMITED);
        assert_eq!(Amount::new(i64::MIN) - Amount::new(1), Amount::new(i64::MIN));
        assert_eq!(BIG.times(3), Amount::UNLIMITED);
        assert_eq!([Amount::new(1), Amount::new(2)].into_iter().sum::<Amount>(), Amount::new(3));
    }

    #[test]
    fn api_5_quantities_become_whole_units() {
        let check = |resource: &str, text: &str, want: Amount| {
            let quantity: Quantity = text.parse().expect("the table holds quantities");
            assert_eq!(Amount::from_quantity(resource, &quantity), want, "{text} of {resource}");
        };
        check("cpu", "2", Amount::new(2000));
        check("cpu", "100u", Amount::new(1));
        check("memory", "1Gi", Amount::new(1 << 30));
        check("memory", "1500m", Amount::new(2));
        check("cpu", "1E", Amount::UNLIMITED);
        check("cpu", "9223372036854775", Amount::UNLIMITED);
        check("cpu", "9223372036854774", Amount::new(9_223_372_036_854_774_000));
        check("pods", "9223372036854775807", Amount::UNLIMITED);
        check("pods", "9223372036854775806", BIG);
    }

    #[test]
    fn api_6_amounts_are_written_as_kueue_writes_them() {
        let check =
            |resource: &str, units: i64, want: &str| assert_eq!(Amount::new(units).text(resource), want);
        check("cpu", 1500, "1500m");
        check("cpu", 3000, "3");
        check("memory", 3 << 30, "3Gi");
        check("memory", 1000, "1k");
        check("ephemeral-storage", 2048, "2Ki");
        check("hugepages-2Mi", 2 << 20, "2Mi");
        check("example.com/gpu", 8, "8");
        check("example.com/gpu", 2000, "2k");
        check("pods", i64::MAX, "<unlimited>");
    }

    proptest! {
        #[test]
        fn what_was_added_can_be_taken_away(a in -1_000_000_i64..1_000_000, b in -1_000_000_i64..1_000_000) {
            prop_assert_eq!(Amount::new(a) + Amount::new(b) - Amount::new(b), Amount::new(a));
        }

        #[test]
        fn a_written_amount_reads_back(units in 0_i64..1 << 50, resource in prop::sample::select(vec!["cpu", "memory", "pods"])) {
            let amount = Amount::new(units);
            prop_assert_eq!(Amount::from_quantity(resource, &amount.to_quantity(resource)), amount);
        }
    }
}
