//! Finds markers in text that arrives in pieces, and holds back what may be the start of one.

/// Where the first marker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// At this byte starts the marker of this index.
    At(usize, usize),
    /// None, and none starts before this byte. What follows may be the start of one.
    Before(usize),
}

/// The first place where one of `markers` starts. Of several at one place, the first of the list counts; so a marker
/// that is the start of another comes after it. `counts` says whether a marker counts at a byte.
pub(crate) fn find(
    text: &str,
    ended: bool,
    markers: &[&str],
    counts: impl Fn(usize, usize) -> bool,
) -> Found {
    for (at, _) in text.char_indices() {
        let rest = text.get(at..).unwrap_or_default();
        for (index, marker) in markers.iter().enumerate() {
            let is_whole = rest.starts_with(marker);
            let is_start = !ended && marker.starts_with(rest);
            if (is_whole || is_start) && counts(at, index) {
                return if is_whole { Found::At(at, index) } else { Found::Before(at) };
            }
        }
    }
    Found::Before(text.len())
}

#[cfg(test)]
mod tests {
    use super::{Found, find};

    fn found(text: &str, ended: bool) -> Found {
        find(text, ended, &["<tool_call>", "<tool", "é!"], |_, _| true)
    }

    #[test]
    fn the_start_of_a_marker_is_held_back_until_it_is_decided() {
        assert_eq!(found("a <tool_c", false), Found::Before(2));
        assert_eq!(found("a <tool_c", true), Found::At(2, 1));
        assert_eq!(found("a <tool_x", false), Found::At(2, 1));
        assert_eq!(found("a <tool_call>", false), Found::At(2, 0));
        assert_eq!(found("éé", false), Found::Before(2));
        assert_eq!(found("ab", false), Found::Before(2));
    }
}
