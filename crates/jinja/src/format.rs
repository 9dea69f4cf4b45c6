//! Python's two ways to format: `'%s' % value` and `'{}'.format(value)`.
//!
//! Invariant: widths and precisions are bounded, so a short pattern cannot produce a long text.

use crate::arguments::CallArguments;
use crate::error::RenderError;
use crate::meter::TextBuilder;
use crate::runtime::Runtime;
use crate::value::{Text, Value};

/// The widest field and the most decimals.
const MAX_WIDTH: usize = 10_000;
const MAX_PRECISION: usize = 300;

/// How one value is laid out.
#[derive(Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn number(characters: &mut Characters, most: usize) -> Result<Option<usize>, RenderError> {
    let mut value: Option<usize> = None;
    while let Some(digit) = characters.peek().and_then(|c| c.to_digit(10)) {
        characters.next();
        let next = value.unwrap_or(0) * 10 + digit as usize;
        if next > most {
            return Err(RenderError::Limit("width of a formatted value"));
        }
        value = Some(next);
    }
    Ok(value)
}

/// `text % values`.
pub(crate) fn percent(text: &str, values: &Value, runtime: &Runtime) -> Result<Value, RenderError> {
    let meter = &runtime.meter;
    meter.spend_bytes(text.len())?;
    let single = std::slice::from_ref(values);
    let mut rest: &[Value] = match values {
        Value::Tuple(items) => items,
        _ => single,
    };
    let mut out = meter.new_text()?;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character.encode_utf8(&mut [0; 4]))?;
            continue;
        }
        let mut key = None;
        if characters.next_if_eq(&'(').is_some() {
            let mut name = String::new();
            while let Some(c) = characters.next_if(|c| *c != ')') {
                name.push(c);
            }
            characters.next();
            key = Some(name);
        }
        let spec = percent_spec(&mut characters)?;
        let Some(kind) = spec.kind else { return RenderError::failed("incomplete format") };
        if kind == '%' {
            out.push("%")?;
            continue;
        }
        let value = match key {
            Some(key) => match values.entry(&Value::literal(&key), meter)? {
                Some(value) => value,
                None => return RenderError::failed(format!("'{key}'")),
            },
            None => {
                let Some((first, after)) = rest.split_first() else {
                    return RenderError::failed("not enough arguments for format string");
                };
                rest = after;
                first.clone()
            }
        };
        percent_value(&value, spec, kind, runtime, &mut out)?;
    }
    if !rest.is_empty() && !matches!(values, Value::Dict(_) | Value::List(_)) {
        return RenderError::failed("not all arguments converted during string formatting");
    }
    Ok(out.into_value())
}

fn percent_spec(characters: &mut Characters) -> Result<Spec, RenderError> {
    let mut spec = Spec { align: Some('>'), ..Spec::default() };
    while let Some(flag) = characters.next_if(|c| matches!(c, '-' | '+' | ' ' | '0' | '#')) {
        match flag {
            '-' => spec.align = Some('<'),
            '0' => spec.zero = true,
            '#' => spec.alternate = true,
            _ => spec.sign = Some(flag),
        }
    }
    spec.width = number(characters, MAX_WIDTH)?.unwrap_or(0);
    if characters.next_if_eq(&'.').is_some() {
        spec.precision = Some(number(characters, MAX_PRECISION)?.unwrap_or(0));
    }
    spec.kind = characters.next();
    Ok(spec)
}

