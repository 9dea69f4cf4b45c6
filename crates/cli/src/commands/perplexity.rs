//! `omnibus perplexity`: how well models predict a text, as a table.

use std::path::Path;
use std::process::ExitCode;

use omnibus_engine::ModelSource;
use omnibus_offline::conversion::{self, Packing, QuantMode, Recipe};
use omnibus_offline::perplexity::{Predictor, Score, ScoredModel, TokenSequences, read_tokens};
use serde_json::json;

use super::convert::{choice, note_kept_packing};
use crate::error::Error;
use crate::settings::{Config, Output};
use crate::{model, output};

/// A line of the table.
struct Row {
    model: String,
    score: Score,
}

/// Scores every model, and the quantizations of it.
pub fn run(config: &Config, models: &[String]) -> Result<ExitCode, Error> {
    let settings = &config.perplexity;
    let Some(file) = settings.data.as_deref() else {
        return Err(Error::usage("missing text: pass --data-path FILE"));
    };
    let mut names: Vec<Option<&str>> = models.iter().map(|model| Some(model.as_str())).collect();
    if names.is_empty() {
        names.push(None);
    }
    let recipes: Vec<(&str, Packing)> = settings
        .quantizations
        .iter()
        .flat_map(|names| names.split(','))
        .map(|name| Ok((name.trim(), packing(name.trim(), config.conversion.group)?)))
        .collect::<Result<_, Error>>()?;
    let reference = settings.reference.as_deref().map(|name| model::source(Some(name), &[])).transpose()?;
    let mut rows = Vec::new();
    for name in names {
        let source = model::source(name, &[])?;
        let tokens = read_tokens(file, &source).map_err(Error::failed)?;
        let data = TokenSequences::cut(&tokens, settings.sequence_length, settings.samples);
        let data = data.map_err(Error::failed)?;
        let other = reference.clone().unwrap_or_else(|| source.clone());
        let other = load(&ScoredModel::Stored(other), config)?;
        let label = name.unwrap_or(crate::embedded::NAME);
        let of_itself = reference.is_none();
        let stored = match of_itself {
            true => other.score(&data, settings.batch, None),
            false => {
                load(&ScoredModel::Stored(source.clone()), config)?.score(&data, settings.batch, Some(&other))
            }
        };
        rows.push(Row { model: label.to_owned(), score: stored.map_err(Error::failed)? });
        for (recipe, packing) in &recipes {
            output::note(format!("{label}: {recipe}"));
            let conversion = conversion(&source, *packing);
            note_kept_packing(&conversion, "give the model in floats to compare quantizations")?;
            let converted = ScoredModel::Converted(conversion);
            let score = load(&converted, config)?.score(&data, settings.batch, Some(&other));
            rows.push(Row { model: format!("{label} ({recipe})"), score: score.map_err(Error::failed)? });
        }
    }
    match config.output {
        Output::Json => output::line(json!(rows.iter().map(Row::json).collect::<Vec<_>>()).to_string()),
        Output::Text => output::line(table(&rows)),
    }
    Ok(ExitCode::SUCCESS)
}

fn load(model: &ScoredModel, config: &Config) -> Result<Predictor, Error> {
    Predictor::load(model, config.engine.device).map_err(Error::failed)
}

fn conversion(source: &ModelSource, packing: Packing) -> conversion::Conversion {
    conversion::of_model(source, Path::new(""), packing, None)
}

/// Bits, a mode or a recipe.
fn packing(name: &str, group: Option<i32>) -> Result<Packing, Error> {
    let affine = |bits| choice(QuantMode::Affine, Some(bits), group);
    if let Ok(bits) = name.parse() {
        return Ok(Packing::Quantize { choice: affine(bits)?, recipe: Recipe::Uniform });
    }
    if let Some(recipe) = Recipe::from_name(name) {
        return Ok(Packing::Quantize { choice: affine(4)?, recipe });
    }
    match QuantMode::from_name(name) {
        Some(QuantMode::Affine) | None => Err(Error::usage(format!(
            "--quantizations {name} is neither bits, nor mxfp4, mxfp8, nvfp4, nor a recipe of --quant-predicate"
        ))),
        Some(mode) => Ok(Packing::Quantize { choice: choice(mode, None, None)?, recipe: Recipe::Uniform }),
    }
}

impl Row {
    fn json(&self) -> serde_json::Value {
        let Self { model, score } = self;
        json!({
            "model": model,
            "quantization": score.quantization,
            "weights_bytes": score.weights_bytes,
            "perplexity": score.perplexity,
            "standard_error": score.standard_error,
            "tokens": score.tokens,
            "kl_divergence": score.against.map(|against| against.kl),
            "top_1_agreement": score.against.map(|against| against.top_1),
            "tokens_per_second": score.tokens as f64 / score.seconds.max(1e-9),
        })
    }
}

fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.model.len()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:width$}  {:>9}  {:>9}  {:>20}  {:>10}  {:>7}  {:>9}",
        "model", "weights", "GB", "perplexity", "KL", "top 1", "tokens/s"
    );
    for Row { model, score } in rows {
        let perplexity = format!("{:.4} ± {:.4}", score.perplexity, score.standard_error);
        let weights = score.quantization.as_deref().unwrap_or("floats");
        let (kl, top_1) = match score.against {
            Some(against) => (format!("{:.5}", against.kl), format!("{:.2}%", against.top_1 * 100.0)),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let gigabytes = score.weights_bytes as f64 / 1e9;
        let speed = score.tokens as f64 / score.seconds.max(1e-9);
        text += &format!(
            "\n{model:width$}  {weights:>9}  {gigabytes:>9.3}  {perplexity:>20}  {kl:>10}  {top_1:>7}  {speed:>9.0}"
        );
    }
    text
}
