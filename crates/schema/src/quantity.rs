//! Quantities in their canonical form.

use std::borrow::Cow;

use types::Quantity;

/// The canonical form of a quantity. The error is Kubernetes' sentence.
pub(crate) fn canonical(text: &str) -> Result<Cow<'_, str>, String> {
    if is_plain(text) {
        return Ok(Cow::Borrowed(text));
    }
    let quantity: Quantity = text.parse().map_err(|error: types::quantity::ParseError| error.to_string())?;
    Ok(Cow::Owned(quantity.to_string()))
}

/// Whether a quantity is canonical at first sight, as nearly all are: a number below 1000 and a suffix.
fn is_plain(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let known = matches!(suffix, "" | "m" | "k" | "M" | "G" | "T" | "Ki" | "Mi" | "Gi" | "Ti");
    known && (1..=3).contains(&digits) && !number.starts_with('0')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn api_09_quantities_are_canonical() {
        for (text, written) in
            [("1", "1"), ("0.5", "500m"), ("1000m", "1"), ("1024Ki", "1Mi"), ("0", "0"), ("1e3", "1e3")]
        {
            assert_eq!(canonical(text).as_deref(), Ok(written), "{text}");
        }
        for text in ["", "one", "1 Mi", "1Zi"] {
            assert!(canonical(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn plain_quantities_are_canonical(text in "[0-9]{1,4}(m|k|M|G|T|Ki|Mi|Gi|Ti)?") {
            let quantity: Quantity = text.parse().expect("a quantity");
            prop_assert_eq!(canonical(&text), Ok(Cow::Owned(quantity.to_string())));
        }
    }
}
