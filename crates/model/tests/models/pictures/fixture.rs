//! A tiny model with pictures: its config, its weights, and what the reference computed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mlx::Array;
use omnibus_model::Weights;
use omnibus_model::encoders::{Encoder, EncoderBlueprint, EncoderInput, Grid, View};
use omnibus_model::mrope::{MediaSpan, MultimodalPositions};
use serde_json::{Map, Value};

use crate::environment;
use crate::golden::{Prompt, PromptMedia, generate};

/// What depends on the weights.
const OUTPUTS: &[&str] = &["logits.", "features.", "deepstack_visual_embeds."];

/// Families whose features differ from mlx-vlm's on purpose, and by how much: transformers has the exact gelu in the
/// projector of InternVL and in the mergers of Qwen3-VL, and its tanh form in the tower of the latter.
const OTHER_ACTIVATIONS: &[(&str, f32)] = &[("internvl", 3e-4), ("qwen3_vl_moe", 5e-4)];

/// One fixture, read.
pub struct PictureFixture {
    pub name: String,
    pub config: Map<String, Value>,
    /// Largest allowed distance, relative to the largest number.
    pub bound: f32,
    /// The same of features.
    pub features_bound: f32,
    pub cases: Vec<String>,
    /// Tokens whose place features take.
    pub media_ids: Vec<i32>,
    golden: BTreeMap<String, Array>,
    directory: PathBuf,
}

