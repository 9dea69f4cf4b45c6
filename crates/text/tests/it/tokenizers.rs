//! Small tokenizers, trained here: encoding, incremental decoding, bytes, and their files.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use expect_test::{Expect, expect};
use omnibus_testing::reference::{CONFIGS, found};
use omnibus_text::{AddSpecial, Detokenizer, Error, SkipSpecial, Tokenizer, TokenizerFiles};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokenizers::AddedToken;
use tokenizers::decoders::DecoderWrapper;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::models::unigram::{Unigram, UnigramTrainer};
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::whitespace::Whitespace;

const CORPUS: &[&str] = &[
    "The bus never stops: requests board and leave between miles.",
    "Zürich, Genève, naïve café; 東京の夜は静かです。 Привет, мир!",
    "fn main() { println!(\"{}\", 1 + 2); }\n\tindented = True  # twice  as  wide",
    "👩‍👩‍👧 𝒳 = 3.14 and what's more, they don't mind . Do they ?",
];

/// A tokenizer trained on the corpus, and the crate's own reading of the same file.
struct Pair {
    ours: Arc<Tokenizer>,
    theirs: tokenizers::Tokenizer,
}

fn pair(mut tokenizer: tokenizers::Tokenizer, mut trainer: TrainerWrapper) -> Pair {
    tokenizer.train(&mut trainer, CORPUS.iter()).unwrap();
    tokenizer.add_special_tokens([AddedToken::from("<s>", true), AddedToken::from("<|end|>", true)]).unwrap();
    tokenizer.add_tokens([AddedToken::from("<tool>", false)]).unwrap();
    from_json(&tokenizer.to_string(false).unwrap())
}

fn from_json(json: &str) -> Pair {
    let files = TokenizerFiles { tokenizer: json.as_bytes(), ..TokenizerFiles::default() };
    Pair { ours: Arc::new(Tokenizer::from_bytes(files).unwrap()), theirs: json.parse().unwrap() }
}

fn byte_level() -> Pair {
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    let trainer = BpeTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(330)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    pair(tokenizer, trainer.into())
}

/// As Llama 2: no pre-tokenizer, spaces replaced, bytes for what is unknown, one leading space stripped.
fn byte_fallback() -> Pair {
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(Metaspace::new('▁', PrependScheme::Always, true)));
    let trainer = BpeTrainerBuilder::new().show_progress(false).vocab_size(120).limit_alphabet(30).build();
    let mut trainer: TrainerWrapper = trainer.into();
    tokenizer.train(&mut trainer, CORPUS.iter()).unwrap();
    let mut json: Value = serde_json::from_str(&tokenizer.to_string(false).unwrap()).unwrap();
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    for token in std::iter::once("<unk>".to_owned()).chain((0..=255).map(|byte| format!("<0x{byte:02X}>"))) {
        let id = vocab.len();
        vocab.insert(token, id.into());
    }
    json["model"]["unk_token"] = "<unk>".into();
    json["model"]["byte_fallback"] = true.into();
    json["decoder"] = json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]});
    let mut tokenizer: tokenizers::Tokenizer = json.to_string().parse().unwrap();
    tokenizer.add_special_tokens([AddedToken::from("<s>", true), AddedToken::from("<|end|>", true)]).unwrap();
    from_json(&tokenizer.to_string(false).unwrap())
}

fn unigram() -> Pair {
    let mut tokenizer = tokenizers::Tokenizer::new(Unigram::default());
    tokenizer.with_pre_tokenizer(Some(Metaspace::default()));
    tokenizer.with_decoder(Some(Metaspace::default()));
    let mut trainer = UnigramTrainer::builder();
    trainer.show_progress(false).vocab_size(150).unk_token(Some("<unk>".to_owned()));
    trainer.special_tokens(vec![AddedToken::from("<unk>", true)]);
    pair(tokenizer, trainer.build().unwrap().into())
}