fn percent_value(
    value: &Value,
    mut spec: Spec,
    kind: char,
    runtime: &Runtime,
    out: &mut TextBuilder,
) -> Result<(), RenderError> {
    match kind {
        's' | 'r' | 'a' => {
            let text = shown(value, kind, runtime)?;
            spec.zero = false;
            spec.kind = None;
            write_text(&text, &spec, '>', out)
        }
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
            let Some(whole) = value.as_int().or_else(|| value.as_float().map(|value| value as i128)) else {
                let found = value.type_name();
                return RenderError::failed(format!(
                    "%{kind} format: a real number is required, not {found}"
                ));
            };
            spec.kind = Some(if matches!(kind, 'i' | 'u') { 'd' } else { kind });
            spec.precision = None;
            write_number(&Value::Int(whole), &spec, out)
        }
        'e' | 'E' | 'f' | 'F' | 'g' | 'G' => {
            let Some(number) = value.as_float() else {
                return RenderError::failed(format!("must be real number, not {}", value.type_name()));
            };
            spec.kind = Some(kind);
            write_number(&Value::Float(number), &spec, out)
        }
        'c' => write_text(&value.to_text(&runtime.meter)?, &Spec { kind: None, ..spec }, '>', out),
        _ => RenderError::failed(format!("unsupported format character '{kind}'")),
    }
}

fn shown(value: &Value, conversion: char, runtime: &Runtime) -> Result<Text, RenderError> {
    if conversion == 's' {
        return value.to_text(&runtime.meter);
    }
    let mut out = runtime.meter.new_text()?;
    value.write_repr(&mut out)?;
    out.into_value().to_text(&runtime.meter)
}

/// `text.format(…)`.
pub(crate) fn braces(text: &str, given: &CallArguments, runtime: &Runtime) -> Result<Value, RenderError> {
    let mut out = runtime.meter.new_text()?;
    let mut next = 0;
    braces_into(text, given, runtime, &mut next, Nested::No, &mut out)?;
    Ok(out.into_value())
}

/// Whether this is the pattern inside a field's specification, which may have no further one.
#[derive(Clone, Copy, PartialEq)]
enum Nested {
    Yes,
    No,
}

fn braces_into(
    text: &str,
    given: &CallArguments,
    runtime: &Runtime,
    next: &mut usize,
    nested: Nested,
    out: &mut TextBuilder,
) -> Result<(), RenderError> {
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        out.push(&rest[..at])?;
        let (brace, after) = rest[at..].split_at(1);
        if after.starts_with(brace) {
            out.push(brace)?;
            rest = &after[1..];
            continue;
        }
        if brace == "}" {
            return RenderError::failed("Single '}' encountered in format string");
        }
        let Some(end) = field_end(after) else {
            return RenderError::failed("expected '}' before end of string");
        };
        let (field, spec) = after[..end].split_once(':').unwrap_or((&after[..end], ""));
        let (field, conversion) = field.split_once('!').unwrap_or((field, ""));
        let value = field_value(field, given, runtime, next)?;
        let mut layout = runtime.meter.new_text()?;
        if nested == Nested::No {
            braces_into(spec, given, runtime, next, Nested::Yes, &mut layout)?;
        }
        let (layout, _reservation) = layout.finish();
        let spec = braces_spec(&layout)?;
        match conversion {
            "" => write_value(&value, &spec, runtime, out)?,
            _ => {
                let conversion = if conversion == "s" { 's' } else { 'r' };
                write_text(&shown(&value, conversion, runtime)?, &spec, '<', out)?;
            }
        }
        rest = &after[end + 1..];
    }
    out.push(rest)
}

/// The place of the brace that closes a field.
fn field_end(text: &str) -> Option<usize> {
    let mut open = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' if open == 0 => return Some(at),
            b'}' => open -= 1,
            _ => {}
        }
    }
    None
}

