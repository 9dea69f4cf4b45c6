//! How long masks take with a vocabulary of 150,000 tokens.
//!
//! `cargo bench -p omnibus-grammar` prints a table: for each grammar the time to compile it, and over random walks the time
//! of a mask and of taking in a token. With the directory of a model as argument, its tokenizer is used; else a vocabulary
//! of as many made-up words. It fails if the median mask of all takes more than 50 µs.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use omnibus_grammar::{
    Compiler, Grammar, GrammarLimits, MatchState, Matcher, Opening, TokenMask, Vocabulary,
};
use omnibus_text::{Tokenizer, TokenizerFiles};
use serde_json::{Map, Value, json};

const TOKENS: usize = 150_000;
const MOST: Duration = Duration::from_micros(50);
const WALKS: u64 = 40;
const WALK_TOKENS: usize = 150;

fn main() {
    let directory = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let tokenizer = match directory {
        Some(directory) => Tokenizer::from_dir(directory.as_ref(), None).expect("a model's directory"),
        None => made_up(),
    };
    let vocab = tokenizer.vocab_size().next_multiple_of(64);
    let started = Instant::now();
    let vocabulary = Vocabulary::new(Arc::new(tokenizer), vocab);
    let compiler = Compiler::new(vocabulary, GrammarLimits::default()).unwrap();
    println!("{vocab} tokens, tables built in {:?}", started.elapsed());
    println!(
        "{:24} {:>11} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11}",
        "grammar", "compile", "mask p50", "p95", "p99", "max", "token p50", "token max"
    );
    let mut all = Vec::new();
    for (name, grammar) in grammars() {
        all.extend(measure(name, &grammar, &compiler, vocab));
    }
    let median = percentile(&mut all, 50);
    println!("{} masks, median {median:?}", all.len());
    assert!(median <= MOST, "the median mask takes {median:?}");
}

fn grammars() -> Vec<(&'static str, Grammar)> {
    let person = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "age": { "type": "integer", "minimum": 0, "maximum": 150 },
            "email": { "type": "string", "format": "email" },
            "tags": { "type": "array", "items": { "enum": ["red", "green", "blue"] } },
            "address": { "type": "object", "properties": {
                "street": { "type": "string" }, "city": { "type": "string", "maxLength": 40 } },
                "required": ["street", "city"] }
        },
        "required": ["name", "age", "email", "tags", "address"]
    });
    let member = |at: usize| (format!("member_{at}"), json!({ "type": ["string", "number", "null"] }));
    let wide: Map<String, Value> = (0..200).map(member).collect();
    let lark = "start: sum\nsum: product ((\"+\" | \"-\") product)*\nproduct: atom ((\"*\" | \"/\") atom)*\n\
                atom: NUMBER | NAME | \"(\" sum \")\"\nNUMBER: /[0-9]+(\\.[0-9]+)?/\nNAME: /[a-z_][a-z0-9_]*/\n\
                %ignore / /";
    vec![
        ("json object", Grammar::JsonObject),
        ("schema of five members", Grammar::json_schema(&person)),
        ("schema of 200 members", Grammar::json_schema(&json!({ "type": "object", "properties": wide }))),
        ("regular expression", Grammar::Regex(r"([A-Z][a-z]{2,8} ){3,20}[0-9]{4}-[0-9]{2}".into())),
        (
            "choice of 1,000",
            Grammar::Choice((0..1000).map(|at| format!("option number {at} of all")).collect()),
        ),
        ("Lark arithmetic", Grammar::Lark(lark.into())),
    ]
}

