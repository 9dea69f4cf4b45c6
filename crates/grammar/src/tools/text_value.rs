//! Strings that stand bare between tags or markers: which texts a schema allows.

use serde_json::{Map, Value};

use crate::lark;

/// Any text.
pub(super) const ANY_TEXT: &str = "/(.|\\n)*/";

/// Days that every month has, then those of longer months, then those of leap years.
macro_rules! date {
    () => {
        "[12][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|[12][0-9]{3}-(0[13-9]|1[0-2])-(29|30)|[12][0-9]{3}-(0[13578]|1[02])-31|[12][0-9](0[48]|[2468][048]|[13579][26])-02-29"
    };
}

macro_rules! time {
    () => {
        r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+\-]([01][0-9]|2[0-3]):[0-5][0-9])"
    };
}

/// The expressions of the formats that [`crate::schema`] supports.
const FORMATS: &[(&str, &str)] = &[
    ("date", date!()),
    ("time", time!()),
    ("date-time", concat!("(", date!(), ")T", time!())),
    (
        "duration",
        r"P([0-9]{1,4}W|([0-9]{1,4}Y)?([0-9]{1,4}M)?[0-9]{1,4}D|T[0-9]{1,4}[HMS]|[0-9]{1,4}DT[0-9]{1,4}[HMS])",
    ),
    ("email", r"[A-Za-z0-9_+\-]{1,32}(\.[A-Za-z0-9_+\-]{1,32}){0,3}@[a-z0-9]{1,63}(\.[a-z]{2,12}){1,3}"),
    ("hostname", r"[a-z0-9]([a-z0-9\-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9\-]{0,61}[a-z0-9])?){0,3}"),
    (
        "ipv4",
        r"((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])",
    ),
    ("ipv6", r"([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|([0-9a-f]{1,4}:){1,6}:[0-9a-f]{1,4}|::([0-9a-f]{1,4})?"),
    ("uuid", r"[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"),
    (
        "uri",
        r"[a-z][a-z0-9+.\-]{1,12}://[a-z0-9.\-]{1,63}(:[0-9]{1,4})?(/[A-Za-z0-9._~\-]{0,64}){0,8}(\?[A-Za-z0-9._~=&\-]{0,64})?",
    ),
];

/// Whether a schema is one of strings.
pub(super) fn is_string(schema: &Map<String, Value>) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("string")
}

/// The expression of a terminal for the texts that the schema of a string allows.
pub(super) fn expression(schema: &Map<String, Value>) -> String {
    let mut limits = Vec::new();
    if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
        limits.push(searched(pattern));
    }
    let length = |key| schema.get(key).and_then(Value::as_u64);
    match (length("minLength").unwrap_or(0), length("maxLength")) {
        (0, None) => {}
        (least, None) => limits.push(format!("/(.|\\n){{{least},}}/")),
        (least, Some(most)) => limits.push(format!("/(.|\\n){{{least},{most}}}/")),
    }
    let format = schema.get("format").and_then(Value::as_str);
    limits.extend(format.and_then(format_expression));
    match limits.is_empty() {
        true => ANY_TEXT.to_owned(),
        false => limits.join(" & "),
    }
}

fn format_expression(name: &str) -> Option<String> {
    let (_, expression) = FORMATS.iter().find(|(known, _)| *known == name)?;
    Some(format!("/{}/", expression.replace('/', "\\/")))
}

/// The terminal of texts in which a pattern occurs, as JSON Schema has it.
fn searched(pattern: &str) -> String {
    let inner = pattern.strip_prefix('^').unwrap_or(pattern);
    let is_anchor = |rest: &&str| rest.chars().rev().take_while(|char| *char == '\\').count() % 2 == 0;
    let ends = inner.strip_suffix('$').filter(is_anchor);
    let before = if pattern.starts_with('^') { "" } else { "(.|\\n)*" };
    let behind = if ends.is_some() { "" } else { "(.|\\n)*" };
    lark::expression(&format!("{before}({}){behind}", ends.unwrap_or(inner)))
}
