//! Reads a checkpoint's `config.json` and records which fields were read.
//!
//! A field that is never read is an error ([`Config::finish`]): a model without its `attn_output_gate` would load, run, and
//! produce nonsense. [`IGNORABLE`] lists fields that do not change the network, each with the reason.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::rc::Rc;

use serde_json::{Map, Value};
use thiserror::Error;

/// Fields that do not change the network, and why.
pub const IGNORABLE: &[(&str, &str)] = &[
    ("architectures", "model_type chooses the family"),
    ("_attn_implementation_autoset", "provenance"),
    ("auto_map", "a checkpoint's code is never run"),
    ("model_type", "read before the family is known"),
    ("torch_dtype", "the tensors carry their own dtype"),
    ("dtype", "the tensors carry their own dtype"),
    ("transformers_version", "provenance"),
    ("_name_or_path", "provenance"),
    ("_from_model_config", "provenance"),
    ("quantization", "read with the weights"),
    ("quantization_config", "read with the weights"),
    ("_note", "a comment"),
    ("use_cache", "always on"),
    ("cache_implementation", "the blueprint declares the state"),
    ("bos_token_id", "the text crate reads it"),
    ("eos_token_id", "the text crate reads it"),
    ("pad_token_id", "batches are not padded with tokens"),
    ("tokenizer", "the text crate reads its own files"),
    ("tokenizer_class", "the text crate reads its own files"),
    ("attention_dropout", "training"),
    ("hidden_dropout", "training"),
    ("initializer_range", "training"),
    ("output_router_logits", "training"),
    ("router_aux_loss_coef", "training"),
    ("pretraining_tp", "how the checkpoint was trained, not what it computes"),
    ("sequence_parallel_enabled", "how the checkpoint was trained"),
    ("selective_checkpoint_enabled", "how the checkpoint was trained"),
    ("move_model_to_device", "how the checkpoint was trained"),
    ("max_window_layers", "use_sliding_window is required to be false"),
    ("max_sequence_length", "max_position_embeddings says the same"),
    ("mask_value", "masks are boolean"),
    ("id2label", "names of a classifier's outputs"),
    ("label2id", "names of a classifier's outputs"),
    ("num_labels", "how many outputs a classifier has"),
    ("problem_type", "what a classifier's outputs become"),
    ("sentence_transformers", "what a reranker's score becomes"),
    ("add_cross_attention", GENERATION),
    ("bad_words_ids", GENERATION),
    ("begin_suppress_tokens", GENERATION),
    ("chunk_size_feed_forward", GENERATION),
    ("cross_attention_hidden_size", GENERATION),
    ("decoder_start_token_id", GENERATION),
    ("diversity_penalty", GENERATION),
    ("do_sample", GENERATION),
    ("early_stopping", GENERATION),
    ("encoder_no_repeat_ngram_size", GENERATION),
    ("exponential_decay_length_penalty", GENERATION),
    ("finetuning_task", GENERATION),
    ("forced_bos_token_id", GENERATION),
    ("forced_eos_token_id", GENERATION),
    ("is_decoder", GENERATION),
    ("is_encoder_decoder", GENERATION),
    ("length_penalty", GENERATION),
    ("max_length", GENERATION),
    ("min_length", GENERATION),
    ("no_repeat_ngram_size", GENERATION),
    ("num_beam_groups", GENERATION),
    ("num_beams", GENERATION),
    ("num_return_sequences", GENERATION),
    ("output_attentions", GENERATION),
    ("output_hidden_states", GENERATION),
    ("output_scores", GENERATION),
    ("prefix", GENERATION),
    ("problem_type", GENERATION),
    ("pruned_heads", GENERATION),
    ("remove_invalid_values", GENERATION),
    ("repetition_penalty", GENERATION),
    ("return_dict", GENERATION),
    ("return_dict_in_generate", GENERATION),
    ("sep_token_id", GENERATION),
    ("suppress_tokens", GENERATION),
    ("task_specific_params", GENERATION),
    ("temperature", GENERATION),
    ("tf_legacy_loss", GENERATION),
    ("tie_encoder_decoder", GENERATION),
    ("top_k", GENERATION),
    ("top_p", GENERATION),
    ("torchscript", GENERATION),
    ("typical_p", GENERATION),
    ("use_bfloat16", GENERATION),
];

/// Old configs carry every default of Hugging Face's base class.
const GENERATION: &str = "a default of generation or training that older writers saved with the network";

