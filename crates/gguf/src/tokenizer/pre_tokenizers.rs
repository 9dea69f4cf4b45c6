//! How text is divided before merges, by the name that a file has for it.
//!
//! Source: llama.cpp `src/llama-vocab.cpp` (`LLAMA_VOCAB_PRE_TYPE_…`), with the patterns of the published tokenizers.

use serde_json::{Value, json};

/// Steps of a tokenizer before its merges.
pub struct PreTokenizer {
    /// `normalizer`.
    pub normalizer: Value,
    /// `pre_tokenizer`.
    pub steps: Value,
    /// Words that are tokens are not merged (`ignore_merges`).
    pub whole_words_first: bool,
}

/// How text is divided.
#[derive(Clone, Copy)]
enum Division {
    /// GPT-2's pattern.
    Gpt2,
    /// GPT-2's pattern between single digits.
    SingleDigits,
    /// GPT-2's pattern between single digits, on text in Unicode's composed form.
    ComposedSingleDigits,
    /// A pattern.
    Pattern(&'static str),
    /// A pattern on text in Unicode's composed form.
    ComposedPattern(&'static str),
    /// Patterns, each of which divides what those before it left in one piece.
    Patterns(&'static [&'static str]),
    /// A pattern; words that are tokens are not merged.
    WholeWords(&'static str),
}

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &[&str] = &[
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SEED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";

const DIVISIONS: &[(&str, Division)] = &[
    ("default", Division::Gpt2),
    ("gpt-2", Division::Gpt2),
    ("gpt2", Division::Gpt2),
    ("olmo", Division::Gpt2),
    ("granite-docling", Division::Gpt2),
    ("phi-2", Division::Gpt2),
    ("exaone4", Division::Gpt2),
    ("smollm", Division::SingleDigits),
    ("starcoder", Division::SingleDigits),
    ("refact", Division::SingleDigits),
    ("command-r", Division::ComposedSingleDigits),
    ("llama3", Division::WholeWords(LLAMA3)),
    ("llama-v3", Division::WholeWords(LLAMA3)),
    ("llama-bpe", Division::WholeWords(LLAMA3)),
    ("lfm2", Division::WholeWords(LLAMA3)),
    ("glm4", Division::Pattern(LLAMA3)),
    ("chatglm-bpe", Division::Pattern(LLAMA3)),
    ("dbrx", Division::Pattern(LLAMA3)),
    ("smaug-bpe", Division::Pattern(LLAMA3)),
    ("qwen2", Division::ComposedPattern(QWEN2)),
    ("deepseek-r1-qwen", Division::ComposedPattern(QWEN2)),
    ("qwen35", Division::ComposedPattern(QWEN35)),
    ("deepseek-v3", Division::Patterns(DEEPSEEK3)),
    ("hunyuan-dense", Division::Patterns(DEEPSEEK3)),
    ("tekken", Division::WholeWords(TEKKEN)),
    ("gpt-4o", Division::Pattern(GPT4O)),
    ("seed-coder", Division::Pattern(SEED)),
];

/// The steps with this name.
pub fn of(name: &str) -> Option<PreTokenizer> {
    let (_, division) = DIVISIONS.iter().find(|(known, _)| *known == name)?;
    let bytes = |pattern: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": pattern });
    let sequence = |steps: Vec<Value>| json!({ "type": "Sequence", "pretokenizers": steps });
    let split = |pattern: &str| json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
    let composed = json!({ "type": "NFC" });
    let digits = json!({ "type": "Digits", "individual_digits": true });
    let (normalizer, steps, whole_words_first) = match *division {
        Division::Gpt2 => (Value::Null, bytes(true), false),
        Division::SingleDigits => (Value::Null, sequence(vec![digits, bytes(true)]), false),
        Division::ComposedSingleDigits => (composed, sequence(vec![digits, bytes(true)]), false),
        Division::Patterns(patterns) => {
            let splits = patterns.iter().map(|pattern| split(pattern));
            (Value::Null, sequence(splits.chain([bytes(false)]).collect()), false)
        }
        Division::Pattern(pattern) => (Value::Null, sequence(vec![split(pattern), bytes(false)]), false),
        Division::ComposedPattern(pattern) => (composed, sequence(vec![split(pattern), bytes(false)]), false),
        Division::WholeWords(pattern) => (Value::Null, sequence(vec![split(pattern), bytes(false)]), true),
    };
    Some(PreTokenizer { normalizer, steps, whole_words_first })
}