fn measure(name: &str, grammar: &Grammar, compiler: &Compiler, vocab: usize) -> Vec<Duration> {
    let started = Instant::now();
    let compiled = compiler.compile(grammar, 1).unwrap();
    let compile = started.elapsed();
    let (mut masks, mut tokens) = (Vec::new(), Vec::new());
    for seed in 0..WALKS {
        let mut matcher = Matcher::new(&compiled, &Opening::default(), &[]);
        for position in 0..WALK_TOKENS {
            let started = Instant::now();
            let mask = matcher.mask();
            masks.push(started.elapsed());
            let Ok(mask) = mask else { break };
            let token = pick(&mask, vocab, seed << 20 | position as u64);
            let started = Instant::now();
            let state = matcher.accept(token).unwrap();
            tokens.push(started.elapsed());
            if state == MatchState::Finished {
                break;
            }
        }
    }
    println!(
        "{name:24} {compile:>11.1?} {:>9.1?} {:>9.1?} {:>9.1?} {:>9.1?} {:>11.1?} {:>11.1?}",
        percentile(&mut masks, 50),
        percentile(&mut masks, 95),
        percentile(&mut masks, 99),
        percentile(&mut masks, 100),
        percentile(&mut tokens, 50),
        percentile(&mut tokens, 100),
    );
    masks
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times.get((times.len().saturating_sub(1)) * percent / 100).copied().unwrap_or_default()
}

/// An allowed token.
fn pick(mask: &TokenMask, vocab: usize, seed: u64) -> u32 {
    let allowed: Vec<u32> = (0..vocab as u32).filter(|token| mask.allows(*token)).collect();
    allowed[(mix(seed) % allowed.len() as u64) as usize]
}

fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A byte-level BPE tokenizer of made-up words: the bytes, runs of digits, punctuation and spaces, and words of one to five
/// syllables, with a space before them or not.
fn made_up() -> Tokenizer {
    let bytes: Vec<char> = byte_characters();
    let mut vocab: Map<String, Value> = Map::new();
    let add = |vocab: &mut Map<String, Value>, text: &str| {
        let spelled: String = text.bytes().map(|byte| bytes[byte as usize]).collect();
        let next = vocab.len();
        vocab.entry(spelled).or_insert_with(|| next.into());
    };
    bytes.iter().enumerate().for_each(|(id, byte)| _ = vocab.insert(byte.to_string(), id.into()));
    for number in 0..1000 {
        add(&mut vocab, &number.to_string());
    }
    for run in 1..60 {
        ["\n", "\t", " ", "-", "=", "#", "*", "\n "]
            .iter()
            .for_each(|part| add(&mut vocab, &part.repeat(run)));
    }
    for text in
        ["\":", "\",", "{\"", "\"}", "\": \"", "\", \"", "},", "];", "();", "='", " \"", "[\"", "\"]", ":\n"]
    {
        add(&mut vocab, text);
    }
    let syllables =
        ["ka", "no", "ther", "ing", "str", "bel", "ö", "日", "ur", "qu", "es", "tion", "X", "Al", "_id"];
    let mut seed = 0;
    while vocab.len() < TOKENS {
        seed += 1;
        let draw = mix(seed);
        let count = 1 + (draw >> 8) % 5;
        let word: String =
            (0..count).map(|at| syllables[(mix(draw ^ at) % syllables.len() as u64) as usize]).collect();
        let before = if draw.is_multiple_of(2) { " " } else { "" };
        let tail = if draw % 9 == 1 { (draw >> 20) % 100 } else { 100 };
        let tail = if tail < 100 { tail.to_string() } else { String::new() };
        add(&mut vocab, &format!("{before}{word}{tail}"));
    }
    let file = json!({
        "version": "1.0", "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true },
        "post_processor": null,
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": { "type": "BPE", "vocab": vocab, "merges": [], "ignore_merges": true }
    });
    let bytes = file.to_string().into_bytes();
    Tokenizer::from_bytes(TokenizerFiles { tokenizer: &bytes, ..TokenizerFiles::default() })
        .expect("it is valid")
}

/// The characters that stand for bytes in byte-level vocabularies.
fn byte_characters() -> Vec<char> {
    let plain = |byte: &u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut next = 255;
    let character = |byte: u32| {
        if plain(&byte) {
            return char::from_u32(byte).unwrap();
        }
        next += 1;
        char::from_u32(next).unwrap()
    };
    (0..256).map(character).collect()
}
