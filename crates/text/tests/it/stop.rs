//! Stop strings across the borders of pieces.

use expect_test::{Expect, expect};
use omnibus_text::{Keep, StopMatcher};
use proptest::prelude::*;

/// What each piece leads to: its text, `#n` for a match, and after `$` what was held back.
fn run(stops: &[&str], keep: Keep, pieces: &[&str]) -> String {
    let mut matcher = StopMatcher::new(stops.iter().map(|stop| (*stop).to_owned()).collect(), keep);
    let mut shown = Vec::new();
    for piece in pieces {
        let stopped = matcher.push(piece);
        let matched = stopped.matched.map_or(String::new(), |place| format!("#{place}"));
        shown.push(stopped.emit + &matched);
    }
    format!("{}${}", shown.join("|"), matcher.flush())
}

fn check(stops: &[&str], keep: Keep, pieces: &[&str], expected: Expect) {
    expected.assert_eq(&run(stops, keep, pieces));
}

#[test]
fn a_stop_string_split_across_tokens_is_held_back() {
    check(&["END"], Keep::No, &["all good. E", "ND"], expect!["all good. |#0$"]);
}

#[test]
fn a_partial_match_that_fails_is_emitted() {
    check(&["END"], Keep::No, &["E", "N", "T", "ER"], expect!["||ENT|ER$"]);
}

#[test]
fn an_overlapping_partial_match_is_held_back() {
    check(&["aab"], Keep::No, &["aa", "a", "b"], expect!["|a|#0$"]);
}

#[test]
fn finish_emits_a_partial_match() {
    check(&["END"], Keep::No, &["the EN"], expect!["the $EN"]);
}

#[test]
fn keep_includes_the_stop_string() {
    check(&["END"], Keep::Yes, &["a E", "ND b"], expect!["a |END#0$"]);
}

#[test]
fn text_after_a_match_is_dropped() {
    check(&["."], Keep::No, &["a. b", "c"], expect!["a#0|#0$"]);
}

#[test]
fn the_first_complete_match_wins() {
    check(&["bcd", "b"], Keep::No, &["abcd"], expect!["a#1$"]);
    check(&["abcd", "bc"], Keep::No, &["xabcd"], expect!["xa#1$"]);
}

#[test]
fn the_longer_of_two_matches_wins() {
    check(&["b", "ab"], Keep::No, &["xab"], expect!["x#1$"]);
}

#[test]
fn held_back_text_ends_at_character_boundaries() {
    check(&["é!"], Keep::No, &["caf", "é", "è", "é", "!"], expect!["caf||éè||#0$"]);
    check(&["東京"], Keep::No, &["の東", "東", "京"], expect!["の|東|#0$"]);
}

#[test]
fn empty_stop_strings_never_match() {
    check(&["", "x"], Keep::No, &["ab", "x"], expect!["ab|#1$"]);
    check(&[], Keep::No, &["ab"], expect!["ab$"]);
}

proptest! {
    #[test]
    fn matches_do_not_depend_on_how_text_is_split(
        stops in prop::collection::vec("[abé]{1,4}", 1..4),
        pieces in prop::collection::vec("[abcé]{0,5}", 0..8),
        is_kept in any::<bool>(),
    ) {
        let keep = if is_kept { Keep::Yes } else { Keep::No };
        let text = pieces.concat();
        let first = (0..=text.len()).filter(|end| text.is_char_boundary(*end)).find_map(|end| {
            let ending = stops.iter().filter(|stop| text[..end].ends_with(stop.as_str()));
            ending.max_by_key(|stop| stop.len()).map(|stop| (end, end - stop.len()))
        });
        let expected = match first {
            Some((end, start)) => &text[..if is_kept { end } else { start }],
            None => &text,
        };
        let mut matcher = StopMatcher::new(stops, keep);
        let mut shown: String = pieces.iter().map(|piece| matcher.push(piece).emit).collect();
        shown += &matcher.flush();
        prop_assert_eq!(shown, expected);
    }
}
