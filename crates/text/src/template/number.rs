//! Numbers as Python writes and computes them.

use super::ast::Operator;
use super::meter::Fault;
use super::value::Value;

/// `repr` of a float: the shortest digits that read back the same, with an exponent below 1e-4 and from 1e16 on.
pub(super) fn float_repr(value: f64) -> String {
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
pub(super) fn round(value: f64, digits: i32) -> f64 {
    if (0..=300).contains(&digits) {
        return format!("{value:.*}", digits as usize).parse().unwrap_or(value);
    }
    let scale = 10f64.powi(digits);
    let rounded = (value * scale).round_ties_even() / scale;
    if rounded.is_finite() { rounded } else { value }
}

/// The operators on two numbers; none of them is text.
pub(super) fn compute(operator: Operator, left: &Value, right: &Value) -> Result<Value, Fault> {
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        return compute_ints(operator, a, b);
    }
    let (Some(a), Some(b)) = (left.as_float(), right.as_float()) else {
        left.defined()?;
        right.defined()?;
        let (left, right) = (left.type_name(), right.type_name());
        let symbol = symbol(operator);
        return Fault::failed(format!("unsupported operand type(s) for {symbol}: '{left}' and '{right}'"));
    };
    let by_zero = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Modulo) && b == 0.0;
    if by_zero {
        return Fault::failed("float division by zero");
    }
    Ok(Value::Float(match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
        Operator::FloorDivide => (a / b).floor(),
        Operator::Modulo => {
            let rest = a % b;
            if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
        }
        Operator::Power => a.powf(b),
    }))
}

fn compute_ints(operator: Operator, a: i128, b: i128) -> Result<Value, Fault> {
    let divides = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Modulo);
    if divides && b == 0 {
        return Fault::failed(if operator == Operator::Divide {
            "division by zero"
        } else {
            "integer division or modulo by zero"
        });
    }
    let computed = match operator {
        Operator::Divide => return Ok(Value::Float(a as f64 / b as f64)),
        Operator::Power if b < 0 => return Ok(Value::Float((a as f64).powf(b as f64))),
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        Operator::FloorDivide => floor_divide(a, b),
        Operator::Modulo => floor_divide(a, b).map(|quotient| a.wrapping_sub(quotient.wrapping_mul(b))),
        Operator::Power => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
    };
    computed.map(Value::Int).ok_or(Fault::Limit("size of an integer"))
}

fn floor_divide(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

pub(super) fn symbol(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        Operator::Divide => "/",
        Operator::FloorDivide => "//",
        Operator::Modulo => "%",
        Operator::Power => "** or pow()",
    }
}
