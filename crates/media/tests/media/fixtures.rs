//! The tiny models of the reference: pixels of each picture, and prompts with their placeholders expanded.

use std::path::Path;

use omnibus_media::{Clip, ConfigFiles, Elements, Expansion, Features, Frame, Piece, Processor, Tensor};
use omnibus_testing::reference::{PICTURE_MODELS, found};
use serde_json::Value;

use crate::safetensors::{Golden, Values, checksum, json, read, sample};
use crate::support::image;

/// The reference puts the beginning and the end of the text elsewhere, too.
const OTHER_PROMPT: &[&str] = &["paligemma"];

/// Settings of `preprocessor_config.json` that mlx-vlm drops, using built-in ones, and that are honoured here.
const DROPPED: &[(&str, &[&str])] = &[
    ("kimi_vl", &["pad_input", "in_token_limit", "image_mean", "image_std"]),
    ("lfm2_vl", &["do_image_splitting", "min_tiles", "max_tiles", "use_thumbnail"]),
];

#[test]
fn every_fixture_has_the_pixels_and_the_prompt_of_the_reference() {
    for found in found(PICTURE_MODELS) {
        let mut folders = found.files("");
        folders.retain(|folder| folder.extension().is_none_or(|format| format != "hf"));
        found.assert_count(folders.len(), 31);
        let wrong: Vec<String> =
            folders.iter().flat_map(|folder| Fixture::read(folder).differences()).collect();
        assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    }
}

struct Fixture {
    name: String,
    case: Value,
    golden: std::collections::BTreeMap<String, Golden>,
    processor: Processor,
}

impl Fixture {
    fn read(folder: &Path) -> Fixture {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let dropped =
            DROPPED.iter().find(|(fixture, _)| *fixture == name).map_or(&[][..], |(_, fields)| fields);
        let optional = |name: &str| {
            let path = Some(folder.join(name)).filter(|path| path.exists())?;
            let mut file = json(&path);
            drop_fields(&mut file, dropped);
            Some(file)
        };
        let config = json(&folder.join("config.json"));
        let (preprocessor, processor) =
            (optional("preprocessor_config.json"), optional("processor_config.json"));
        let video = optional("video_preprocessor_config.json");
        let files = ConfigFiles {
            config: Some(&config),
            preprocessor: preprocessor.as_ref(),
            processor: processor.as_ref(),
            video_preprocessor: video.as_ref(),
        };
        // The fixture called pixtral is a LLaVA with Pixtral's encoder.
        Fixture {
            name,
            case: json(&folder.join("case.json")),
            golden: read(&folder.join("golden.safetensors")),
            processor: Processor::read(config["model_type"].as_str().unwrap(), &files).unwrap(),
        }
    }

    fn differences(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for case in self.case["cases"].as_array().unwrap() {
            let name = case["name"].as_str().unwrap();
            let number = |value: &Value| value.as_u64().unwrap() as u32;
            if let Some(row) = case["videos"].get(0).filter(|_| self.processor.sampling().is_some()) {
                let clip = clip(number(&row[0]), number(&row[1]), number(&row[2]), number(&row[3]));
                let features = self.processor.video(&clip).unwrap();
                wrong.extend(self.pixels(name, "pixel_values_videos", &features));
                wrong.extend(self.prompt(name, &[features]));
            }
            let Some(pictures) = case["images"].as_array() else { continue };
            let features: Vec<Features> = pictures
                .iter()
                .map(|row| image(number(&row[0]), number(&row[1]), number(&row[2])))
                .map(|picture| self.processor.image(&picture).unwrap())
                .collect();
            match &features[..] {
                views if self.name == "minicpmv4_6" => wrong.extend(self.packed_pixels(name, views)),
                [one] => wrong.extend(self.pixels(name, "pixel_values", one)),
                _ => {}
            }
            if !OTHER_PROMPT.contains(&self.name.as_str()) {
                wrong.extend(self.prompt(name, &features));
            }
        }
        wrong
    }

    /// Of MiniCPM-V, whose reference lays the patches of each view side by side, `[3, 14, 14 · patches]`.
    fn packed_pixels(&self, case: &str, features: &[Features]) -> Vec<String> {
        let views = features.iter().flat_map(|of| {
            let (Elements::F32(values), Elements::I64(grids)) =
                (&of.tensors["pixel_values"].elements, &of.tensors["image_grid_thw"].elements)
            else {
                panic!("pixels and sizes")
            };
            let mut rest = values.as_slice();
            let counts = grids.chunks(3).map(|grid| grid.iter().product::<i64>() as usize);
            let of_view = |count: usize| {
                let (view, behind) = rest.split_at(count * 3 * 14 * 14);
                rest = behind;
                let at = |channel: usize, y: usize, patch: usize, x: usize| {
                    view[((patch * 3 + channel) * 14 + y) * 14 + x]
                };
                let rows = (0..3 * 14).flat_map(move |row| (0..count * 14).map(move |x| (row, x)));
                let values = rows.map(|(row, x)| at(row / 14, row % 14, x / 14, x % 14)).collect();
                Tensor { shape: vec![3, 14, 14 * count], elements: Elements::F32(values) }
            };
            counts.map(of_view).collect::<Vec<_>>()
        });
        let views: Vec<Tensor> = views.collect();
        let rows = self.case["cases"].as_array().unwrap();
        let check = |(index, tensor): (usize, &Tensor)| {
            let alone = views.len() == 1;
            let key =
                format!("pixel_values.{case}{}", if alone { String::new() } else { format!(".{index}") });
            let row = rows.iter().find_map(|row| row["arrays"].get(&key)).unwrap();
            let shape: Vec<usize> = serde_json::from_value(row["shape"].clone()).unwrap();
            let is_equal = shape == tensor.shape && row["crc32"] == checksum(tensor);
            (!is_equal).then(|| format!("{} {key}: {:?} for {shape:?}", self.name, tensor.shape))
        };
        views.iter().enumerate().filter_map(check).collect()
    }

