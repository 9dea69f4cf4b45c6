//! A tiny model with pictures: its config, its weights, and what the reference computed.

mod distances;
mod inputs;
mod made;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mlx::Array;
use omnibus_model::Weights;
use omnibus_model::encoders::Encoder;
use omnibus_model::mrope::{MediaSpan, MultimodalPositions};
use serde_json::{Map, Value};

use super::{Prompt, PromptMedia, generate};

/// What depends on the weights.
const OUTPUTS: &[&str] = &["logits.", "features.", "deepstack_visual_embeds."];

/// Families whose text models follow transformers where there are pictures: mlx-vlm does not let their rows see each other.
const OF_TRANSFORMERS: &[&str] = &["gemma3", "gemma4.moe", "idefics2", "llava_next"];

/// Of these, those without features to follow: mlx-vlm makes others, or none. The encoder's own are in their prompts.
const WITHOUT_FEATURES: &[&str] = &["idefics2", "llava_next"];

/// Families whose encoders follow transformers: GLM samples positions otherwise than mlx-vlm, and Llama 4 has other
/// activations.
const ENCODERS_OF_TRANSFORMERS: &[&str] = &["glm4v", "glm4v_moe", "llama4", "qwen3_vl_moe"];

/// Cases whose features mlx-vlm samples bilinearly, which are no reference for an encoder.
const SAMPLED_OTHERWISE: &[(&str, &str)] = &[("glm4v", "two"), ("glm4v_moe", "two")];

/// Families whose features differ from mlx-vlm's on purpose, and by how much: transformers has the exact gelu in the
/// projector of InternVL and in the mergers of Qwen3-VL, and its tanh form in the
/// towers of the latter, of Kimi-VL and of Molmo 2. Fixtures that say so in their metadata have the published ones.
const OTHER_ACTIVATIONS: &[(&str, f32)] = &[
    ("internvl", 3e-4),
    ("internvl_chat", 3e-4),
    ("qwen3_vl_moe", 5e-4),
    ("llama4", 3e-2),
    ("molmo2", 3e-2),
    ("kimi_vl", 3e-2),
];

/// What takes the place of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Pictures and videos.
    Picture,
    #[allow(missing_docs)]
    Sound,
}

/// One fixture, read.
pub struct PictureFixture {
    pub name: String,
    pub config: Map<String, Value>,
    /// Largest allowed distance, relative to the largest number.
    pub bound: f32,
    /// Largest allowed distance of features, relative to the largest number.
    pub features_bound: f32,
    pub cases: Vec<String>,
    /// Tokens whose place features take.
    pub media_ids: Vec<i32>,
    golden: BTreeMap<String, Array>,
    /// Logits of transformers, where its encoder is followed.
    whole: BTreeMap<String, Array>,
    directory: PathBuf,
}

