//! The embedded model's tokenizer, and random walks through a grammar.
#![allow(dead_code)]

use std::path::Path;
use std::sync::{Arc, LazyLock};

use omnibus_grammar::{
    Compiler, Grammar, GrammarLimits, MatchState, Matcher, Opening, TokenMask, Vocabulary,
};
use omnibus_text::{AddSpecial, SkipSpecial, Tokenizer};

static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/models/omnibus-mini");
    Arc::new(Tokenizer::from_dir(&path, None).unwrap())
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
    /// A text that is written every twenty tokens, as far as it is allowed: what ends free text.
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
        let (mut tokens, mut forced) = (Vec::new(), 0);
        loop {
            assert!(tokens.len() < self.tokens_max, "an endless walk: {}", text(&tokens));
            let mask = matcher.mask().unwrap();
            if mask.allows(stop) && tokens.len() > 300 {
                return Walked { text: text(&tokens), tokens, forced };
            }
            let wanted = ending.get(tokens.len() % 20).copied().filter(|token| mask.allows(*token));
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