/// The argument a field names: `0`, `name`, `name.attribute[index]`, or nothing for the next one.
fn field_value(
    field: &str,
    given: &CallArguments,
    runtime: &Runtime,
    next: &mut usize,
) -> Result<Value, RenderError> {
    let head = field.find(['.', '[']).unwrap_or(field.len());
    let (name, mut path) = field.split_at(head);
    let place = if name.is_empty() {
        *next += 1;
        Some(*next - 1)
    } else {
        name.parse().ok()
    };
    let found = match place {
        Some(place) => given.positional.get(place),
        None => given.named.iter().find(|(given, _)| &**given == name).map(|(_, value)| value),
    };
    let Some(mut value) = found.cloned() else {
        return RenderError::failed(match place {
            Some(place) => format!("Replacement index {place} out of range for positional args tuple"),
            None => format!("'{name}'"),
        });
    };
    while !path.is_empty() {
        let (part, after) = if let Some(inside) = path.strip_prefix('[') {
            let Some((part, after)) = inside.split_once(']') else {
                return RenderError::failed("UndefinedReason ']' in format string");
            };
            (part, after)
        } else {
            let inside = &path[1..];
            inside.split_at(inside.find(['.', '[']).unwrap_or(inside.len()))
        };
        let index = part.parse().map_or_else(|_| Value::literal(part), Value::Int);
        value = runtime.index(&value, &index)?;
        path = after;
    }
    Ok(value)
}

fn braces_spec(text: &str) -> Result<Spec, RenderError> {
    let mut spec = Spec::default();
    let is_align = |c: Option<&char>| matches!(c, Some('<' | '>' | '^' | '='));
    let mut characters = text.chars().peekable();
    let mut ahead = characters.clone();
    if let (Some(fill), true) = (ahead.next(), is_align(ahead.peek())) {
        spec.fill = Some(fill);
        spec.align = ahead.next();
        characters = ahead;
    } else if is_align(characters.peek()) {
        spec.align = characters.next();
    }
    spec.sign = characters.next_if(|c| matches!(c, '+' | '-' | ' '));
    spec.alternate = characters.next_if_eq(&'#').is_some();
    spec.zero = characters.next_if_eq(&'0').is_some();
    spec.width = number(&mut characters, MAX_WIDTH)?.unwrap_or(0);
    spec.grouping = characters.next_if(|c| matches!(c, ',' | '_'));
    if characters.next_if_eq(&'.').is_some() {
        spec.precision = number(&mut characters, MAX_PRECISION)?;
        if spec.precision.is_none() {
            return RenderError::failed("Format specifier missing precision");
        }
    }
    spec.kind = characters.next();
    if characters.next().is_some() {
        return RenderError::failed("Invalid format specifier");
    }
    Ok(spec)
}

fn write_value(
    value: &Value,
    spec: &Spec,
    runtime: &Runtime,
    out: &mut TextBuilder,
) -> Result<(), RenderError> {
    match value {
        Value::Int(_) | Value::Float(_) => write_number(value, spec, out),
        Value::Bool(_) if spec.kind.is_some_and(|kind| kind != 's') => write_number(value, spec, out),
        _ => {
            if let Some(kind) = spec.kind.filter(|kind| *kind != 's') {
                let found = value.type_name();
                return RenderError::failed(format!(
                    "Unknown format code '{kind}' for object of type '{found}'"
                ));
            }
            write_text(&value.to_text(&runtime.meter)?, spec, '<', out)
        }
    }
}

fn write_text(text: &str, spec: &Spec, align: char, out: &mut TextBuilder) -> Result<(), RenderError> {
    let text = match spec.precision.and_then(|most| text.char_indices().nth(most)) {
        Some((cut, _)) => &text[..cut],
        None => text,
    };
    let length = if spec.width == 0 { 0 } else { text.chars().count() };
    let missing = spec.width.saturating_sub(length);
    let fill = spec.fill.unwrap_or(' ');
    let before = match spec.align.unwrap_or(align) {
        '<' => 0,
        '^' => missing / 2,
        _ => missing,
    };
    let fill = fill.encode_utf8(&mut [0; 4]).to_owned();
    out.repeat(&fill, before)?;
    out.push(text)?;
    out.repeat(&fill, missing - before)
}

