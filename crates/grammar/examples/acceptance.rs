//! How many schemas of a folder are accepted, and whether what is generated for them is valid.
//!
//! `cargo run --release -p omnibus-grammar --example acceptance -- DIRECTORY [--strict] [--walks 3] [--list]`
//!
//! Each file below the directory is a JSON schema. Public collections are <https://github.com/guidance-ai/jsonschemabench>
//! (`data/`) and <https://github.com/SchemaStore/schemastore> (`src/schemas/json/`). With `--walks`, that many random walks
//! go through the grammar of each accepted schema; texts of those that end are validated by the crate `jsonschema` against
//! the schema without what is not enforced of it. `--list` prints why schemas are refused, what is not enforced, and what is
//! not valid.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use omnibus_grammar::{
    Compiled, Compiler, Grammar, GrammarLimits, MatchState, Matcher, Opening, SchemaUse, TokenMask,
    Vocabulary, Whitespace, check,
};
use omnibus_text::{SkipSpecial, Tokenizer};
use serde_json::Value;

/// Tokens after which a walk takes what ends texts, lists and objects, and after which it is given up.
const TOKENS: [usize; 2] = [60, 2_000];

#[derive(Default)]
struct Counts {
    accepted: usize,
    with_losses: usize,
    finished: usize,
    unfinished: usize,
    failed: usize,
    invalid: usize,
    without_validator: usize,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let walks = arguments.iter().position(|argument| argument == "--walks");
    let walks = walks.map_or(0, |at| arguments[at + 1].parse().expect("a number of walks"));
    let schema_use = if has("--strict") { SchemaUse::Strict } else { SchemaUse::Lenient };
    let mut files = Vec::new();
    collect(Path::new(arguments.first().expect("a directory of schemas")), &mut files);
    files.sort();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini");
    let tokenizer = Arc::new(Tokenizer::from_dir(&model, None).expect("the embedded model's tokenizer"));
    let vocab = tokenizer.vocab_size().next_multiple_of(64);
    let vocabulary = Vocabulary::new(Arc::clone(&tokenizer), vocab);
    let compiler = Compiler::new(vocabulary, GrammarLimits::default()).unwrap();
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(Counts::default()));
    let report = |file: &Path, what: String| {
        if has("--list") {
            println!("{}\t{what}", file.display());
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let text = std::fs::read_to_string(file).unwrap();
                    let Ok(schema) = serde_json::from_str::<Value>(&text) else { continue };
                    let grammar = Grammar::JsonSchema {
                        schema: schema.to_string(),
                        whitespace: Whitespace::Usual,
                        schema_use,
                    };
                    let compiled = match compiler.compile(&grammar, 1) {
                        Ok(compiled) => compiled,
                        Err(error) => {
                            report(file, format!("refused: {}", error.message));
                            continue;
                        }
                    };
                    let lost = check(&grammar, &GrammarLimits::default()).unwrap();
                    lost.iter().for_each(|pointer| report(file, format!("not enforced: {pointer}")));
                    let validator = validator(schema, &lost);
                    {
                        let mut counts = counts.lock().unwrap();
                        counts.accepted += 1;
                        counts.with_losses += usize::from(!lost.is_empty());
                        counts.without_validator += usize::from(validator.is_none());
                    }
                    for seed in 0..walks {
                        let end = walk(&compiled, &tokenizer, seed);
                        let mut counts = counts.lock().unwrap();
                        match (end, &validator) {
                            (End::Unfinished, _) => counts.unfinished += 1,
                            (End::Failed(why), _) => {
                                counts.failed += 1;
                                report(file, format!("failed: {why}"));
                            }
                            (End::Text(text), Some(validator)) => {
                                counts.finished += 1;
                                if let Err(why) = validated(validator, &text) {
                                    counts.invalid += 1;
                                    report(file, format!("invalid: {why} in {text}"));
                                }
                            }
                            (End::Text(_), None) => {}
                        }
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    let share = 100.0 * counts.accepted as f64 / files.len() as f64;
    println!(
        "{} of {} accepted ({share:.1} %), {} not as a whole",
        counts.accepted,
        files.len(),
        counts.with_losses
    );
    println!(
        "walks: {} ended and {} of these are not valid; {} did not end, {} failed; {} schemas have no validator",
        counts.finished, counts.invalid, counts.unfinished, counts.failed, counts.without_validator
    );
}

/// A validator of what is enforced.
fn validator(mut schema: Value, lost: &[String]) -> Option<jsonschema::Validator> {
    for pointer in lost {
        let (parent, key) = pointer.rsplit_once('/')?;
        let Some(Value::Object(parent)) = schema.pointer_mut(parent) else { continue };
        let key = key.replace("~1", "/").replace("~0", "~");
        let removed = parent.remove(&key);
        match (key.as_str(), removed) {
            ("oneOf", Some(branches)) if !parent.contains_key("anyOf") => {
                parent.insert("anyOf".to_owned(), branches);
            }
            ("if", _) => {
                parent.remove("then");
                parent.remove("else");
            }
            ("contains", _) => {
                parent.remove("minContains");
                parent.remove("maxContains");
            }
            _ => {}
        }
    }
    jsonschema::options()
        .should_validate_formats(true)
        .should_ignore_unknown_formats(true)
        .build(&schema)
        .ok()
}

fn validated(validator: &jsonschema::Validator, text: &str) -> Result<(), String> {
    // JSON has numbers that the validator has not: beyond 64 bits, and a whole number of -0.
    let mut value: Value = match serde_json::from_str(text) {
        Err(error) if error.to_string().contains("out of range") => return Ok(()),
        result => result.map_err(|error| error.to_string())?,
    };
    without_negative_zero(&mut value);
    let error = |error: jsonschema::ValidationError<'_>| {
        format!("{error} ({} at {})", error.schema_path(), error.instance_path())
    };
    validator.validate(&value).map_err(error)
}

fn without_negative_zero(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => *value = 0.into(),
        Value::Array(items) => items.iter_mut().for_each(without_negative_zero),
        Value::Object(members) => members.values_mut().for_each(without_negative_zero),
        _ => {}
    }
}