fn word_piece() -> Pair {
    let mut tokenizer = tokenizers::Tokenizer::new(WordPiece::default());
    tokenizer.with_pre_tokenizer(Some(Whitespace {}));
    tokenizer.with_decoder(Some(tokenizers::decoders::wordpiece::WordPiece::default()));
    let trainer = WordPieceTrainer::builder().show_progress(false).vocab_size(200);
    let trainer = trainer.special_tokens(vec![AddedToken::from("[UNK]", true)]).build();
    pair(tokenizer, trainer.into())
}

/// The byte-fallback vocabulary under decoders of other shapes.
fn with_decoder(decoder: Value) -> Pair {
    let mut json: Value = serde_json::from_str(&byte_fallback().theirs.to_string(false).unwrap()).unwrap();
    json["decoder"] = decoder;
    from_json(&json.to_string())
}

/// Strips `▁` from both ends of a text.
fn stripped(start: usize, stop: usize) -> Pair {
    with_decoder(json!({"type": "Sequence", "decoders": [
        {"type": "Fuse"},
        {"type": "Strip", "content": "▁", "start": start, "stop": stop},
    ]}))
}

fn odd_decoders() -> Vec<Pair> {
    let fuse = json!({"type": "Fuse"});
    let fallback = json!({"type": "ByteFallback"});
    let replace = json!({"type": "Replace", "pattern": {"Regex": "[aeiou]"}, "content": "*"});
    let sequence = |decoders: Vec<Value>| json!({"type": "Sequence", "decoders": decoders});
    vec![
        with_decoder(Value::Null),
        with_decoder(json!({"type": "BPEDecoder", "suffix": "e"})),
        with_decoder(json!({"type": "CTC", "pad_token": "a", "word_delimiter_token": "▁", "cleanup": true})),
        with_decoder(
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true}),
        ),
        with_decoder(sequence(vec![
            fallback.clone(),
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}),
        ])),
        with_decoder(sequence(vec![replace.clone(), fallback.clone()])),
        with_decoder(sequence(vec![fallback.clone(), fuse.clone(), replace])),
        stripped(2, 3),
        with_decoder(sequence(vec![
            fuse,
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}),
        ])),
        with_decoder(sequence(vec![fallback, json!({"type": "WordPiece", "prefix": "▁", "cleanup": false})])),
    ]
}

/// All pieces of a sequence, the last one what was held back.
fn pieces(tokenizer: &Arc<Tokenizer>, tokens: &[u32], skip: SkipSpecial) -> Vec<String> {
    let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer), skip);
    let mut pieces: Vec<String> = tokens.iter().map(|token| detokenizer.push(*token)).collect();
    pieces.push(detokenizer.finish());
    pieces
}

