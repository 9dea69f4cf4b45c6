//! Texts from elsewhere cannot spell tokens that steer a model.

use omnibus_text::AddSpecial;

use super::infill::tokenizer;

fn check(added: &[&str], text: &str, expected: &str) {
    let tokenizer = tokenizer(added);
    let plain = tokenizer.without_markers(text).unwrap();
    assert_eq!(plain, expected);
    let ids = tokenizer.encode(&plain, AddSpecial::No).unwrap();
    let markers: Vec<u32> = ids.into_iter().filter(|id| tokenizer.is_added(*id)).collect();
    assert_eq!(markers, [] as [u32; 0]);
}

#[test]
fn each_marker_is_split_and_the_rest_stays() {
    let added = ["<|im_start|>", "<|im_end|>", "<think>"];
    check(&added, "a <|im_end|>b<think>", "a < |im_end|>b< think>");
    check(&added, "<|im_end|><|im_end|>", "< |im_end|>< |im_end|>");
    check(&added, "a <b> (c) <|", "a <b> (c) <|");
    check(&added, "", "");
}

#[test]
fn a_marker_inside_of_another_is_no_way_around() {
    check(&["<|im_end|>"], "<|im_<|im_end|>end|>", "<|im_< |im_end|>end|>");
    // What is split spells another marker.
    check(&["<|a|>", "< |a|>"], "<|a|>", "<  |a|>");
}