/// How a walk ends.
enum End {
    Text(String),
    Unfinished,
    Failed(String),
}

fn walk(compiled: &Compiled, tokenizer: &Tokenizer, seed: u64) -> End {
    let stop = tokenizer.eos_ids().iter().next().copied().unwrap();
    let mut matcher = Matcher::new(compiled, &Opening::default(), &[stop]);
    let mut tokens = Vec::new();
    while tokens.len() < TOKENS[1] {
        let mask = match matcher.mask() {
            Ok(mask) => mask,
            Err(error) => return End::Failed(error.message),
        };
        let token = pick(&mask, tokenizer, seed, tokens.len());
        if token == stop {
            return End::Text(tokenizer.decode(&tokens, SkipSpecial::No));
        }
        tokens.push(token);
        match matcher.accept(token) {
            Ok(MatchState::Finished) => return End::Text(tokenizer.decode(&tokens, SkipSpecial::No)),
            Ok(_) => {}
            Err(error) => return End::Failed(error.message),
        }
    }
    End::Unfinished
}

/// An allowed token, which depends on the seed and the position only.
fn pick(mask: &TokenMask, tokenizer: &Tokenizer, seed: u64, position: usize) -> u32 {
    let vocab = tokenizer.vocab_size() as u32;
    let allowed: Vec<u32> = (0..vocab).filter(|token| mask.allows(*token)).collect();
    let mut state =
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (position as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    state ^= state >> 31;
    state = state.wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^= state >> 29;
    if position > TOKENS[0] || state.is_multiple_of(3) {
        let ends = |token: &&u32| {
            let piece = tokenizer.id_to_piece(**token).unwrap_or_default();
            tokenizer.eos_ids().contains(*token) || matches!(piece.as_slice(), b"}" | b"]" | b"\"")
        };
        if let Some(token) = allowed.iter().find(ends) {
            return *token;
        }
    }
    allowed[(state % allowed.len() as u64) as usize]
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
}
