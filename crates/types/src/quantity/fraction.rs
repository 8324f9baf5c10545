//! Fractions of quantities, and quantities as numbers with a point: for what fades with time.

use num_bigint::BigInt;

use super::{Format, NANO, Quantity, power_of_ten};

impl Quantity {
    /// So many times as much, in decimals and without what is below billionths, so that what is halved again and again is
    /// nothing in the end. A factor that is not finite gives nothing.
    ///
    /// ```
    /// use types::Quantity;
    /// let half = |text: &str| text.parse::<Quantity>().unwrap().times(0.5).to_string();
    /// assert_eq!((half("1").as_str(), half("1Gi").as_str(), half("1n").as_str()), ("500m", "536870912", "0"));
    /// ```
    pub fn times(&self, factor: f64) -> Quantity {
        if !factor.is_finite() {
            return Quantity::zero();
        }
        // The shortest decimal that means this number and no other, as Kueue takes it.
        let text = factor.to_string();
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        let digits: BigInt = format!("{whole}{fraction}").parse().expect("a finite number prints its digits");
        let places = i32::try_from(fraction.len()).expect("a number has few places");
        let (unscaled, exponent) = (&self.unscaled * digits, self.exponent.saturating_sub(places));
        if exponent >= NANO {
            return Self::new(unscaled, exponent, Format::DecimalSi);
        }
        let below = i64::from(NANO) - i64::from(exponent);
        Self::new(unscaled / power_of_ten(below), NANO, Format::DecimalSi)
    }

    /// The nearest number with a point.
    pub fn to_f64(&self) -> f64 {
        let text = format!("{}e{}", self.unscaled, self.exponent);
        text.parse().expect("digits and an exponent are a number")
    }
}