/// What is wrong with a `config.json`. Every message names the field by its dotted path.
#[derive(Debug, Error, PartialEq)]
#[allow(missing_docs)]
pub enum ConfigError {
    #[error("`{field}` is missing")]
    Missing { field: String },
    #[error("`{field}` should be {want}, not {found}")]
    Type { field: String, want: &'static str, found: Value },
    #[error("`{field}` is {found}; supported: {supported}")]
    Unsupported { field: String, found: String, supported: String },
    #[error("does not hold: {}", rules.join("; "))]
    Inconsistent { rules: Vec<String> },
    #[error("unknown or unsupported field: {}", fields.join(", "))]
    Unread { fields: Vec<String> },
}

/// A Rust type a config field may hold.
pub trait Field: Sized {
    /// How an error message names the type.
    const WANT: &'static str;
    /// `None` when the value is of another type.
    fn from_json(value: &Value) -> Option<Self>;
}

impl Field for usize {
    const WANT: &'static str = "a whole number";
    fn from_json(value: &Value) -> Option<Self> {
        value.as_u64()?.try_into().ok()
    }
}

impl Field for NonZeroUsize {
    const WANT: &'static str = "a positive whole number";
    fn from_json(value: &Value) -> Option<Self> {
        usize::from_json(value)?.try_into().ok()
    }
}

impl Field for f32 {
    const WANT: &'static str = "a finite number";
    fn from_json(value: &Value) -> Option<Self> {
        value.as_f64().map(|number| number as f32).filter(|number| number.is_finite())
    }
}

/// A limit, which may be infinite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit(pub f32);

impl Field for Limit {
    const WANT: &'static str = "a number or Infinity";
    fn from_json(value: &Value) -> Option<Self> {
        match value {
            // JSON has no infinity; Python writes one all the same, which our reader puts in quotes.
            Value::String(text) if text == "Infinity" => Some(Self(f32::INFINITY)),
            _ => f32::from_json(value).map(Self),
        }
    }
}

impl Field for bool {
    const WANT: &'static str = "true or false";
    fn from_json(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl Field for String {
    const WANT: &'static str = "a string";
    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
}

impl<T: Field> Field for Vec<T> {
    const WANT: &'static str = "a list";
    fn from_json(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::from_json).collect()
    }
}

impl<T: Field, const N: usize> Field for [T; N] {
    const WANT: &'static str = "a list of fixed length";
    fn from_json(value: &Value) -> Option<Self> {
        Vec::from_json(value)?.try_into().ok()
    }
}

/// One JSON object of a config, and the record of which fields were read.
///
/// A null field counts as absent everywhere.
pub struct Config<'a> {
    fields: &'a Map<String, Value>,
    /// What fields mean that are absent.
    absent: Option<&'static Map<String, Value>>,
    prefix: String,
    read: Rc<RefCell<BTreeSet<String>>>,
    /// Fields that were passed by whole, sections included.
    passed: Rc<RefCell<BTreeSet<String>>>,
}

impl<'a> Config<'a> {
    /// Wraps the top-level object.
    pub fn new(fields: &'a Map<String, Value>) -> Self {
        Self { fields, absent: None, prefix: String::new(), read: Rc::default(), passed: Rc::default() }
    }

    /// This config where absent fields have these values.
    pub(crate) fn with_absent(self, absent: &'static Map<String, Value>) -> Self {
        Self { absent: Some(absent), ..self }
    }