impl PictureFixture {
    pub fn read(directory: &Path) -> Self {
        let json = |file: &str| -> Map<String, Value> {
            serde_json::from_slice(&std::fs::read(directory.join(file)).unwrap()).unwrap()
        };
        let name = directory.file_name().unwrap().to_string_lossy().into_owned();
        let file = directory.join("golden.safetensors");
        let mut golden: BTreeMap<String, Array> = mlx::io::load_safetensors(&file).unwrap();
        // A fixture may use the prompts and pictures of another one, for other weights.
        let beside = name.strip_suffix(".hf").map(|inputs| directory.with_file_name(inputs));
        let beside = beside.map(|directory| directory.join("golden.safetensors"));
        if let Some(file) = beside.filter(|file| file.is_file()) {
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
        let metadata_has =
            |key: &str| metadata.metadata().as_ref().is_some_and(|metadata| metadata.contains_key(key));
        let other = OTHER_ACTIVATIONS.iter().find(|(name, _)| *name == family).map(|(_, bound)| *bound);
        let other = other.filter(|_| !metadata_has("activations"));
        let case = json("case.json");
        let strings = |case: &Value| case.as_str().or(case["name"].as_str()).unwrap().to_owned();
        let file = directory.join("transformers.safetensors");
        if OF_TRANSFORMERS.contains(&family) {
            golden.retain(|name, _| !name.starts_with("logits.") || name == "logits.text");
        }
        // Neither is a reference for Llama 3.2 Vision's pictures: rows in front of the first one are to pass cross attention by.
        if family == "mllama" && metadata_has("mlx_vlm") {
            golden.retain(|name, _| !name.starts_with("logits.") && !name.starts_with("features."));
            let text = || mlx::io::load_safetensors(&file).unwrap().remove("logits.text");
            golden
                .extend(file.is_file().then(text).flatten().map(|logits| ("logits.text".to_owned(), logits)));
        }
        // mlx-vlm's are causal where tokens of all pictures see each other.
        if family == "molmo2" && !metadata_has("mask") {
            golden.retain(|name, _| !name.starts_with("logits.") || name == "logits.text");
        }
        let is_followed = OF_TRANSFORMERS.contains(&family) || ENCODERS_OF_TRANSFORMERS.contains(&family);
        let whole = match is_followed && file.is_file() {
            true => mlx::io::load_safetensors(&file).unwrap().into_iter().collect(),
            false => BTreeMap::new(),
        };
        if OF_TRANSFORMERS.contains(&family) {
            golden.extend(whole.clone());
        }
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
            whole,
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

    /// A case's prompt with the reference's features; `None` if the fixture has no logits to follow. Features of earlier
    /// layers that the fixture does not have are the encoder's; `None` if it has not the pixels either.
    pub fn prompt(&self, case: &str, encoder: Option<&Encoder>) -> Option<Prompt> {
        let numbers = |what| self.array(what, case).unwrap().to_vec::<i32>().unwrap();
        let logits = self.array("logits", case)?;
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
                    self.encoded(case, encoder)?.deepstack
                }
                (None, _) => Vec::new(),
            };
            // Without grids, MiniCPM-V's pictures take positions as texts do.
            let has_grids =
                ["image_grid_thw", "video_grid_thw"].iter().any(|grid| self.array(grid, case).is_some());
            let turns = self.has_axes() && has_grids;
            let positions = turns.then(|| self.positions(case, &tokens, &places));
            let (features, crossed) = (features.clone(), Vec::new());
            Some(PromptMedia { positions, places, features, deepstack, crossed })
        };
        if let Some(encoder) = encoder.filter(|encoder| encoder.blueprint().tiles.is_some()) {
            let media = Some(self.crossed(&tokens, case, encoder)?);
            return Some(Prompt {
                adapter: None,
                tokens,
                decode: numbers("decode"),
                logits: rows(logits),
                media,
            });
        }
        let media = match self.features(case) {
            Some(features) => Some(media(&features)?),
            None if tokens.iter().any(|token| self.media_ids.contains(token)) => {
                Some(media(&self.encoded(case, encoder?)?.rows)?)
            }
            None => None,
        };
        Some(Prompt { adapter: None, tokens, decode: numbers("decode"), logits: rows(logits), media })
    }

    /// Pictures beside a prompt: rows from one's token on attend to it and to those adjacent before it, up to the next one.
    fn crossed(&self, tokens: &[i32], case: &str, encoder: &Encoder) -> Option<PromptMedia> {
        let is_media = |place: &usize| self.media_ids.contains(&tokens[*place]);
        let places: Vec<usize> = (0..tokens.len()).filter(is_media).collect();
        let pictures = match places.is_empty() {
            true => Vec::new(),
            false => self.encoded_apart(case, encoder)?,
        };
        assert_eq!(pictures.len(), places.len(), "{} {case}", self.name);
        let crossed = (0..places.len()).map(|last| {
            let is_adjacent = |before: &usize| places[*before] + last == places[last] + before;
            let of_row: Vec<&Array> = (0..=last).filter(is_adjacent).map(|of| &pictures[of].rows).collect();
            let end = places.get(last + 1).copied().unwrap_or(usize::MAX);
            (places[last]..end, mlx::concatenate(&of_row, 0).unwrap())
        });
        let crossed = crossed.collect();
        let features = Array::from_slice(&[0f32], &[1, 1]).unwrap();
        let (positions, deepstack) = (None, Vec::new());
        Some(PromptMedia { positions, places: Vec::new(), features, deepstack, crossed })
    }

    /// A case's prompt with an encoder's own features, and the logits of transformers; `None` without those or the pixels.
    pub fn whole_prompt(&self, case: &str, encoder: &Encoder) -> Option<Prompt> {
        let logits = self.whole.get(&format!("logits.{case}"))?;
        let features = self.encoded(case, encoder)?;
        let mut prompt = self.prompt(case, Some(encoder))?;
        prompt.logits = rows(logits);
        if let Some(media) = &mut prompt.media {
            (media.features, media.deepstack) = (features.rows, features.deepstack);
        }
        Some(prompt)
    }

    /// The rows that take the place of tokens, as they are before the text model scales its own embeddings.
    pub fn features(&self, case: &str) -> Option<Array> {
        let features = self.array("features", case).filter(|_| !self.has_no_features())?;
        if !["gemma3", "paligemma"].contains(&self.name.trim_end_matches(".hf")) {
            return Some(features.clone());
        }
        let hidden = features.dim(-1).unwrap() as f32;
        Some(features * hidden.sqrt())
    }

    /// Of the features of a case, those that take the place of the config's audio tokens, or those that do not.
    pub fn features_of(&self, medium: Medium, case: &str) -> Option<Array> {
        let features = self.features(case)?;
        let Some(audio) = self.config.get("audio_token_id").and_then(Value::as_i64) else {
            return Some(features);
        };
        let tokens = self.array("prompt", case)?.to_vec::<i32>().unwrap();
        let media = tokens.iter().filter(|token| self.media_ids.contains(token));
        let is_of = |token: &i32| (i64::from(*token) == audio) == (medium == Medium::Sound);
        let rows = media.zip(0..).filter_map(|(token, row)| is_of(token).then_some(row));
        let rows: Vec<i32> = rows.collect();
        Some(features.take(&Array::from_slice(&rows, &[rows.len() as i32]).unwrap(), 0).unwrap())
    }

    /// Whether the features of a case are those of the encoder that is followed.
    pub fn has_features_to_follow(&self, case: &str) -> bool {
        !SAMPLED_OTHERWISE.contains(&(self.name.trim_end_matches(".hf"), case))
    }

    fn has_no_features(&self) -> bool {
        WITHOUT_FEATURES.contains(&self.name.trim_end_matches(".hf"))
    }

    /// Whether the text model rotates by positions on three axes.
    fn has_axes(&self) -> bool {
        serde_json::to_string(&self.config).unwrap().contains("mrope_section")
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
}

fn rows(array: &Array) -> Vec<Vec<f32>> {
    let width = array.dim(1).unwrap() as usize;
    array.to_vec::<f32>().unwrap().chunks(width).map(<[f32]>::to_vec).collect()
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