    fn pixels(&self, case: &str, tensor: &str, features: &Features) -> Option<String> {
        let key = format!("{tensor}.{case}");
        let tensor = &features.tensors[tensor];
        let rows = self.case["cases"].as_array().unwrap();
        let row = rows.iter().find_map(|row| row["arrays"].get(&key)).unwrap();
        let mut shape: Vec<usize> = serde_json::from_value(row["shape"].clone()).unwrap();
        // mlx-vlm adds an axis for PaddleOCR-VL.
        if self.name == "paddleocr_vl" {
            shape.remove(0);
        }
        if shape == tensor.shape && row["crc32"] == checksum(tensor) {
            return None;
        }
        let samples = self.golden.get(&format!("{key}.sample")).or(self.golden.get(&key)).unwrap();
        let most = match (&samples.values, sample(tensor, samples.shape.iter().product())) {
            (Values::F32(a), Values::F32(b)) => {
                a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
            }
            _ => f32::NAN,
        };
        Some(format!("{} {case}: {:?} for {shape:?}, differs by {most}", self.name, tensor.shape))
    }

    fn prompt(&self, case: &str, features: &[Features]) -> Option<String> {
        let ids = |key: &str| match &self.golden[&format!("{key}.{case}")].values {
            Values::I32(ids) => ids.clone(),
            other => panic!("{other:?}"),
        };
        let (mut rest, golden) = (&ids("raw")[..], ids("prompt"));
        let mut prompt = Vec::new();
        for (number, Features { expansion, .. }) in features.iter().enumerate() {
            let placeholder = self.encode(&expansion.replaces);
            let at = rest.windows(placeholder.len()).position(|window| window == placeholder).unwrap();
            prompt.extend(&rest[..at]);
            prompt.extend(self.expanded(expansion, number));
            rest = &rest[at + placeholder.len()..];
        }
        prompt.extend(rest);
        (prompt != golden).then(|| format!("{} {case}: prompt\n {prompt:?}, not\n {golden:?}", self.name))
    }

    fn expanded(&self, expansion: &Expansion, number: usize) -> Vec<i32> {
        let token = self.encode(&expansion.token);
        let piece = |piece: &Piece| match piece {
            Piece::Features(count) => token.repeat(*count),
            Piece::Text(text) => self.encode(text),
            Piece::Number(first) => self.encode(&(first + number).to_string()),
        };
        expansion.pieces.iter().flat_map(piece).collect()
    }

    /// The tiny tokenizer of the fixtures: special tokens, line ends and single characters.
    fn encode(&self, mut text: &str) -> Vec<i32> {
        const CHARACTERS: &str = "<>|_.,:;!?'-/()[]{}=0123456789abcdefghijklmnopqrstuvwxyz";
        let tokens = self.case["tokens"].as_object().unwrap();
        let mut ids = Vec::new();
        while let Some(first) = text.chars().next() {
            let special = tokens.iter().filter(|(token, _)| text.starts_with(token.as_str()));
            let (length, id) = match special.max_by_key(|(token, _)| token.len()) {
                Some((token, id)) => (token.len(), Some(id.as_i64().unwrap() as i32)),
                None if text.starts_with("\n\n") => (2, Some(5)),
                None if first == '\n' => (1, Some(4)),
                None if first == ' ' => (1, None),
                None => (first.len_utf8(), CHARACTERS.find(first).map(|at| at as i32 + 6)),
            };
            ids.extend(id);
            text = &text[length..];
        }
        ids
    }
}

/// A video at two frames a second.
fn clip(width: u32, height: u32, frames: u32, seed: u32) -> Clip {
    let frame = |index: u32| Frame {
        image: image(width, height, seed + index),
        index: index as usize,
        seconds: f64::from(index) / 2.0,
    };
    Clip::new((0..frames).map(frame).collect(), frames as usize, 2.0).unwrap()
}

fn drop_fields(value: &mut Value, fields: &[&str]) {
    if let Some(object) = value.as_object_mut() {
        object.retain(|key, _| !fields.contains(&key.as_str()));
        object.values_mut().for_each(|value| drop_fields(value, fields));
    }
}
