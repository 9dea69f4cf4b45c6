//! `POST /v1/score`: vLLM's scores of pairs of texts.

use serde::Serialize;
use serde_json::Value;

use super::{PoolingOptions, texts};
use crate::error::ApiError;
use crate::wire::fields::{Field, Fields, honoured};

/// Its own fields.
pub const FIELDS: &[Field] = &[
    honoured("text_1", "the first text of each pair, or one for all; or `queries` or `data_1`"),
    honoured("text_2", "the second text of each pair; or `documents`, `items` or `data_2`"),
    honoured("queries", "`text_1`"),
    honoured("documents", "`text_2`"),
    honoured("items", "`text_2`"),
    honoured("data_1", "`text_1`"),
    honoured("data_2", "`text_2`"),
    honoured("instruction", "of models whose template has one"),
    honoured("use_activation", "false gives the head's number as it is"),
];

const FIRST: [&str; 3] = ["text_1", "queries", "data_1"];
const SECOND: [&str; 4] = ["text_2", "documents", "items", "data_2"];

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreRequest {
    #[allow(missing_docs)]
    pub options: PoolingOptions,
    #[allow(missing_docs)]
    pub pairs: Vec<(String, String)>,
    /// For models whose template has one.
    pub instruction: Option<String>,
    /// Whether scores are those of the model's files, or the head's numbers.
    pub activated: bool,
}

impl ScoreRequest {
    /// Reads a body.
    pub fn read(body: Value) -> Result<Self, ApiError> {
        let mut fields = Fields::open(body, "", &[FIELDS, super::COMMON])?;
        let options = PoolingOptions::read(&mut fields)?;
        let first = side(&mut fields, &FIRST)?;
        let second = side(&mut fields, &SECOND)?;
        let instruction = fields.text("instruction")?;
        let activated = fields.flag("use_activation")?.unwrap_or(true);
        fields.refuse_rest("stands for a text that another field has")?;
        let pairs = match (first.len(), second.len()) {
            (1, _) => second.into_iter().map(|text| (first[0].clone(), text)).collect(),
            (firsts, seconds) if firsts == seconds => first.into_iter().zip(second).collect(),
            (firsts, seconds) => {
                let message =
                    format!("`text_1` has {firsts} texts and `text_2` {seconds}: 1 and N, or N and N");
                return Err(ApiError::invalid("text_2", message));
            }
        };
        Ok(Self { options, pairs, instruction, activated })
    }
}

/// The texts of the first of these fields that is there.
fn side(fields: &mut Fields, names: &[&'static str]) -> Result<Vec<String>, ApiError> {
    for name in names {
        if let Some(value) = fields.value(name) {
            return texts(name, value);
        }
    }
    let name = names.first().copied().unwrap_or_default();
    Err(ApiError::invalid(name, format!("`{name}` is missing")))
}

/// The score of a pair.
#[derive(Debug, Clone, Serialize)]
pub struct Score {
    /// Which pair's.
    pub index: usize,
    /// `score`.
    pub object: &'static str,
    #[allow(missing_docs)]
    pub score: f32,
}
