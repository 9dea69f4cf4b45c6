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
fn a_stop_string_cut_by_a_token_border_is_held_back() {
    check(&["END"], Keep::No, &["all good. E", "ND"], expect!["all good. |#0$"]);
}

#[test]
fn a_start_that_goes_on_otherwise_is_shown() {
    check(&["END"], Keep::No, &["E", "N", "T", "ER"], expect!["||ENT|ER$"]);
}

#[test]
fn a_start_within_a_start_stays_held() {
    check(&["aab"], Keep::No, &["aa", "a", "b"], expect!["|a|#0$"]);
}

#[test]
fn what_is_held_at_the_end_is_text() {
    check(&["END"], Keep::No, &["the EN"], expect!["the $EN"]);
}

#[test]
fn the_stop_string_is_kept_when_asked() {
    check(&["END"], Keep::Yes, &["a E", "ND b"], expect!["a |END#0$"]);
}

#[test]
fn text_after_a_match_is_dropped() {
    check(&["."], Keep::No, &["a. b", "c"], expect!["a#0|#0$"]);
}

#[test]
fn the_first_complete_one_wins() {
    check(&["bcd", "b"], Keep::No, &["abcd"], expect!["a#1$"]);
    check(&["abcd", "bc"], Keep::No, &["xabcd"], expect!["xa#1$"]);
}

#[test]
fn of_two_that_end_together_the_longer_wins() {
    check(&["b", "ab"], Keep::No, &["xab"], expect!["x#1$"]);
}

#[test]
fn characters_stay_whole() {
    check(&["é!"], Keep::No, &["caf", "é", "è", "é", "!"], expect!["caf||éè||#0$"]);
    check(&["東京"], Keep::No, &["の東", "東", "京"], expect!["の|東|#0$"]);
}

#[test]
fn empty_stop_strings_match_nothing() {
    check(&["", "x"], Keep::No, &["ab", "x"], expect!["ab|#1$"]);
    check(&[], Keep::No, &["ab"], expect!["ab$"]);
}

proptest! {
    #[test]
    fn the_borders_of_pieces_do_not_matter(
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