impl PictureFixture {
    fn read(directory: &Path) -> Self {
        let json = |file: &str| -> Map<String, Value> {
            serde_json::from_slice(&std::fs::read(directory.join(file)).unwrap()).unwrap()
        };
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        let file = directory.join("golden.safetensors");
        let mut golden: BTreeMap<String, Array> = mlx::io::load_safetensors(&file).unwrap();
        if let Some(inputs) = name.strip_suffix(".hf") {
            // The same prompts and pictures, for other weights.
            let file = directory.with_file_name(inputs).join("golden.safetensors");
            let inputs = mlx::io::load_safetensors(&file).unwrap().into_iter();
            let is_input = |name: &str| !OUTPUTS.iter().any(|output| name.starts_with(output));
            golden.extend(inputs.filter(|(name, _)| is_input(name)));
        }
        let bytes = std::fs::read(&file).unwrap();
        let (_, metadata) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
        let sensitivity = metadata.metadata().as_ref().and_then(|metadata| metadata.get("sensitivity"));
        let sensitivity: f32 = sensitivity.and_then(|text| text.parse().ok()).unwrap_or(0.0);
        let bound = (20.0 * sensitivity).max(1e-4);
        let family = name.trim_end_matches(".hf");
        let other = OTHER_ACTIVATIONS.iter().find(|(name, _)| *name == family).map(|(_, bound)| *bound);
        let case = json("case.json");
        let strings = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            config: json("config.json"),
            bound,
            features_bound: other.unwrap_or(bound),
            cases: case["cases"].as_array().unwrap().iter().map(strings).collect(),
            media_ids: case["media_ids"]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| id.as_i64().unwrap() as i32)
                .collect(),
            name,
            golden,
            directory: directory.to_owned(),
        }
    }

    /// An array of a case, if the fixture has it.
    pub fn array(&self, what: &str, case: &str) -> Option<&Array> {
        self.golden.get(&format!("{what}.{case}"))
    }

    pub fn weights(&self) -> Weights {
        let recipe = std::fs::read(self.directory.join("tensors.json")).unwrap();
        generate::weights(&serde_json::from_slice(&recipe).unwrap()).unwrap()
    }

    /// A case's prompt with the reference's features. Features of earlier layers that the fixture does not have are the
    /// encoder's; `None` if it has not the pixels either.
    pub fn prompt(&self, case: &str, encoder: Option<&Encoder>) -> Option<Prompt> {
        let numbers = |what| self.array(what, case).unwrap().to_vec::<i32>().unwrap();
        let logits = self.array("logits", case).unwrap();
        let vocab = logits.dim(1).unwrap() as usize;
        let tokens = numbers("prompt");
        let media = |features: &Array| {
            let is_media = |place: &usize| self.media_ids.contains(&tokens[*place]);
            let places: Vec<usize> = (0..tokens.len()).filter(is_media).collect();
            let deepstack = match (self.array("deepstack_visual_embeds", case), encoder) {
                (Some(all), _) => {
                    let [layers, rows, width] = all.dims().unwrap();
                    let of_layer = |layer| all.slice(&[layer, 0, 0], &[layer + 1, rows, width]).unwrap();
                    (0..layers).map(|layer| of_layer(layer).squeeze(&[0]).unwrap()).collect()
                }
                (None, Some(encoder)) if !encoder.blueprint().deepstack.is_empty() => {
                    encoder.encode(&self.input(case, encoder.blueprint())?).unwrap().deepstack
                }
                (None, _) => Vec::new(),
            };
            let positions = self.has_axes().then(|| self.positions(case, &tokens, &places));
            Some(PromptMedia { positions, places, features: features.clone(), deepstack })
        };
        let media = match self.array("features", case) {
            Some(features) => Some(media(features)?),
            None => None,
        };
        Some(Prompt {
            adapter: None,
            tokens,
            decode: numbers("decode"),
            logits: logits.to_vec::<f32>().unwrap().chunks(vocab).map(<[f32]>::to_vec).collect(),
            media,
        })
    }

    /// Whether the reference has positions on three axes.
    fn has_axes(&self) -> bool {
        self.cases.iter().any(|case| self.array("position_ids", case).is_some_and(|ids| ids.shape()[0] == 3))
    }

    /// Positions that follow from the grids, which are the reference's.
    fn positions(&self, case: &str, tokens: &[i32], places: &[usize]) -> MultimodalPositions {
        let what =
            if self.array("video_grid_thw", case).is_some() { "video_grid_thw" } else { "image_grid_thw" };
        let grids = self.array(what, case).unwrap().astype(mlx::Dtype::I32).unwrap().to_vec::<i32>().unwrap();
        let side = self.config["vision_config"]["spatial_merge_size"].as_u64().unwrap() as usize;
        let mut spans = Vec::new();
        let mut left = places;
        for thw in grids.chunks(3) {
            let [frames, rows, columns] = [thw[0] as usize, thw[1] as usize / side, thw[2] as usize / side];
            let whole = frames * rows * columns;
            let are_adjacent = left[whole - 1] == left[0] + whole - 1;
            // Frames with text between them are pictures.
            let parts = if are_adjacent { vec![frames] } else { vec![1; frames] };
            for frames in parts {
                let span = MediaSpan { first: left[0], frames, rows, columns };
                left = &left[span.tokens()..];
                spans.push(span);
            }
        }
        let positions = MultimodalPositions::new(tokens.len(), &spans).unwrap();
        if let Some(ids) = self.array("position_ids", case) {
            let found: Vec<i32> =
                (0..3).flat_map(|axis| positions.of_tokens.iter().map(move |of| of[axis])).collect();
            assert_eq!(found, ids.to_vec::<i32>().unwrap(), "{} {case}", self.name);
            let delta = self.array("rope_deltas", case).unwrap().to_vec::<i32>().unwrap();
            assert_eq!([positions.delta], *delta, "{} {case}", self.name);
        }
        positions
    }

    /// What the encoder takes of a case's pictures, one after the other; `None` if the fixture has no whole pixels.
    pub fn input(&self, case: &str, encoder: &EncoderBlueprint) -> Option<EncoderInput> {
        let size = encoder.patches.size as i32;
        let grid = |count: i32, rows: i32, columns: i32| Grid {
            count: count as usize,
            rows: rows as usize,
            columns: columns as usize,
        };
        let rows = |what| -> Vec<Vec<i32>> {
            let array = self.array(what, case).unwrap();
            let width = *array.shape().last().unwrap() as usize;
            array
                .astype(mlx::Dtype::I32)
                .unwrap()
                .to_vec::<i32>()
                .unwrap()
                .chunks(width)
                .map(<[i32]>::to_vec)
                .collect()
        };
        let video = self.array("pixel_values_videos", case);
        let pixels = self.array("pixel_values", case).or(video)?.clone();
        let views = if self.array("image_grid_thw", case).is_some() || video.is_some() {
            let grids = rows(if video.is_some() { "video_grid_thw" } else { "image_grid_thw" });
            let mut first = 0;
            let view = |thw: Vec<i32>| {
                let after = first + thw.iter().product::<i32>();
                let patches = pixels.slice(&[first, 0], &[after, pixels.dim(1).unwrap()]).unwrap();
                first = after;
                View { pixels: patches, grid: grid(thw[0], thw[1], thw[2]) }
            };
            grids.into_iter().map(view).collect()
        } else if self.array("spatial_shapes", case).is_some() {
            let view = |(index, shape): (usize, Vec<i32>)| {
                let (index, patches) = (index as i32, shape[0] * shape[1]);
                let elements = pixels.dim(2).unwrap();
                let patches = pixels.slice(&[index, 0, 0], &[index + 1, patches, elements]).unwrap();
                View { pixels: patches.squeeze(&[0]).unwrap(), grid: grid(1, shape[0], shape[1]) }
            };
            rows("spatial_shapes").into_iter().enumerate().map(view).collect()
        } else if self.array("image_sizes", case).is_some() {
            let view = |(index, of): (usize, Vec<i32>)| {
                let index = index as i32;
                let pixels = pixels.slice(&[index, 0, 0, 0], &[index + 1, 3, of[0], of[1]]).unwrap();
                View { pixels, grid: grid(1, of[0] / size, of[1] / size) }
            };
            rows("image_sizes").into_iter().enumerate().map(view).collect()
        } else {
            let shape = pixels.shape();
            let [.., height, width] = *shape else { panic!("{}: pixels {shape:?}", self.name) };
            let pixels = pixels.reshape(&[-1, 3, height, width]).unwrap();
            let grid = grid(pixels.dim(0).unwrap(), height / size, width / size);
            vec![View { pixels, grid }]
        };
        Some(EncoderInput { views })
    }
}

/// Every fixture.
pub fn all() -> Vec<PictureFixture> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures");
    let mut paths = Vec::new();
    for directory in [Some(own), environment::picture_fixtures()].into_iter().flatten() {
        let entries = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
        paths.extend(entries.filter(|path| path.join("golden.safetensors").is_file()));
    }
    assert!(!paths.is_empty(), "the repository has fixtures");
    paths.sort();
    paths.iter().map(|path| PictureFixture::read(path)).collect()
}

/// How far numbers are from the reference's, relative to its largest. A NaN is infinitely far.
pub fn distance(found: &Array, want: &Array) -> f32 {
    let (shape, [found, want]) =
        (found.size() == want.size(), [found, want].map(|array| array.to_vec::<f32>().unwrap()));
    assert!(shape, "{} numbers are not {}", found.len(), want.len());
    let largest = want.iter().fold(0f32, |largest, number| largest.max(number.abs()));
    let furthest = found.iter().zip(&want).map(|(found, want)| (found - want).abs());
    furthest.fold(0f32, |worst, off| if off.is_nan() { f32::INFINITY } else { worst.max(off) }) / largest
}
