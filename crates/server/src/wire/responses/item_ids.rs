//! The ids of items: each has the id of its response inside, so that an item is found by its id alone.
//!
//! Invariant: an id that was made here is read here; one of a client's own names no response.

/// Hexadecimal digits in the id of a response.
const DIGITS: usize = 32;
/// What ids of responses begin with.
const RESPONSE_PREFIX: &str = "resp_";

/// The id of the item at a place of a response.
pub fn of(prefix: &str, response_id: &str, index: usize) -> String {
    let digits = response_id.rsplit('_').next().unwrap_or_default();
    format!("{prefix}_{digits}{index:04}")
}

/// The id of the response that an item belongs to.
pub fn response_of(item_id: &str) -> Option<String> {
    let (_, rest) = item_id.rsplit_once('_')?;
    let digits = rest.get(..DIGITS)?;
    let index = rest.get(DIGITS..)?;
    let is_index = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    let is_ours = digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && is_index;
    is_ours.then(|| format!("{RESPONSE_PREFIX}{digits}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_response() {
        let response = format!("{RESPONSE_PREFIX}{:032x}", 7);
        for index in [0, 12, 12345] {
            assert_eq!(response_of(&of("msg", &response, index)), Some(response.clone()));
        }
        for foreign in ["", "msg", "msg_1", "item_0", &format!("msg_{:032x}", 7), &format!("msg_é{:034x}", 7)]
        {
            assert_eq!(response_of(foreign), None, "{foreign}");
        }
    }
}
