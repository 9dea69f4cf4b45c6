//! Arithmetic on numbers, as Python does it.

use crate::ast::Operator;
use crate::error::RenderError;
use crate::value::Value;

/// The operators on two numbers; none of them is text.
pub(crate) fn compute(operator: Operator, left: &Value, right: &Value) -> Result<Value, RenderError> {
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int()) {
        return compute_ints(operator, a, b);
    }
    let (Some(a), Some(b)) = (left.as_float(), right.as_float()) else {
        left.defined()?;
        right.defined()?;
        let (left, right) = (left.type_name(), right.type_name());
        let symbol = symbol(operator);
        return RenderError::failed(format!(
            "unsupported operand type(s) for {symbol}: '{left}' and '{right}'"
        ));
    };
    let by_zero = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Modulo) && b == 0.0;
    if by_zero {
        return RenderError::failed("float division by zero");
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

fn compute_ints(operator: Operator, a: i128, b: i128) -> Result<Value, RenderError> {
    let divides = matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Modulo);
    if divides && b == 0 {
        return RenderError::failed(if operator == Operator::Divide {
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
    computed.map(Value::Int).ok_or(RenderError::Limit("size of an integer"))
}

fn floor_divide(a: i128, b: i128) -> Option<i128> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

pub(crate) fn symbol(operator: Operator) -> &'static str {
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
