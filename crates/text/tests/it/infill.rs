//! Prompts that ask a model to fill in the middle of a text.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use expect_test::{Expect, expect};
use omnibus_text::{AddSpecial, InfillFormat, SkipSpecial, Tokenizer, TokenizerFiles};
use serde_json::json;

/// A tokenizer of single letters, with these tokens besides.
pub fn tokenizer(added: &[&str]) -> Tokenizer {
    let letters = ('a'..='z').chain(['(', ')', ':', 'Ġ', 'Ċ', '<', '>', '|', '_']);
    let vocab: serde_json::Map<_, _> =
        letters.enumerate().map(|(id, letter)| (letter.to_string(), json!(id))).collect();
    let token = |(at, text): (usize, &&str)| {
        json!({"id": 100 + at, "content": text, "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false})
    };
    let added: Vec<_> = added.iter().enumerate().map(token).collect();
    let level =
        json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let file = json!({"version": "1.0", "added_tokens": added, "normalizer": null, "pre_tokenizer": level,
        "post_processor": null, "decoder": level, "model": {"type": "BPE", "vocab": vocab, "merges": []}});
    let bytes = file.to_string().into_bytes();
    Tokenizer::from_bytes(TokenizerFiles { tokenizer: &bytes, ..TokenizerFiles::default() }).unwrap()
}

/// The prompt, and the tokens that end what is filled in.
fn check(added: &[&str], expected: Expect) {
    let tokenizer = tokenizer(added);
    let Some(format) = InfillFormat::of(&tokenizer) else { return expected.assert_eq("none") };
    let tokens = format.prompt(&tokenizer, ("", "def f(", "): pass"), AddSpecial::Yes).unwrap();
    let ends: Vec<String> =
        format.ends(&tokenizer).iter().filter_map(|end| tokenizer.id_to_token(*end)).collect();
    expected.assert_eq(&format!("{}\n{}", tokenizer.decode(&tokens, SkipSpecial::No), ends.join(" ")));
}

#[test]
fn a_prompt_has_the_order_that_the_model_was_trained_with() {
    check(
        &["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"],
        expect![[r#"
            <|fim_prefix|>def f(<|fim_suffix|>): pass<|fim_middle|>
            <|file_sep|> <|fim_prefix|> <|fim_suffix|> <|fim_middle|>"#]],
    );
    check(
        &["[SUFFIX]", "[PREFIX]"],
        expect![[r#"
            [SUFFIX]): pass[PREFIX]def f(
            [PREFIX] [SUFFIX]"#]],
    );
}

#[test]
fn other_files_stand_before_the_prompt_in_the_tokenizers_own_markers() {
    let added = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>"];
    let files = [("b".to_owned(), "def".to_owned())];
    let marked = tokenizer(&added);
    let text = InfillFormat::other_files(&marked, &files);
    assert_eq!(text, "<|file_sep|>b\ndef\n");
    let format = InfillFormat::of(&marked).unwrap();
    let tokens = format.prompt(&marked, (&text, "a", "c"), AddSpecial::No).unwrap();
    let prompt = marked.decode(&tokens, SkipSpecial::No);
    assert_eq!(prompt, "<|file_sep|>b\ndef\n<|fim_prefix|>a<|fim_suffix|>c<|fim_middle|>");
    let plain = tokenizer(&added[..3]);
    assert_eq!(InfillFormat::other_files(&plain, &files), "--- b ---\ndef\n");
    assert_eq!(InfillFormat::other_files(&plain, &[]), "");
}

#[test]
fn a_model_without_all_markers_cannot_fill_in() {
    check(&["<|fim_prefix|>", "<|fim_suffix|>"], expect!["none"]);
    check(&[], expect!["none"]);
}
