//! Whisper's special tokens.
//!
//! Source: arXiv 2212.04356 §2.3. After the text's tokens come, in this order: the end, the start, languages, tasks, marks
//! of prompts and of silence, the mark of answers without times, and times in steps of 0.02 s.

use std::collections::BTreeMap;

use omnibus_model::Source;
use omnibus_text::Tokenizer;
use serde_json::{Map, Value};

/// Seconds between two tokens of time.
pub(crate) const TIME_STEP_S: f64 = 0.02;

/// The latest time that an answer may begin with, in seconds, if the files do not say so.
const FIRST_TIME_MAX_S: f64 = 1.0;

/// The tokens of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpeechTokens {
    pub(crate) end: u32,
    pub(crate) start: u32,
    /// By their codes; empty for models of English alone.
    pub(crate) languages: BTreeMap<String, u32>,
    pub(crate) translate: Option<u32>,
    pub(crate) transcribe: Option<u32>,
    /// Before a text of before.
    pub(crate) previous: Option<u32>,
    pub(crate) no_speech: Option<u32>,
    /// The first token of time follows it.
    pub(crate) no_times: u32,
    /// Never written.
    pub(crate) suppressed: Vec<u32>,
    /// Never written first.
    pub(crate) not_first: Vec<u32>,
    /// The latest token of time that an answer may begin with.
    pub(crate) latest_first_time: u32,
    /// Heads of cross attention that follow the sound: layer and head. Empty if the files do not say.
    pub(crate) aligned_heads: Vec<(usize, usize)>,
}

impl SpeechTokens {
    /// Special tokens of a model that transcribes speech; `None` for other models.
    pub(crate) fn read(source: &Source, tokenizer: &Tokenizer) -> Option<Self> {
        let config = source.json("config.json").ok()?;
        if config.get("model_type").and_then(Value::as_str) != Some("whisper") {
            return None;
        }
        let generation = source.json("generation_config.json").unwrap_or_default();
        Self::of(tokenizer, &config, &generation)
    }

    fn of(
        tokenizer: &Tokenizer,
        config: &Map<String, Value>,
        generation: &Map<String, Value>,
    ) -> Option<Self> {
        let id = |text: &str| tokenizer.token_to_id(text);
        let (end, start) = (id("<|endoftext|>")?, id("<|startoftranscript|>")?);
        let no_times = id("<|notimestamps|>")?;
        let translate = id("<|translate|>");
        let code = |id: u32| {
            let token = tokenizer.id_to_token(id)?;
            Some((token.strip_prefix("<|")?.strip_suffix("|>")?.to_owned(), id))
        };
        let languages = translate.map(|first_task| (start + 1..first_task).filter_map(code).collect());
        let listed = |field: &str| -> Vec<u32> {
            let list = generation.get(field).or(config.get(field)).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(|id| id.as_u64()?.try_into().ok()).collect()
        };
        // English models have the tokens of languages, too, and were not trained with them.
        let is_of_english = generation.get("is_multilingual") == Some(&Value::Bool(false));
        let latest = generation.get("max_initial_timestamp_index").and_then(Value::as_u64);
        let latest = latest.map_or((FIRST_TIME_MAX_S / TIME_STEP_S).round() as u32, |steps| steps as u32);
        let mut suppressed = listed("suppress_tokens");
        // Marks of the prompt.
        suppressed.extend((start..=no_times).filter(|id| !suppressed.contains(id)).collect::<Vec<_>>());
        Some(Self {
            end,
            start,
            languages: languages.filter(|_| !is_of_english).unwrap_or_default(),
            translate,
            transcribe: id("<|transcribe|>"),
            previous: id("<|startofprev|>"),
            no_speech: id("<|nospeech|>").or(id("<|nocaptions|>")),
            no_times,
            suppressed,
            not_first: listed("begin_suppress_tokens"),
            latest_first_time: no_times + 1 + latest,
            aligned_heads: aligned_heads(config, generation),
        })
    }

    /// The token of 0.00 s.
    pub(crate) fn first_time(&self) -> u32 {
        self.no_times + 1
    }

    /// The time that a token is, in steps; `None` for others.
    pub(crate) fn time(&self, token: u32) -> Option<u32> {
        token.checked_sub(self.first_time())
    }

    /// Whether a token is text.
    pub(crate) fn is_text(&self, token: u32) -> bool {
        token < self.end
    }
}

/// `alignment_heads` of a checkpoint's generation settings, if the model has all of them.
fn aligned_heads(config: &Map<String, Value>, generation: &Map<String, Value>) -> Vec<(usize, usize)> {
    let pair = |pair: &Value| serde_json::from_value::<(usize, usize)>(pair.clone()).ok();
    let listed = generation.get("alignment_heads").and_then(Value::as_array);
    let heads: Option<Vec<_>> = listed.into_iter().flatten().map(pair).collect();
    let size = |field: &str| config.get(field).and_then(Value::as_u64).unwrap_or(0) as usize;
    let (layers, of_layer) = (size("decoder_layers"), size("decoder_attention_heads"));
    let exist = |heads: &Vec<_>| heads.iter().all(|(layer, head)| *layer < layers && *head < of_layer);
    let mut heads = heads.filter(exist).unwrap_or_default();
    heads.sort_unstable();
    heads.dedup();
    heads
}
