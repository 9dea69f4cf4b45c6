//! The embedded model's tokenizer with a few more special tokens, and random walks through a grammar.
#![allow(dead_code)]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use omnibus_grammar::{
    Compiler, Grammar, GrammarLimits, MatchState, Matcher, Opening, TokenMask, Vocabulary,
};
use omnibus_text::{AddSpecial, SkipSpecial, Tokenizer};
use serde_json::{Value, json};

/// Markers of calls that are special tokens here, as in the tokenizers of some of these models; those of other formats
/// are plain text.
const SPECIAL: &[&str] =
    &["<escape>", "<|open|>", "<|close|>", "<|sep|>", "]<]minimax[>[", "<|tool_calls|>", "<|end|>"];

static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("special-tokens-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for file in ["config.json", "tokenizer_config.json"] {
        std::fs::copy(from.join(file), dir.join(file)).unwrap();
    }
    let text = std::fs::read_to_string(from.join("tokenizer.json")).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let added = file["added_tokens"].as_array_mut().unwrap();
    let first = 1 + added.iter().filter_map(|token| token["id"].as_u64()).max().unwrap();
    added.extend(SPECIAL.iter().zip(first..).map(|(content, id)| {
        json!({ "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true })
    }));
    std::fs::write(dir.join("tokenizer.json"), file.to_string()).unwrap();
    let tokenizer = Tokenizer::from_dir(&dir, None).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    Arc::new(tokenizer)
});

static COMPILER: LazyLock<Compiler> = LazyLock::new(|| compiler(GrammarLimits::default()));

pub fn tokenizer() -> Arc<Tokenizer> {
    Arc::clone(&TOKENIZER)
}

/// A few more tokens than the tokenizer has, as models do.
pub fn vocab() -> usize {
    TOKENIZER.vocab_size().next_multiple_of(64) + 5
}

pub fn compiler(limits: GrammarLimits) -> Compiler {
    Compiler::new(Vocabulary::new(tokenizer(), vocab()), limits).unwrap()
}

pub fn encode(text: &str) -> Vec<u32> {
    TOKENIZER.encode(text, AddSpecial::No).unwrap()
}

/// How a walk goes.
pub struct Walk<'a> {
    pub grammar: &'a Grammar,
    pub seed: u64,
    pub take_forced: bool,
    pub tokens_max: usize,
    /// A text that is written again and again, as far as it is allowed: what ends free text.
    pub ending: &'a str,
}

/// What came of a walk.
#[derive(Debug, PartialEq)]
pub struct Walked {
    pub tokens: Vec<u32>,
    pub text: String,
    pub forced: usize,
}

impl<'a> Walk<'a> {
    pub fn new(grammar: &'a Grammar, seed: u64) -> Self {
        Self { grammar, seed, take_forced: true, tokens_max: 2000, ending: "" }
    }

    pub fn run(&self) -> Walked {
        let stop = TOKENIZER.eos_ids().iter().next().copied().unwrap();
        let compiled = COMPILER.compile(self.grammar, 2).unwrap();
        let mut matcher = Matcher::new(&compiled, &Opening::default(), &[stop]);
        let ending = encode(self.ending);
        let period = (ending.len() + 4).max(20);
        let (mut tokens, mut forced) = (Vec::new(), 0);
        loop {
            assert!(tokens.len() < self.tokens_max, "an endless walk: {}", text(&tokens));
            let mask = matcher.mask().unwrap();
            if mask.allows(stop) && tokens.len() > 300 {
                return Walked { text: text(&tokens), tokens, forced };
            }
            let wanted = ending.get(tokens.len() % period).copied().filter(|token| mask.allows(*token));
            let token = wanted.unwrap_or_else(|| pick(&mask, self.seed, tokens.len()));
            if token == stop {
                return Walked { text: text(&tokens), tokens, forced };
            }
            tokens.push(token);
            let mut state = matcher.accept(token).unwrap();
            if state == MatchState::Open && self.take_forced {
                let jump = matcher.take_forced(100).unwrap();
                forced += jump.tokens.len();
                tokens.extend(jump.tokens);
                state = jump.state;
            }
            if state == MatchState::Finished {
                return Walked { text: text(&tokens), tokens, forced };
            }
        }
    }
}

/// What is left of a text when as much of it was written as the grammar allows.
pub fn rest_of(grammar: &Grammar, text: &str) -> String {
    let compiled = COMPILER.compile(grammar, 1).unwrap();
    let mut matcher = Matcher::new(&compiled, &Opening::default(), &[]);
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let mask = matcher.mask().unwrap();
        let piece = |token: u32| TOKENIZER.id_to_piece(token).unwrap_or_default();
        let allowed = (0..vocab() as u32).filter(|token| mask.allows(*token));
        let fits = allowed.filter(|token| !piece(*token).is_empty() && rest.starts_with(&piece(*token)));
        let Some(token) = fits.max_by_key(|token| piece(*token).len()) else { break };
        matcher.accept(token).unwrap();
        rest = &rest[piece(token).len()..];
    }
    String::from_utf8_lossy(rest).into_owned()
}

pub fn walk(grammar: &Grammar, seed: u64) -> Walked {
    Walk::new(grammar, seed).run()
}

fn text(tokens: &[u32]) -> String {
    TOKENIZER.decode(tokens, SkipSpecial::No)
}

/// An allowed token, which depends on the seed and the position only.
fn pick(mask: &TokenMask, seed: u64, position: usize) -> u32 {
    let allowed: Vec<u32> = (0..vocab() as u32).filter(|token| mask.allows(*token)).collect();
    let mut state =
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (position as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03);
    state ^= state >> 31;
    state = state.wrapping_mul(0x94D0_49BB_1331_11EB);
    state ^= state >> 29;
    allowed[(state % allowed.len() as u64) as usize]
}
