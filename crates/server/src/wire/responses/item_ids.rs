//! The ids of items: each has the id of its response or conversation inside, so that an item is found by its id alone.
//!
//! Invariant: an id that was made here is read here; one of a client's own names neither.

/// Hexadecimal digits in the id of a response or conversation.
const DIGITS: usize = 32;
/// What ids of responses begin with.
pub const RESPONSE_PREFIX: &str = "resp_";
/// What ids of conversations begin with.
pub const CONVERSATION_PREFIX: &str = "conv_";

/// The id of the item at a place of a response or conversation.
pub fn of(prefix: &str, owner_id: &str, index: usize) -> String {
    let digits = owner_id.rsplit('_').next().unwrap_or_default();
    format!("{prefix}_{digits}{index:04}")
}

/// The id of the response, and that of the conversation, that an item may belong to.
pub fn owners_of(item_id: &str) -> Option<[String; 2]> {
    let (_, rest) = item_id.rsplit_once('_')?;
    let digits = rest.get(..DIGITS)?;
    let index = rest.get(DIGITS..)?;
    let is_index = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    let is_ours = digits.bytes().all(|byte| byte.is_ascii_hexdigit()) && is_index;
    is_ours.then(|| [RESPONSE_PREFIX, CONVERSATION_PREFIX].map(|prefix| format!("{prefix}{digits}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_response_or_conversation() {
        let owners = [format!("{RESPONSE_PREFIX}{:032x}", 7), format!("{CONVERSATION_PREFIX}{:032x}", 7)];
        for (index, owner) in [0, 12, 12345].into_iter().zip(owners.iter().cycle()) {
            assert_eq!(owners_of(&of("msg", owner, index)), Some(owners.clone()));
        }
        for foreign in ["", "msg", "msg_1", "item_0", &format!("msg_{:032x}", 7), &format!("msg_é{:034x}", 7)]
        {
            assert_eq!(owners_of(foreign), None, "{foreign}");
        }
    }
}
