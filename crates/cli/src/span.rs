//! Time spans as people type them.

use std::time::Duration;

/// Reads `90`, `90s`, `5m`, `2h`, `1d` and sums of them, such as `1h30m`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time span: write for example 90s, 5m or 1h30m");
    let (mut seconds, mut number) = (0_u64, None::<u64>);
    for character in text.chars() {
        if let Some(digit) = character.to_digit(10) {
            let more = number.unwrap_or(0).checked_mul(10).and_then(|it| it.checked_add(u64::from(digit)));
            number = Some(more.ok_or_else(wrong)?);
            continue;
        }
        let unit = match character {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(wrong()),
        };
        let part = number.take().ok_or_else(wrong)?.checked_mul(unit);
        seconds = part.and_then(|part| part.checked_add(seconds)).ok_or_else(wrong)?;
    }
    match number {
        None if text.is_empty() => Err(wrong()),
        // Digits without a unit are seconds, and can be nothing but all there is.
        Some(_) if text.contains(|character: char| !character.is_ascii_digit()) => Err(wrong()),
        rest => Ok(Duration::from_secs(seconds.saturating_add(rest.unwrap_or(0)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (text, seconds) in
            [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("1d", 86_400), ("0", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "m", "5x", "1h30", "-1", "99999999999999999999"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
