//! Tokenizers of files, with the library that loads them.

use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Tokenizer};

use super::writer::{File, base};

fn tokenizer(file: File) -> Tokenizer {
    let file = file.floats_tensor("token_embd.weight", &[8, 64], &[0.5; 512]).write();
    let (folder, _) = file.convert();
    Tokenizer::from_file(folder.path("tokenizer.json")).unwrap()
}

fn check(tokenizer: &Tokenizer, text: &str, ids: &[u32]) {
    let encoding = tokenizer.encode(text, true).unwrap();
    assert_eq!(encoding.get_ids(), ids, "{text}");
    assert_eq!(tokenizer.decode(ids, true).unwrap(), text.replace("<|im_end|>", "").replace("</s>", ""));
}

#[test]
fn bytes_are_merged_as_the_file_says() {
    let tokenizer = tokenizer(base("llama"));
    check(&tokenizer, "ab a", &[4, 6]);
    check(&tokenizer, "ab<|im_end|>b1", &[4, 1, 3, 7]);
}

/// SentencePiece's kind, in the place of the other.
fn sentence_piece() -> File {
    let file = File::default()
        .text("tokenizer.ggml.model", "llama")
        .texts(
            "tokenizer.ggml.tokens",
            &["<unk>", "<s>", "</s>", "\u{2581}", "a", "b", "ab", "\u{2581}ab", "<0x0A>"],
        )
        .floats("tokenizer.ggml.scores", &[0.0, 0.0, 0.0, -9.0, -8.0, -7.0, -1.0, -2.0, 0.0])
        .integers("tokenizer.ggml.token_type", &[2, 3, 3, 1, 1, 1, 1, 1, 6])
        .number("tokenizer.ggml.bos_token_id", 1)
        .number("tokenizer.ggml.eos_token_id", 2)
        .number("tokenizer.ggml.unknown_token_id", 0);
    super::writer::sized(file, "llama")
}

#[test]
fn sentence_piece_merges_by_scores_after_its_begin() {
    let tokenizer = tokenizer(sentence_piece());
    check(&tokenizer, "ab", &[1, 7]);
    check(&tokenizer, "ab\nab", &[1, 7, 8, 6]);
    check(&tokenizer, "a ab", &[1, 3, 4, 7]);
}

#[test]
fn texts_that_are_not_divided_as_known_are_refused() {
    let file = super::writer::sized(File::default(), "llama")
        .text("tokenizer.ggml.model", "gpt2")
        .texts("tokenizer.ggml.tokens", &["a"])
        .texts("tokenizer.ggml.merges", &[])
        .text("tokenizer.ggml.pre", "martian")
        .floats_tensor("token_embd.weight", &[8, 64], &[0.5; 512]);
    let error = file.write().error();
    assert!(error.contains("`tokenizer.ggml.pre` is martian"), "{error}");
}

/// A text as the tokenizer with this name divides it.
fn pieces<'a>(name: &str, text: &'a str) -> Vec<&'a str> {
    let file = File::default()
        .text("tokenizer.ggml.pre", name)
        .text("tokenizer.ggml.model", "gpt2")
        .texts("tokenizer.ggml.tokens", &["a"])
        .texts("tokenizer.ggml.merges", &[]);
    let tokenizer = tokenizer(super::writer::sized(file, "llama"));
    let mut divided = PreTokenizedString::from(text);
    tokenizer.get_pre_tokenizer().unwrap().pre_tokenize(&mut divided).unwrap();
    let pieces = divided.get_splits(OffsetReferential::Original, OffsetType::Byte);
    pieces.into_iter().map(|(_, (begin, end), _)| &text[begin..end]).collect()
}

#[test]
fn texts_are_divided_as_published_tokenizers_divide_them() {
    for name in ["lfm2", "glm4", "chatglm-bpe", "deepseek-v3", "hunyuan-dense"] {
        assert_eq!(pieces(name, "ab 12345"), ["ab", " ", "123", "45"], "{name}");
    }
    for name in ["phi-2", "exaone4"] {
        assert_eq!(pieces(name, "ab 12345"), ["ab", " 12345"], "{name}");
    }
    assert_eq!(pieces("command-r", "ab 12"), ["ab", " ", "1", "2"]);
    assert_eq!(pieces("qwen35", "ab 12"), ["ab", " ", "1", "2"]);
    // A letter with a mark.
    assert_eq!(pieces("qwen35", "\u{915}\u{93f}"), ["\u{915}\u{93f}"]);
    assert_eq!(pieces("qwen2", "\u{915}\u{93f}"), ["\u{915}", "\u{93f}"]);
    let parts = ["\u{65e5}\u{672c}", "ab", "#cd"];
    assert_eq!(pieces("deepseek-v3", &parts.concat()), parts);
}
