//! `cargo xtask parity`: how far every fixture's logits are from the reference's, as a table.
//!
//! `--fixtures DIR` reads another directory in the format of `tests/fixtures/README.md` or of `tests/pictures/README.md`, or
//! `tests/embedders`,
//! `--only NAME` (repeatable) picks fixtures, `--kernels reference|cpu` picks who computes. `--perturb SEED` moves the
//! weights of text fixtures by up to their last bit, which shows how far a rounding carries.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/models/golden/mod.rs"]
mod golden;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use golden::embedders::EmbedderFixture;
use golden::pictures::PictureFixture;
use golden::ways::Distance;
use golden::{Fixture, fixtures, ways};
use mlx::{Dtype, random};
use omnibus_model::{Kernels, Weights};
use serde_json::{Map, Value};

/// Of encoder and text model together, whose activations transformers computes with torch.
const BOTH_BOUND: f32 = 2e-4;

#[allow(clippy::print_stdout, clippy::print_stderr)]
fn main() -> ExitCode {
    match run() {
        Ok((table, true)) => {
            print!("{table}");
            ExitCode::SUCCESS
        }
        Ok((table, false)) => {
            print!("{table}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("parity: {error}");
            ExitCode::from(2)
        }
    }
}

/// The table, and whether every distance is within its bound.
fn run() -> Result<(String, bool), String> {
    let mut directory = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures"));
    let (mut only, mut kernels, mut perturb) = (Vec::new(), None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} takes a value"))?;
        match (argument.as_str(), value.as_str()) {
            ("--fixtures", _) => directory = PathBuf::from(value),
            ("--only", _) => only.push(value),
            ("--perturb", _) => {
                perturb = Some(value.parse().map_err(|error| format!("--perturb {value}: {error}"))?)
            }
            ("--kernels", "reference") => kernels = Some(Kernels::Mlx),
            ("--kernels", "cpu") => kernels = Some(Kernels::Cpu),
            _ => return Err(format!("unknown argument {argument} {value}")),
        }
    }
    let kernels = kernels.unwrap_or_else(Kernels::fastest);
    let mut table = format!(
        "{:26} {:18} {:9} {:>6}  furthest, by way ({kernels:?} kernels)\n",
        "fixture", "type", "layout", "bound"
    );
    let mut sound = true;
    for path in fixtures(&directory, &only)? {
        let row = match path.join("case.json").is_file() {
            true if EmbedderFixture::is_in(&path) => of_embedder(&path, kernels),
            true => of_pictures(&PictureFixture::read(&path), kernels),
            false => of_text(&Fixture::read(&path)?, kernels, perturb),
        };
        let (cells, is_near) = cells(&row);
        sound &= is_near;
        let Row { name, model_type, layout, bound, .. } = row;
        table.push_str(&format!("{name:26} {model_type:18} {layout:9} {bound:>6.0e}  {cells}\n"));
    }
    Ok((table, sound))
}

/// One fixture's line.
struct Row {
    name: String,
    model_type: String,
    /// Names of tensors as published, or as conversions of MLX have them.
    layout: &'static str,
    bound: f32,
    /// Ways with their own bounds, or why there are none.
    found: Result<Vec<(Distance, f32)>, String>,
}

impl Row {
    fn new(name: &str, config: &Map<String, Value>, bound: f32) -> Self {
        let layout = if name.ends_with(".hf") { "published" } else { "mlx" };
        let model_type = config.get("model_type").and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { name: name.to_owned(), model_type, layout, bound, found: Ok(Vec::new()) }
    }
}

/// With perturbed weights, if there is a seed.
fn of_text(fixture: &Fixture, kernels: Kernels, perturb: Option<u64>) -> Row {
    let row = Row::new(&fixture.name, &fixture.config, fixture.bound);
    let model = || match perturb {
        Some(seed) => {
            let weights = perturbed(fixture.weights()?, seed).map_err(|error| error.to_string())?;
            fixture.model_of(weights, kernels)
        }
        None => fixture.model(kernels),
    };
    match model() {
        Ok(model) => {
            let bound = fixture.bound_of(&model);
            let found = ways::distances(fixture, &model).map_err(|error| error.to_string());
            let bounded = |found: Vec<Distance>| found.into_iter().map(|found| (found, bound)).collect();
            Row { found: found.map(bounded), bound, ..row }
        }
        Err(error) => Row { found: Err(error), ..row },
    }
}

/// Each float32 weight multiplied with 1 ± up to 2^-23.
fn perturbed(weights: Weights, seed: u64) -> mlx::Result<Weights> {
    let moved = weights.into_iter().zip(0..).map(|((name, weight), index)| {
        if weight.dtype()? != Dtype::F32 {
            return Ok((name, weight));
        }
        let bit = f32::EPSILON;
        let key = random::key(seed.wrapping_mul(1 << 16).wrapping_add(index))?;
        let factor = random::uniform(weight.shape(), Dtype::F32, -bit..bit, &key)?;
        Ok((name, &weight + &weight * factor))
    });
    moved.collect()
}

fn of_embedder(path: &Path, kernels: Kernels) -> Row {
    match EmbedderFixture::read(path, kernels) {
        Ok(fixture) => {
            let row = Row::new(&fixture.name, &fixture.config, fixture.bound);
            let found = fixture.distances().into_iter();
            let found = found.map(|found| (found.clone(), fixture.bound_of(found.way))).collect();
            Row { found: Ok(found), layout: "published", ..row }
        }
        Err(error) => Row { found: Err(error), ..Row::new(&path.to_string_lossy(), &Map::new(), 0.0) },
    }
}

fn of_pictures(fixture: &PictureFixture, kernels: Kernels) -> Row {
    let row = Row::new(&fixture.name, &fixture.config, fixture.bound);
    let found = || -> Result<Vec<(Distance, f32)>, String> {
        let say = |error: mlx::Error| error.to_string();
        let encoder = fixture.encoder(kernels)?;
        let model = fixture.model(kernels)?;
        let of_logits = fixture.distances_of_logits(&model, encoder.as_ref()).map_err(say)?;
        let mut found = Vec::new();
        if let Some(encoder) = &encoder {
            let features = fixture.distances_of_features(encoder).map_err(say)?;
            found.extend(features.into_iter().map(|found| (found, fixture.features_bound)));
            let both = fixture.distances_of_both(&model, encoder).map_err(say)?;
            found.extend(both.into_iter().map(|found| (found, BOTH_BOUND)));
        }
        found.extend(of_logits.into_iter().map(|found| (found, fixture.features_bound)));
        Ok(found)
    };
    Row { found: found(), ..row }
}

/// The largest distance of each way, and whether all are within their bounds.
fn cells(row: &Row) -> (String, bool) {
    let found = match &row.found {
        Ok(found) => found,
        Err(error) => return (format!("refused: {error}"), false),
    };
    let mut furthest: Vec<(&str, f32, bool)> = Vec::new();
    for (Distance { way, distance }, bound) in found {
        let is_near = distance <= bound;
        match furthest.iter_mut().find(|(known, ..)| known == way) {
            Some((_, largest, near)) => (*largest, *near) = (largest.max(*distance), *near && is_near),
            None => furthest.push((way, *distance, is_near)),
        }
    }
    let cell = |(way, distance, near): &(&str, f32, bool)| {
        format!("{way} {distance:.1e}{}", if *near { "" } else { " FAR" })
    };
    let cells: Vec<String> = furthest.iter().map(cell).collect();
    (cells.join("  "), furthest.iter().all(|(.., near)| *near))
}
