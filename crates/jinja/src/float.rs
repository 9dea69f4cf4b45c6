//! Floats as Python writes and rounds them.

/// `repr` of a float: the shortest digits that read back the same, with an exponent below 1e-4 and from 1e16 on.
pub(crate) fn float_repr(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..16).contains(&exponent) {
        let plain = format!("{value}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Python's rounding to even at `digits` decimals.
pub(crate) fn round(value: f64, digits: i32) -> f64 {
    if (0..=300).contains(&digits) {
        return format!("{value:.*}", digits as usize).parse().unwrap_or(value);
    }
    let scale = 10f64.powi(digits);
    let rounded = (value * scale).round_ties_even() / scale;
    if rounded.is_finite() { rounded } else { value }
}
