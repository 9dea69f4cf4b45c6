//! `adapter_config.json` and the names of an adapter's tensors, in mlx-lm's and in PEFT's format.

use std::path::Path;

use mlx::Array;
use serde_json::{Map, Value};

use super::super::header::problem;
use super::super::json::as_json;
use crate::weights::LoadError;

/// How much an adapter's products count.
pub(super) struct AdapterConfig {
    scale: f32,
    /// PEFT's ranks and alphas of some modules: the scale by the end of a path.
    by_module: Vec<(String, f32)>,
    claims: Claims,
}

/// What a config says of the tensors, where it says it.
#[derive(Default)]
struct Claims {
    /// The field with the rank, the rank, and other ranks of some modules.
    rank: Option<(&'static str, f64, Vec<f64>)>,
    /// The field that says whether there are magnitudes, and whether there are.
    magnitudes: Option<(&'static str, bool)>,
    /// The field with the ends of paths that are changed, and these.
    targets: Option<(&'static str, Vec<String>)>,
}

/// What a tensor of an adapter is to a module.
pub(super) enum Part {
    Down(Layout),
    Up(Layout),
    Magnitude,
    Replaced(String),
}

/// Whether a matrix multiplies rows from the right, as mlx-lm's do.
#[derive(Clone, Copy)]
pub(super) enum Layout {
    Rows,
    Columns,
}

impl Layout {
    /// The matrix as it multiplies columns; stacks of experts are so already.
    pub(super) fn turned(self, matrix: Array) -> mlx::Result<Array> {
        match (self, matrix.ndim()) {
            (Self::Rows, 2) => matrix.t(),
            _ => Ok(matrix),
        }
    }
}

/// Ranks or scales above this are errors in the file.
const SCALE_MAX: f64 = 1e6;

impl AdapterConfig {
    pub(super) fn read(file: &Path) -> Result<Self, LoadError> {
        let text = std::fs::read_to_string(file).map_err(|error| problem(file, error.to_string()))?;
        let config: Map<String, Value> = serde_json::from_str(&as_json(&text))
            .map_err(|error| problem(file, format!("not a JSON object: {error}")))?;
        let refused = |field: &str| problem(file, format!("`{field}` is missing or not a sound number"));
        let number = |section: &Map<String, Value>, field: &str| {
            section.get(field).and_then(Value::as_f64).filter(|number| number.abs() <= SCALE_MAX)
        };
        let Some(kind) = config.get("peft_type").and_then(Value::as_str) else {
            let scale = match config.get("lora_parameters").and_then(Value::as_object) {
                _ if config.get("fine_tune_type").and_then(Value::as_str) == Some("full") => 1.0,
                Some(section) => number(section, "scale").ok_or_else(|| refused("lora_parameters.scale"))?,
                None => return Err(refused("lora_parameters")),
            };
            return Ok(Self {
                scale: scale as f32,
                by_module: Vec::new(),
                claims: Claims::of_mlx_lm(&config),
            });
        };
        if kind != "LORA" || config.get("fan_in_fan_out").and_then(Value::as_bool) == Some(true) {
            return Err(problem(file, format!("`peft_type` {kind} is not LORA with `fan_in_fan_out` false")));
        }
        let root = config.get("use_rslora").and_then(Value::as_bool) == Some(true);
        let (rank, alpha) = (number(&config, "r"), number(&config, "lora_alpha"));
        let (rank, alpha) = (rank.ok_or_else(|| refused("r"))?, alpha.ok_or_else(|| refused("lora_alpha"))?);
        let scale = |rank: f64, alpha: f64| (alpha / if root { rank.sqrt() } else { rank }) as f32;
        if rank <= 0.0 {
            return Err(refused("r"));
        }
        let patterns = |field: &str| {
            let section = config.get(field).and_then(Value::as_object).into_iter().flatten();
            section.filter_map(|(path, value)| Some((path.clone(), value.as_f64()?))).collect::<Vec<_>>()
        };
        let (ranks, alphas) = (patterns("rank_pattern"), patterns("alpha_pattern"));
        let of = |list: &[(String, f64)], path: &str| {
            list.iter().find(|(known, _)| known == path).map(|(_, number)| *number)
        };
        let by_module = ranks.iter().chain(&alphas).map(|(path, _)| {
            (
                path.clone(),
                scale(of(&ranks, path).unwrap_or(rank).max(1.0), of(&alphas, path).unwrap_or(alpha)),
            )
        });
        let other_ranks = ranks.iter().map(|(_, rank)| *rank).collect();
        let claims = Claims::of_peft(&config, rank, other_ranks);
        Ok(Self { scale: scale(rank, alpha), by_module: by_module.collect(), claims })
    }

    /// Fails with the field that a module's tensors contradict: its rank, and whether it has a magnitude.
    pub(super) fn check(&self, path: &str, rank: usize, has_magnitude: bool) -> Result<(), String> {
        if let Some((field, said, others)) = &self.claims.rank
            && std::iter::once(said).chain(others).all(|said| *said != rank as f64)
        {
            return Err(format!("`{field}` is {said}, but the matrices of `{path}` have rank {rank}"));
        }
        match self.claims.magnitudes {
            Some((field, true)) if !has_magnitude => {
                Err(format!("`{field}` says DoRA, but `{path}` has no magnitudes"))
            }
            Some((field, false)) if has_magnitude => {
                Err(format!("`{field}` says no DoRA, but `{path}` has magnitudes"))
            }
            _ => Ok(()),
        }
    }

    /// Fails with a target that no changed module has. Modules beside the targets are in published adapters, too.
    pub(super) fn check_targets(&self, paths: &[&str]) -> Result<(), String> {
        let Some((field, targets)) = &self.claims.targets else { return Ok(()) };
        let is = |path: &str, target: &str| {
            path == target || path.strip_suffix(target).is_some_and(|rest| rest.ends_with('.'))
        };
        match targets.iter().find(|target| !paths.iter().any(|path| is(path, target))) {
            Some(unknown) => Err(format!("`{field}` names `{unknown}`, but no tensor is for it")),
            None => Ok(()),
        }
    }

    /// The factor of a module's product.
    pub(super) fn scale(&self, path: &str) -> f32 {
        let ends = |end: &str| path == end || path.strip_suffix(end).is_some_and(|rest| rest.ends_with('.'));
        self.by_module.iter().find(|(end, _)| ends(end)).map_or(self.scale, |(_, scale)| *scale)
    }
}

impl Claims {
    fn of_mlx_lm(config: &Map<String, Value>) -> Self {
        let parameters = config.get("lora_parameters").and_then(Value::as_object);
        let field = |name: &str| parameters.and_then(|parameters| parameters.get(name));
        let kind = config.get("fine_tune_type").and_then(Value::as_str);
        Self {
            rank: field("rank")
                .and_then(Value::as_f64)
                .map(|rank| ("lora_parameters.rank", rank, Vec::new())),
            magnitudes: kind.map(|kind| ("fine_tune_type", kind == "dora")),
            targets: field("keys").and_then(names).map(|keys| ("lora_parameters.keys", keys)),
        }
    }

    fn of_peft(config: &Map<String, Value>, rank: f64, other_ranks: Vec<f64>) -> Self {
        let dora = config.get("use_dora").and_then(Value::as_bool);
        Self {
            rank: Some(("r", rank, other_ranks)),
            magnitudes: dora.map(|dora| ("use_dora", dora)),
            // Text is an expression over paths.
            targets: config.get("target_modules").and_then(names).map(|names| ("target_modules", names)),
        }
    }
}

/// A list of names that is not empty.
fn names(value: &Value) -> Option<Vec<String>> {
    let names = value.as_array()?.iter().map(|name| name.as_str().map(str::to_owned));
    names.collect::<Option<Vec<String>>>().filter(|names| !names.is_empty())
}

/// The module that a tensor belongs to, and what it is to it.
pub(super) fn parts(name: &str) -> Option<(String, Part)> {
    const PEFT: &str = "base_model.model.";
    type Ending = (&'static str, fn() -> Part);
    const ENDINGS: &[Ending] = &[
        (".lora_a", || Part::Down(Layout::Rows)),
        (".lora_b", || Part::Up(Layout::Rows)),
        (".m", || Part::Magnitude),
        (".lora_A.weight", || Part::Down(Layout::Columns)),
        (".lora_B.weight", || Part::Up(Layout::Columns)),
        (".lora_embedding_A", || Part::Down(Layout::Columns)),
        (".lora_embedding_B", || Part::Up(Layout::Columns)),
        (".lora_magnitude_vector", || Part::Magnitude),
        (".lora_magnitude_vector.weight", || Part::Magnitude),
    ];
    let name = name.strip_prefix(PEFT).unwrap_or(name);
    let found = ENDINGS.iter().find_map(|(ending, part)| Some((name.strip_suffix(ending)?, part())));
    if let Some((path, part)) = found {
        return Some((path.to_owned(), part));
    }
    let (path, last) = name.rsplit_once('.')?;
    let path = path.strip_suffix(".modules_to_save").unwrap_or(path);
    Some((path.to_owned(), Part::Replaced(last.to_owned())))
}
