//! The header that names what of a request's schemas is not enforced.

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;

const HEADER: HeaderName = HeaderName::from_static("x-omnibus-schema-not-enforced");

/// Most bytes of the header's value, but for the count of pointers that are left out.
const BYTES_MAX: usize = 2_000;

/// Adds the header, where something is not enforced.
pub fn add_header(response: &mut Response, pointers: &[String]) {
    if let Some(value) = value(pointers) {
        response.headers_mut().insert(HEADER, value);
    }
}

/// The pointers, separated by commas. Commas, percent signs and what is not printable ASCII are percent escapes.
fn value(pointers: &[String]) -> Option<HeaderValue> {
    let mut text = String::new();
    for (index, pointer) in pointers.iter().enumerate() {
        let pointer: String = pointer.bytes().map(escaped).collect();
        let separator = if text.is_empty() { "" } else { ", " };
        if text.len() + separator.len() + pointer.len() > BYTES_MAX {
            text += &format!("{separator}and {} more", pointers.len() - index);
            break;
        }
        text += separator;
        text += &pointer;
    }
    HeaderValue::from_str(&text).ok().filter(|value| !value.is_empty())
}

fn escaped(byte: u8) -> String {
    match byte {
        b',' | b'%' => format!("%{byte:02X}"),
        0x21..=0x7e => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_printable_and_the_header_is_bounded() {
        let pointers = ["/properties/a/not".to_owned(), "/properties/é, b/if".to_owned()];
        let value = value(&pointers).unwrap();
        assert_eq!(value, "/properties/a/not, /properties/%C3%A9%2C%20b/if");
        let many: Vec<String> = (0..1_000).map(|index| format!("/properties/p{index}/not")).collect();
        let value = self::value(&many).unwrap();
        assert!(value.len() < BYTES_MAX + 40, "{} bytes", value.len());
        assert!(value.to_str().unwrap().ends_with("more"), "{value:?}");
        assert_eq!(self::value(&[]), None);
    }
}