fn write_number(value: &Value, spec: &Spec, out: &mut TextBuilder) -> Result<(), RenderError> {
    let kind = spec.kind.unwrap_or(if matches!(value, Value::Float(_)) { 'r' } else { 'd' });
    let (is_negative, mut digits) = match (kind, value.as_int(), value.as_float()) {
        ('d' | 'n' | 'x' | 'X' | 'o' | 'b', Some(whole), _) => {
            (whole < 0, whole_digits(whole, kind, spec.alternate))
        }
        ('d' | 'n' | 'x' | 'X' | 'o' | 'b', None, _) => {
            return RenderError::failed(format!("Unknown format code '{kind}' for object of type 'float'"));
        }
        (_, _, Some(float)) => {
            let Some(digits) = float_digits(float.abs(), kind, spec) else {
                return RenderError::failed(format!(
                    "Unknown format code '{kind}' for object of type 'float'"
                ));
            };
            (float.is_sign_negative() && !float.is_nan(), digits)
        }
        _ => return RenderError::failed("not a number"),
    };
    if let Some(separator) = spec.grouping {
        digits = grouped(&digits, separator);
    }
    let sign = match (is_negative, spec.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    };
    let padded = spec.zero && spec.align != Some('<') || spec.align == Some('=');
    if padded {
        let fill = spec.fill.unwrap_or(if spec.zero { '0' } else { ' ' }).encode_utf8(&mut [0; 4]).to_owned();
        out.push(sign)?;
        out.repeat(&fill, spec.width.saturating_sub(sign.len() + digits.chars().count()))?;
        return out.push(&digits);
    }
    let spec = Spec { fill: spec.fill, align: spec.align, width: spec.width, ..Spec::default() };
    write_text(&format!("{sign}{digits}"), &spec, '>', out)
}

fn whole_digits(value: i128, kind: char, alternate: bool) -> String {
    let value = value.unsigned_abs();
    match (kind, alternate) {
        ('x', false) => format!("{value:x}"),
        ('x', true) => format!("{value:#x}"),
        ('X', false) => format!("{value:X}"),
        ('X', true) => format!("0X{value:X}"),
        ('o', false) => format!("{value:o}"),
        ('o', true) => format!("{value:#o}"),
        ('b', false) => format!("{value:b}"),
        ('b', true) => format!("{value:#b}"),
        _ => value.to_string(),
    }
}

fn float_digits(value: f64, kind: char, spec: &Spec) -> Option<String> {
    if !value.is_finite() {
        let name = if value.is_nan() { "nan" } else { "inf" };
        return Some(if kind.is_uppercase() { name.to_uppercase() } else { name.to_owned() });
    }
    let precision = spec.precision.unwrap_or(6);
    Some(match kind {
        'f' | 'F' => format!("{value:.precision$}"),
        'e' => exponent(value, precision),
        'E' => exponent(value, precision).to_uppercase(),
        '%' => format!("{:.precision$}%", value * 100.0),
        'r' if spec.precision.is_none() => crate::float::float_repr(value),
        'r' | 'g' => general(value, precision.max(1), spec.alternate),
        'G' => general(value, precision.max(1), spec.alternate).to_uppercase(),
        _ => return None,
    })
}

fn exponent(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// The shorter of plain and scientific with `precision` digits, without trailing zeros.
fn general(value: f64, precision: usize, keeps_zeros: bool) -> String {
    let scientific = exponent(value, precision - 1);
    let (mantissa, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let trim = |digits: &str| {
        if digits.contains('.') && !keeps_zeros {
            digits.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            digits.to_owned()
        }
    };
    if (-4..precision as i32).contains(&power) {
        let decimals = usize::try_from(precision as i32 - 1 - power).unwrap_or(0);
        return trim(&format!("{value:.decimals$}"));
    }
    format!("{}e{}", trim(mantissa), &scientific[mantissa.len() + 1..])
}

/// Puts a separator between the thousands.
fn grouped(digits: &str, separator: char) -> String {
    let whole = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let mut text = String::new();
    for (at, digit) in digits[..whole].chars().enumerate() {
        if at > 0 && (whole - at) % 3 == 0 {
            text.push(separator);
        }
        text.push(digit);
    }
    text + &digits[whole..]
}