    /// A field that may be absent.
    pub fn opt<T: Field>(&self, field: &str) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        match T::from_json(value) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(ConfigError::Type { field: self.path(field), want: T::WANT, found: value.clone() }),
        }
    }

    /// A field that must be there.
    pub fn req<T: Field>(&self, field: &str) -> Result<T, ConfigError> {
        self.opt(field)?.ok_or_else(|| ConfigError::Missing { field: self.path(field) })
    }

    /// A field with a default.
    pub fn or<T: Field>(&self, field: &str, absent: T) -> Result<T, ConfigError> {
        Ok(self.opt(field)?.unwrap_or(absent))
    }

    /// A string that names one of `choices`.
    pub fn choice<T: Copy>(&self, field: &str, choices: &[(&str, T)]) -> Result<T, ConfigError> {
        self.choice_opt(field, choices)?.ok_or_else(|| ConfigError::Missing { field: self.path(field) })
    }

    /// A string that names one of `choices`, if it is there at all.
    pub fn choice_opt<T: Copy>(&self, field: &str, choices: &[(&str, T)]) -> Result<Option<T>, ConfigError> {
        let Some(found) = self.opt::<String>(field)? else { return Ok(None) };
        match choices.iter().find(|(name, _)| *name == found) {
            Some((_, meaning)) => Ok(Some(*meaning)),
            None => Err(self.unsupported(field, found, choices.iter().map(|(name, _)| *name).collect())),
        }
    }

    /// A field that is supported with one value only. Absent is fine; any other value is an error.
    pub fn only(&self, field: &str, supported: impl Into<Value>) -> Result<(), ConfigError> {
        let supported = supported.into();
        match self.value(field) {
            Some(found) if *found != supported => {
                Err(self.unsupported(field, found.to_string(), vec![&supported.to_string()]))
            }
            _ => Ok(()),
        }
    }

    /// Fields, whole sections among them, that are read elsewhere or change nothing in this family's network.
    pub fn pass_by(&self, fields: &[&str]) {
        for field in fields {
            self.passed.borrow_mut().insert(self.path(field));
        }
    }

    /// A nested object, read under the same record.
    pub fn section(&self, field: &str) -> Result<Option<Config<'a>>, ConfigError> {
        let Some(value) = self.value(field) else { return Ok(None) };
        let path = self.path(field);
        let Value::Object(fields) = value else {
            return Err(ConfigError::Type { field: path, want: "an object", found: value.clone() });
        };
        let (read, passed) = (Rc::clone(&self.read), Rc::clone(&self.passed));
        Ok(Some(Config { fields, absent: None, prefix: format!("{path}."), read, passed }))
    }

    /// The objects of a list, read under the same record.
    pub fn sections(&self, field: &str) -> Result<Vec<Config<'a>>, ConfigError> {
        let path = self.path(field);
        match self.value(field) {
            Some(Value::Array(items)) => self.sections_of(items, &path),
            _ => Err(ConfigError::Missing { field: path }),
        }
    }

    /// The objects of a list of lists, if it is there, read under the same record.
    pub fn section_lists(&self, field: &str) -> Result<Option<Vec<Vec<Config<'a>>>>, ConfigError> {
        let path = self.path(field);
        let Some(value) = self.value(field) else { return Ok(None) };
        let list = |path: String, value: &'a Value| match value {
            Value::Array(items) => Ok(items),
            other => Err(ConfigError::Type { field: path, want: "a list", found: other.clone() }),
        };
        let lists = list(path.clone(), value)?.iter().enumerate().map(|(index, value)| {
            let path = format!("{path}.{index}");
            self.sections_of(list(path.clone(), value)?, &path)
        });
        lists.collect::<Result<_, _>>().map(Some)
    }

    fn sections_of(&self, items: &'a [Value], path: &str) -> Result<Vec<Config<'a>>, ConfigError> {
        let section = |(index, item): (usize, &'a Value)| match item {
            Value::Object(fields) => {
                let (read, passed) = (Rc::clone(&self.read), Rc::clone(&self.passed));
                Ok(Config { fields, absent: None, prefix: format!("{path}.{index}."), read, passed })
            }
            other => Err(ConfigError::Type {
                field: format!("{path}.{index}"),
                want: "an object",
                found: other.clone(),
            }),
        };
        items.iter().enumerate().map(section).collect()
    }

    /// Fails if any field was neither read nor listed in [`IGNORABLE`].
    pub fn finish(self) -> Result<(), ConfigError> {
        let mut unread = Vec::new();
        self.collect_unread(&mut unread);
        if unread.is_empty() { Ok(()) } else { Err(ConfigError::Unread { fields: unread }) }
    }

    fn collect_unread(&self, unread: &mut Vec<String>) {
        for (field, value) in self.fields {
            let path = self.path(field);
            let name = path.rsplit('.').next().unwrap_or(&path);
            let known = IGNORABLE.iter().any(|(known, _)| *known == name);
            if value.is_null() || known || self.passed.borrow().contains(&path) {
                continue;
            }
            if !self.read.borrow().contains(&path) {
                unread.push(path);
            } else if let Ok(Some(section)) = self.section(field) {
                section.collect_unread(unread);
            } else if let Ok(sections) = self.sections(field) {
                sections.iter().for_each(|section| section.collect_unread(unread));
            } else if let Ok(Some(lists)) = self.section_lists(field) {
                lists.iter().flatten().for_each(|section| section.collect_unread(unread));
            }
        }
    }

    fn value(&self, field: &str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(self.path(field));
        let value = self.fields.get(field).filter(|value| !value.is_null());
        value.or_else(|| self.absent.and_then(|absent| absent.get(field)))
    }

    fn path(&self, field: &str) -> String {
        format!("{}{field}", self.prefix)
    }

    fn unsupported(&self, field: &str, found: String, supported: Vec<&str>) -> ConfigError {
        ConfigError::Unsupported { field: self.path(field), found, supported: supported.join(", ") }
    }
}