fn check_decoding(pair: &Pair, tokens: &[u32]) {
    for (skip, theirs_skip) in [(SkipSpecial::Yes, true), (SkipSpecial::No, false)] {
        let streamed = pieces(&pair.ours, tokens, skip).concat();
        assert_eq!(streamed, pair.ours.decode(tokens, skip), "in pieces and at once");
        let is_shown = |token: &&u32| !(theirs_skip && pair.ours.special_ids().contains(token));
        let shown = tokens.iter().filter(is_shown).filter_map(|token| pair.theirs.id_to_token(*token));
        // The crate panics without tokens (word ends) and where it is to strip more than there is.
        if shown.collect::<String>().contains(|letter| letter != '▁') {
            assert_eq!(streamed, pair.theirs.decode(tokens, theirs_skip).unwrap(), "as the tokenizers crate");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn incremental_decoding_equals_decoding_at_once(tokens in prop::collection::vec(0u32..400, 0..40)) {
        thread_local!(static PAIRS: Vec<Pair> =
            [byte_level(), byte_fallback(), unigram(), word_piece()].into_iter().chain(odd_decoders()).collect());
        PAIRS.with(|pairs| {
            for pair in pairs {
                check_decoding(pair, &tokens);
            }
        });
    }

    #[test]
    fn byte_level_tokenizers_round_trip_text(text in "\\PC{0,40}") {
        thread_local!(static PAIR: Pair = byte_level());
        PAIR.with(|pair| {
            let tokens = pair.ours.encode(&text, AddSpecial::No).unwrap();
            let pieces = pieces(&pair.ours, &tokens, SkipSpecial::No);
            assert_eq!(pieces.concat(), text);
            assert!(text.contains('\u{fffd}') || pieces.iter().all(|piece| !piece.contains('\u{fffd}')));
            let bytes: Vec<u8> = tokens.iter().flat_map(|token| pair.ours.id_to_piece(*token).unwrap()).collect();
            assert_eq!(bytes, text.as_bytes());
        });
    }

    #[test]
    fn byte_fallback_round_trips_text(text in "[a-zA-Z0-9é東👩. \n]{0,30}") {
        thread_local!(static PAIR: Pair = byte_fallback());
        PAIR.with(|pair| {
            let tokens = pair.ours.encode(&text, AddSpecial::No).unwrap();
            let decoded = pieces(&pair.ours, &tokens, SkipSpecial::No).concat();
            assert_eq!(decoded, text.strip_prefix(' ').unwrap_or(&text));
        });
    }
}

fn check_pieces(pair: &Pair, tokens: &[&str], expected: Expect) {
    let ids: Vec<u32> = tokens.iter().map(|token| pair.ours.token_to_id(token).unwrap()).collect();
    expected.assert_eq(&pieces(&pair.ours, &ids, SkipSpecial::Yes).join("|"));
}

#[test]
fn a_character_is_emitted_with_its_last_byte() {
    check_pieces(&byte_level(), &["a", "ð", "Ł", "ĺ", "Ģ", "b"], expect!["a||||😀|b|"]);
    check_pieces(
        &byte_fallback(),
        &["a", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "b"],
        expect!["a|||||😀b|"],
    );
}

#[test]
fn invalid_bytes_are_replaced() {
    check_pieces(&byte_level(), &["ð", "Ł", "a"], expect!["||�a|"]);
    check_pieces(&byte_level(), &["ð", "Ł"], expect!["||�"]);
    check_pieces(&byte_fallback(), &["<0xF0>", "<0x9F>", "a"], expect!["||��a|"]);
}

#[test]
fn stripping_more_than_the_text_is_safe() {
    check_pieces(&stripped(2, 3), &["▁"], expect!["|"]);
    check_pieces(&stripped(0, 3), &["▁", "▁"], expect!["||"]);
    check_pieces(&stripped(1, 3), &["▁", "a", "▁"], expect!["|a||"]);
}

#[test]
fn only_the_first_space_of_a_text_is_stripped() {
    check_pieces(&byte_fallback(), &["<s>", "▁", "▁", "a", "▁"], expect!["|| |a| |"]);
    check_pieces(&unigram(), &["<s>", "▁", "a", "▁"], expect!["||a| |"]);
}

#[test]
fn token_bytes_are_those_in_the_middle_of_a_text() {
    let check = |pair: Pair, token: &str, expected: &[u8]| {
        let id = pair.ours.token_to_id(token).unwrap();
        assert_eq!(pair.ours.id_to_piece(id).unwrap(), expected, "{token}");
    };
    check(byte_level(), "Ġ", b" ");
    check(byte_level(), "ð", &[0xf0]);
    check(byte_level(), "<|end|>", b"<|end|>");
    check(byte_fallback(), "<0xE2>", &[0xe2]);
    check(byte_fallback(), "▁", b" ");
    check(unigram(), "▁", b" ");
    assert_eq!(byte_level().ours.id_to_piece(1_000_000), None);
}

#[test]
fn special_tokens_in_a_text_are_encoded_as_such() {
    let pair = byte_level();
    let end = pair.ours.token_to_id("<|end|>").unwrap();
    assert_eq!(pair.ours.encode("<|end|>", AddSpecial::No).unwrap(), [end]);
    assert_eq!(pair.ours.decode(&[end], SkipSpecial::Yes), "");
    assert_eq!(pair.ours.decode(&[end], SkipSpecial::No), "<|end|>");
    assert_eq!(pair.ours.vocab_size(), pair.theirs.get_vocab_size(true));
}

#[test]
fn no_text_panics() {
    let long = "a".repeat(1 << 20);
    let words = "the bus 東京 ".repeat(40_000);
    let odd = ["", "\0", "\0\0a\0", "\u{fffd}\u{10ffff}\u{feff}", "\r\n\r\n", " ", "\u{200d}\u{301}"];
    for pair in [byte_level(), byte_fallback(), unigram(), word_piece()] {
        for text in odd.into_iter().chain([words.as_str(), long.as_str()]) {
            let tokens = pair.ours.encode(text, AddSpecial::Yes).unwrap();
            pair.ours.decode(&tokens, SkipSpecial::No);
        }
    }
}

fn with_files(files: TokenizerFiles<'_>) -> Tokenizer {
    let json = byte_level().theirs.to_string(false).unwrap();
    Tokenizer::from_bytes(TokenizerFiles { tokenizer: json.as_bytes(), ..files }).unwrap()
}

#[test]
fn end_of_sequence_ids_come_from_all_files() {
    let tokenizer_config = json!({
        "bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "<|end|>", "pad_token": null,
        "extra_special_tokens": {"image_token": "<img>"},
    });
    let special_tokens_map = json!({"bos_token": "ignored", "unk_token": {"content": "<unk>"}});
    let (config, text_config) =
        (json!({"eos_token_id": 7}), json!({"text_config": {"eos_token_id": [8, 9]}}));
    let generation_config = json!({"eos_token_id": [3, 4]});
    let base = TokenizerFiles {
        tokenizer_config: Some(&tokenizer_config),
        special_tokens_map: Some(&special_tokens_map),
        config: Some(&config),
        ..TokenizerFiles::default()
    };
    let tokenizer = with_files(base);
    let end = tokenizer.token_to_id("<|end|>").unwrap();
    let eos = |files| with_files(files).eos_ids().iter().copied().collect::<Vec<_>>();
    assert_eq!(eos(base), [7, end]);
    assert_eq!(eos(TokenizerFiles { config: Some(&text_config), ..base }), [8, 9, end]);
    assert_eq!(eos(TokenizerFiles { generation_config: Some(&generation_config), ..base }), [3, 4, end]);
    expect![[r#"[("bos_token", "<s>"), ("eos_token", "<|end|>"), ("unk_token", "<unk>"), ("image_token", "<img>")]"#]]
        .assert_eq(&format!("{:?}", tokenizer.special_tokens()));
}

#[test]
fn tokens_of_other_files_are_added() {
    let next = byte_level().ours.vocab_size() as u32;
    let added_tokens = json!({"<extra>": next, "<s>": 5});
    let tokenizer_config =
        json!({"added_tokens_decoder": {(next + 1).to_string(): {"content": "<more>", "special": true}}});
    let files = TokenizerFiles {
        added_tokens: Some(&added_tokens),
        tokenizer_config: Some(&tokenizer_config),
        ..TokenizerFiles::default()
    };
    let tokenizer = with_files(files);
    assert_eq!(tokenizer.encode("<extra><more>", AddSpecial::No).unwrap(), [next, next + 1]);
    assert!(tokenizer.special_ids().contains(&(next + 1)));
}

/// A folder of a test, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Folder {
        let path = std::env::temp_dir().join(format!("omnibus-text-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("additional_chat_templates")).unwrap();
        for (file, text) in files {
            std::fs::write(path.join(file), text).unwrap();
        }
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn check_broken(name: &str, files: &[(&str, &str)], expected: Expect) {
    let folder = Folder::new(name, files);
    let error = Tokenizer::from_dir(&folder.0, None).unwrap_err();
    assert!(matches!(error, Error::File { .. }));
    let message = error.to_string();
    assert!(!message.contains('\n'), "one line");
    expected.assert_eq(&message.replace(&folder.0.display().to_string(), "DIR"));
}

#[test]
fn errors_name_the_invalid_file() {
    let good = byte_level().theirs.to_string(false).unwrap();
    check_broken(
        "none",
        &[],
        expect!["DIR/tokenizer.json: it is missing; download the model again with all its files"],
    );
    check_broken(
        "old",
        &[("tokenizer.model", "")],
        expect![
            "DIR/tokenizer.json: it is missing and this model has its tokenizer in an older format; load it with transformers' AutoTokenizer and save_pretrained it here"
        ],
    );
    check_broken(
        "cut",
        &[("tokenizer.json", &good[..100])],
        expect![
            "DIR/tokenizer.json: EOF while parsing a string at line 1 column 100; download it again or convert the model anew"
        ],
    );
    check_broken(
        "list",
        &[("tokenizer.json", "[]")],
        expect![
            "DIR/tokenizer.json: invalid type: sequence, expected struct Tokenizer at line 1 column 2; download it again or convert the model anew"
        ],
    );
    check_broken(
        "config",
        &[("tokenizer.json", &good), ("tokenizer_config.json", "{")],
        expect![
            "DIR/tokenizer_config.json: it is not JSON (EOF while parsing an object at line 1 column 1); download it again"
        ],
    );
    check_broken(
        "places",
        &[("tokenizer.json", &good), ("added_tokens.json", "{\"<x>\": 4000}")],
        expect![
            "DIR/added_tokens.json: token '<x>' is 4000 here, but its place after tokenizer.json is Some(333); download it again or convert the model anew"
        ],
    );
}

#[test]
fn unexpected_values_in_files_do_not_panic() {
    let good = byte_level().theirs.to_string(false).unwrap();
    for odd in [
        "null",
        "[]",
        "3",
        "{\"eos_token\": 3, \"added_tokens_decoder\": [1]}",
        "{\"added_tokens_decoder\": {\"x\": 1}}",
        "{\"eos_token_id\": -1}",
    ] {
        let json: Value = serde_json::from_str(odd).unwrap();
        let files = TokenizerFiles {
            tokenizer: good.as_bytes(),
            tokenizer_config: Some(&json),
            special_tokens_map: Some(&json),
            added_tokens: Some(&json),
            generation_config: Some(&json),
            config: Some(&json),
        };
        // An answer, of whatever kind.
        let _ = Tokenizer::from_bytes(files);
    }
}

#[test]
fn a_tokenizer_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Tokenizer>();
    shared::<Detokenizer>();
    shared::<omnibus_text::ChatTemplate>();
}

/// The embedded model's tokenizer, and those of published models that lie beside the repository.
#[test]
fn published_tokenizers_decode_as_the_tokenizers_crate_does() {
    let folders = found(CONFIGS).flat_map(|found| found.files(""));
    let own = [Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini/tokenizer.json")];
    let mut files: Vec<PathBuf> = folders
        .flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten())
        .map(|file| file.unwrap().path())
        .filter(|path| path.to_str().is_some_and(|path| path.ends_with("tokenizer.json")))
        .chain(own)
        .collect();
    files.sort();
    let mut compared = 0;
    for path in files {
        let json = std::fs::read_to_string(&path).unwrap();
        let Ok(theirs) = json.parse::<tokenizers::Tokenizer>() else {
            continue;
        };
        let pair = Pair { ours: from_json(&json).ours, theirs };
        for text in CORPUS {
            let tokens = pair.ours.encode(text, AddSpecial::Yes).unwrap();
            assert_eq!(tokens, pair.theirs.encode(*text, true).unwrap().get_ids(), "{}", path.display());
            check_decoding(&pair, &tokens);
        }
        compared += 1;
    }
    println!("{compared} published tokenizers compared");
    assert!(compared > 0);
}

#[test]
fn every_kind_of_decoder_is_tested() {
    let kind = |pair: &Pair| match pair.theirs.get_decoder() {
        Some(DecoderWrapper::Sequence(sequence)) => sequence.get_decoders().len(),
        Some(_) => 1,
        None => 0,
    };
    assert_eq!(odd_decoders().iter().map(kind).collect::<Vec<_>>(), [0, 1, 1, 1, 2, 2, 3, 2, 2, 2]);
}
