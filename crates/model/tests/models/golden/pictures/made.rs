//! What an encoder takes of a fixture's pictures, made by the processor that its files describe.

use mlx::{Array, Dtype};
use omnibus_media::{
    Audio, AudioProcessor, Clip, ConfigFiles, Elements, Features, Frame, Image, Layout, Processor, Tensor,
};
use omnibus_model::encoders::{self, EncoderBlueprint, EncoderInput, View};
use omnibus_testing::formulas;
use serde_json::Value;

use super::PictureFixture;
use super::inputs::{of_grids, of_padded_patches, of_padded_planes, of_planes};

/// Settings of `preprocessor_config.json` that mlx-vlm drops, using built-in ones, and that are honoured here.
const DROPPED: &[(&str, &[&str])] = &[
    ("kimi_vl", &["pad_input", "in_token_limit", "image_mean", "image_std"]),
    ("lfm2_vl", &["do_image_splitting", "min_tiles", "max_tiles", "use_thumbnail"]),
];

impl PictureFixture {
    /// What the encoder takes of each of a case's pictures and videos; `None` if the fixture does not say what they are.
    pub(super) fn made(&self, case: &str, encoder: &EncoderBlueprint) -> Option<Vec<EncoderInput>> {
        let file = self.directory.join("case.json");
        let file: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let row = file["cases"].as_array().unwrap().iter().find(|row| row["name"] == case)?;
        let (images, videos) = (row["images"].as_array(), row["videos"].as_array());
        if images.is_none() && videos.is_none() {
            return None;
        }
        let processor = self.processor()?;
        let number = |row: &Value, at: usize| row[at].as_u64().unwrap() as u32;
        let image = |row: &Value| {
            let picture = image(number(row, 0), number(row, 1), number(row, 2));
            input(processor.image(&picture).unwrap(), encoder)
        };
        let video = |row: &Value| {
            let clip = clip(number(row, 0), number(row, 1), number(row, 2), number(row, 3));
            input(processor.video(&clip).unwrap(), encoder)
        };
        let images = images.into_iter().flatten().map(image);
        Some(images.chain(videos.into_iter().flatten().map(video)).collect())
    }

    /// Spectra of a case's sounds, `[frames, bands]`; none if the fixture does not say what they are.
    #[allow(dead_code, reason = "the example takes golden spectra")]
    pub fn spectra(&self, case: &str) -> Vec<Array> {
        let file = self.directory.join("case.json");
        let file: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let row = file["cases"].as_array().unwrap().iter().find(|row| row["name"] == case);
        let sounds = row.and_then(|row| row["sounds"].as_array()).into_iter().flatten();
        let spectrum = |row: &Value| {
            let samples = formulas::sound(row[0].as_i64().unwrap(), row[1].as_i64().unwrap());
            let made = self.audio_processor().audio(&Audio::new(16_000, samples).unwrap()).unwrap();
            array(&made.tensors["input_features"]).squeeze(&[0]).unwrap()
        };
        sounds.map(spectrum).collect()
    }

    #[allow(dead_code, reason = "the example takes golden spectra")]
    fn audio_processor(&self) -> AudioProcessor {
        let bytes = std::fs::read(self.directory.join("preprocessor_config.json")).unwrap();
        let preprocessor: Value = serde_json::from_slice(&bytes).unwrap();
        let files = ConfigFiles { preprocessor: Some(&preprocessor), ..ConfigFiles::default() };
        AudioProcessor::read(self.config["model_type"].as_str().unwrap(), &files).unwrap()
    }

    fn processor(&self) -> Option<Processor> {
        let dropped = DROPPED
            .iter()
            .find(|(name, _)| *name == self.name.trim_end_matches(".hf"))
            .map_or(&[][..], |(_, fields)| fields);
        let read = |name: &str| {
            let bytes = std::fs::read(self.directory.join(name)).ok()?;
            let mut value: Value = serde_json::from_slice(&bytes).unwrap();
            drop_fields(&mut value, dropped);
            Some(value)
        };
        let config = Value::Object(self.config.clone());
        let [preprocessor, processor, video] =
            ["preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"].map(read);
        let files = ConfigFiles {
            config: Some(&config),
            preprocessor: preprocessor.as_ref(),
            processor: processor.as_ref(),
            video_preprocessor: video.as_ref(),
        };
        preprocessor.as_ref()?;
        Some(Processor::read(config["model_type"].as_str()?, &files).unwrap())
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

fn input(mut features: Features, encoder: &EncoderBlueprint) -> EncoderInput {
    let size = encoder.patches.size as i32;
    let mut take = |name: &str| features.tensors.remove(name);
    let grids = take("image_grid_thw").or(take("video_grid_thw")).or(take("image_grid_hws"));
    let (shapes, sizes) = (take("spatial_shapes"), take("view_sizes").or(take("image_sizes")));
    let pixels = array(&take("pixel_values").or(take("pixel_values_videos")).unwrap());
    let is_tiled = features.layout != Layout::Views;
    let views: Vec<View> = match (grids, shapes, sizes) {
        (Some(grids), ..) => of_grids(&pixels, &numbers(&grids)),
        (None, Some(shapes), _) => of_padded_patches(&pixels, &numbers(&shapes)),
        (None, None, Some(sizes)) if !is_tiled => {
            let [.., height, width] = *pixels.shape() else { panic!("pixels {:?}", pixels.shape()) };
            let pixels = pixels.reshape(&[-1, 3, height, width]).unwrap();
            of_padded_planes(&pixels, &numbers(&sizes), size)
        }
        (None, None, _) => vec![of_planes(&pixels, size)],
    };
    EncoderInput { views, layout: layout(features.layout) }
}

fn layout(layout: Layout) -> encoders::Layout {
    match layout {
        Layout::Views => encoders::Layout::Views,
        Layout::Canvas(omnibus_media::Canvas { tiles, shown, resized }) => {
            encoders::Layout::Canvas(encoders::Canvas { tiles, shown, resized })
        }
        Layout::Frames(size) => encoders::Layout::Frames(size),
        Layout::Tiles { shape, count } => encoders::Layout::Tiles { shape, count },
        Layout::Pools { count, rows } => encoders::Layout::Pools { count, rows },
    }
}

fn array(tensor: &Tensor) -> Array {
    let shape: Vec<i32> = tensor.shape.iter().map(|side| *side as i32).collect();
    match &tensor.elements {
        Elements::F32(values) => Array::from_slice(values, &shape).unwrap(),
        Elements::I64(values) => Array::from_slice(values, &shape).unwrap().astype(Dtype::I32).unwrap(),
    }
}

/// The rows of a tensor of integers.
fn numbers(tensor: &Tensor) -> Vec<Vec<i32>> {
    let numbers = array(tensor).to_vec::<i32>().unwrap();
    numbers.chunks(*tensor.shape.last().unwrap()).map(<[i32]>::to_vec).collect()
}

/// A picture with ramps, checks and noise.
fn image(width: u32, height: u32, seed: u32) -> Image {
    Image::new(width, height, formulas::pixels(width, height, seed)).unwrap()
}
