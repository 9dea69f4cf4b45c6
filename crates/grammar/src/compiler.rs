//! Compiles grammars for a model, and keeps the compiled ones.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::toktrie::InferenceCapabilities;
use llguidance::{JsonCompileOptions, ParserFactory};
use serde_json::{Value, json};

use crate::cache::Cache;
use crate::compiled::Compiled;
use crate::error::GrammarError;
use crate::grammar::{Grammar, Whitespace, check};
use crate::limits::GrammarLimits;
use crate::vocabulary::Vocabulary;
use crate::{lark, schema};

/// Symbols of a compiled grammar, some megabytes of JSON schema.
const SYMBOLS_MAX: usize = 300_000;
/// Bytes of stack while a grammar is compiled: llguidance follows each reference and rule with a call, and a grammar of the
/// default [`GrammarLimits::bytes`] has up to twenty thousand of them in a chain. Only what is used takes memory.
const STACK_BYTES: usize = 512 << 20;
/// Work for the first states of a lexer, in llguidance's units of 20 ns.
const INITIAL_LEXER_FUEL: u64 = 1_000_000;
/// Work of one mask in the lexer, in llguidance's units of 70 ns.
const STEP_LEXER_FUEL: u64 = 150_000;
/// Work of one mask in the parser, in llguidance's units of 50 ns.
const STEP_ITEMS_MAX: usize = 50_000;

/// Compiles grammars for one model. Shared by threads.
pub struct Compiler {
    factory: ParserFactory,
    vocabulary: Vocabulary,
    limits: GrammarLimits,
    cache: Mutex<Cache<Compiled>>,
    hits: AtomicU64,
}

impl Compiler {
    /// A compiler for a model's tokens.
    pub fn new(vocabulary: Vocabulary, limits: GrammarLimits) -> Result<Self, GrammarError> {
        let capabilities = InferenceCapabilities { ff_tokens: true, ..InferenceCapabilities::default() };
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&vocabulary.env, capabilities, &slices)
            .map_err(|error| GrammarError::of_engine(&error))?;
        factory.quiet();
        let engine = factory.limits_mut();
        engine.verbose_errors = false;
        engine.max_lexer_states = limits.states;
        engine.max_grammar_size = SYMBOLS_MAX;
        engine.max_items_in_row = STEP_ITEMS_MAX;
        engine.initial_lexer_fuel = INITIAL_LEXER_FUEL;
        engine.step_lexer_fuel = STEP_LEXER_FUEL;
        engine.step_max_items = STEP_ITEMS_MAX;
        let cache = Mutex::new(Cache::new(limits.cached));
        Ok(Self { factory, vocabulary, limits, cache, hits: AtomicU64::new(0) })
    }

    /// The compiled grammar, from the cache if it is there. `copies`: how many threads compute masks of it at once.
    pub fn compile(&self, grammar: &Grammar, copies: usize) -> Result<Compiled, GrammarError> {
        let key = key(grammar);
        if let Some(compiled) = self.cache().get(key) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(compiled);
        }
        check(grammar, &self.limits)?;
        let (top, words) = self.top_level(grammar)?;
        let compiled = on_deep_stack(|| {
            let parser = guarded(|| self.factory.create_parser(top), &words)?;
            let matcher = llguidance::Matcher::new(Ok(parser));
            match matcher.get_error() {
                Some(error) => Err(words.error(&error)),
                None => Ok(Compiled::new(key, &matcher, copies, self.vocabulary.clone())),
            }
        })?;
        self.cache().insert(key, compiled.clone());
        Ok(compiled)
    }

    /// How many grammars were found in the cache so far.
    pub fn cache_hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Forgets a compiled grammar whose shared state may have met a limit.
    pub fn evict(&self, compiled: &Compiled) {
        self.cache().remove(compiled.key());
    }

    fn cache(&self) -> MutexGuard<'_, Cache<Compiled>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn top_level(&self, grammar: &Grammar) -> Result<(TopLevelGrammar, Words), GrammarError> {
        let object = || json!({ "type": "object" });
        let mut words = Words::Grammar;
        let grammar = match grammar {
            Grammar::JsonObject => json_grammar(object(), Whitespace::Usual),
            Grammar::JsonSchema { schema: text, whitespace, schema_use } => {
                let enforced = schema::read(text, *schema_use, &self.limits)?;
                words = Words::Schema(enforced.places);
                json_grammar(enforced.schema, *whitespace)
            }
            Grammar::Regex(text) => GrammarWithLexer::from_lark(lark::regex(text)),
            Grammar::Choice(texts) => {
                let literals: Vec<String> = texts.iter().map(|text| lark::literal(text)).collect();
                GrammarWithLexer::from_lark(format!("start: {}", literals.join(" | ")))
            }
            Grammar::Lark(text) => GrammarWithLexer::from_lark(text.clone()),
        };
        Ok((TopLevelGrammar::from_grammar(grammar), words))
    }
}

/// What errors of llguidance speak of.
enum Words {
    /// The grammar.
    Grammar,
    /// A schema, with the places of its definitions.
    Schema(BTreeMap<String, String>),
}

impl Words {
    fn error(&self, error: &impl std::fmt::Display) -> GrammarError {
        match self {
            Self::Grammar => GrammarError::of_engine(error),
            Self::Schema(places) => GrammarError::of_schema(error, |name| places.get(name).cloned()),
        }
    }
}

fn json_grammar(mut schema: Value, whitespace: Whitespace) -> GrammarWithLexer {
    let mut options = JsonCompileOptions::default();
    match whitespace {
        Whitespace::Usual => options.whitespace_pattern = Some(lark::USUAL_WHITESPACE.to_owned()),
        Whitespace::None => options.whitespace_flexible = false,
    }
    match schema {
        Value::Bool(true) => schema = json!({}),
        Value::Bool(false) => schema = json!({ "enum": [] }),
        _ => {}
    }
    options.apply_to(&mut schema);
    GrammarWithLexer::from_json_schema(schema)
}

/// Equal for equal grammars.
fn key(grammar: &Grammar) -> u128 {
    let text = match grammar {
        Grammar::JsonObject => "object".to_owned(),
        Grammar::JsonSchema { schema, whitespace, schema_use } => {
            format!("schema {whitespace:?} {schema_use:?} {schema}")
        }
        Grammar::Regex(text) => format!("regex {text}"),
        Grammar::Choice(texts) => format!("choice {texts:?}"),
        Grammar::Lark(text) => format!("lark {text}"),
    };
    xxhash_rust::xxh3::xxh3_128(text.as_bytes())
}

/// Runs on a thread with a stack for deep recursion.
fn on_deep_stack<T: Send>(work: impl FnOnce() -> Result<T, GrammarError> + Send) -> Result<T, GrammarError> {
    let failed = |what: &str| GrammarError::at("", format!("the grammar could not be compiled: {what}"));
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("grammar".to_owned()).stack_size(STACK_BYTES);
        let running = thread.spawn_scoped(scope, work).map_err(|error| failed(&error.to_string()))?;
        running.join().unwrap_or_else(|_| Err(failed("it stopped")))
    })
}

/// Runs a call into llguidance. Its panics on hostile grammars become errors.
fn guarded<T, E: std::fmt::Display>(
    call: impl FnOnce() -> Result<T, E>,
    words: &Words,
) -> Result<T, GrammarError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| words.error(&error)),
        Err(_) => Err(GrammarError::at("", "the grammar cannot be compiled")),
    }
}
