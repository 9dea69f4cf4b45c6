//! The golden sets of the reference: every byte of Pillow's resize, every bit of each processor's output.

use std::path::Path;

use omnibus_media::{ConfigFiles, Error, Features, Filter, PassOrder, Processor, resize};
use omnibus_testing::reference::{PREPROCESSED, found};
use serde_json::Value;

use crate::safetensors::{Values, checksum, json, read, sample};
use crate::support::{crc32, image};

/// Golden sets, and the processor kind that must give them.
pub const SETS: &[(&str, &str)] = &[
    ("clip", "clip"),
    ("deepseek_vl", "deepseek_vl"),
    ("gemma3", "gemma3"),
    ("gemma3.pan_and_scan", "gemma3"),
    ("gemma4", "gemma4"),
    ("glm4v", "glm4v"),
    ("got_ocr2", "got_ocr2"),
    ("granite_vision", "llava_next"),
    ("idefics2", "idefics2"),
    ("idefics3", "idefics3"),
    ("llava_next", "llava_next"),
    ("llava_onevision", "llava_onevision"),
    ("mllama", "mllama"),
    ("mlx.gemma4", "mlx.gemma4"),
    ("mlx.internvl", "mlx.internvl"),
    ("mlx.kimi_vl", "mlx.kimi_vl"),
    ("mlx.llama4", "mlx.llama4"),
    ("mlx.phi3_v", "mlx.phi3_v"),
    ("mlx.pixtral", "mlx.pixtral"),
    ("mlx.qwen2_vl", "mlx.qwen2_vl"),
    ("mlx.qwen3_vl", "mlx.qwen3_vl"),
    ("ovis2", "ovis2"),
    ("paddleocr_vl", "paddleocr_vl"),
    ("pixtral", "pixtral"),
    ("qwen2_vl", "qwen2_vl"),
    ("qwen2_vl.small", "qwen2_vl"),
    ("qwen3_vl", "qwen2_vl"),
    ("siglip", "siglip"),
    ("siglip2", "siglip2"),
    ("smolvlm", "idefics3"),
    ("smolvlm.small", "idefics3"),
];

#[test]
fn every_processor_gives_the_bits_of_its_golden_set() {
    for found in found(PREPROCESSED) {
        let sets = SETS.iter().map(|(set, kind)| (found.folder().join(set), kind));
        let (tested, wrong): (Vec<_>, Vec<_>) = sets
            .filter(|(set, _)| found.is_whole() || set.is_dir())
            .map(|(set, kind)| (set.clone(), differences(&set, kind)))
            .unzip();
        let wrong = wrong.concat();
        assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
        found.assert_count(tested.len(), SETS.len());
    }
}

#[test]
fn every_golden_set_is_tested() {
    let sets = found(PREPROCESSED).flat_map(|found| found.files(""));
    for name in sets.map(|set| set.file_name().unwrap().to_string_lossy().into_owned()) {
        if name.ends_with(".json") {
            continue;
        }
        let tested =
            name == "resize" || name.starts_with("sound.") || SETS.iter().any(|(set, _)| *set == name);
        assert!(tested, "{name} is not tested");
    }
}

/// What a processor makes otherwise than its golden set has it.
pub fn differences(folder: &Path, kind: &str) -> Vec<String> {
    let case = json(&folder.join("case.json"));
    let golden = read(&folder.join("golden.safetensors"));
    let settings = &case["settings"];
    let processor =
        Processor::of_kind(kind, &ConfigFiles { preprocessor: Some(settings), ..ConfigFiles::default() })
            .unwrap();
    let name = folder.file_name().unwrap().to_string_lossy();
    let mut wrong = Vec::new();
    for (index, picture) in settings["pictures"].as_array().unwrap().iter().enumerate() {
        let number = |at: usize| picture[at].as_u64().unwrap() as u32;
        let made = processor.image(&image(number(0), number(1), number(2)));
        let suffix = format!(".{index}");
        let whole = golden.iter().filter_map(|(key, golden)| Some((key.strip_suffix(&suffix)?, golden)));
        if let Err(error) = &made {
            // The reference makes nothing of it, and says so only by an empty tensor.
            let empty = whole.clone().any(|(_, golden)| golden.shape.contains(&0));
            if !(empty && matches!(error, Error::Unsuitable { .. })) {
                wrong.push(format!("{name}{suffix}: {error}"));
            }
            continue;
        }
        let made = made.unwrap();
        wrong.extend(grid_errors(&made).into_iter().map(|error| format!("{name}{suffix}: {error}")));
        for (key, golden) in whole.filter(|(key, _)| !key.starts_with('_')) {
            let Some(tensor) = made.tensors.get(key) else {
                wrong.push(format!("{name}{suffix}: {key} is missing"));
                continue;
            };
            let equal =
                tensor.shape == golden.shape && sample(tensor, tensor.elements.count()) == golden.values;
            if !equal {
                wrong.push(format!("{name}{suffix}: {key} {:?}", tensor.shape));
            }
        }
        wrong.extend(sampled(&name, &suffix, &case["arrays"], &golden, &made));
    }
    wrong
}

fn sampled(
    name: &str,
    suffix: &str,
    arrays: &Value,
    golden: &std::collections::BTreeMap<String, crate::safetensors::Golden>,
    made: &Features,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let rows = arrays.as_object().unwrap().iter();
    for (key, row) in rows.filter_map(|(key, row)| Some((key.strip_suffix(suffix)?, row))) {
        let Some(tensor) = made.tensors.get(key) else {
            wrong.push(format!("{name}{suffix}: {key} is missing"));
            continue;
        };
        let shape: Vec<usize> = serde_json::from_value(row["shape"].clone()).unwrap();
        if tensor.shape != shape {
            wrong.push(format!("{name}{suffix}: {key} has shape {:?}, not {shape:?}", tensor.shape));
        } else if row["crc32"] != checksum(tensor) {
            let most =
                golden.get(&format!("{key}{suffix}.sample")).map(|golden| largest(&golden.values, tensor));
            wrong.push(format!("{name}{suffix}: {key} differs, in the sample by {most:?}"));
        }
    }
    wrong
}

fn largest(golden: &Values, tensor: &omnibus_media::Tensor) -> f32 {
    match (golden, sample(tensor, 997)) {
        (Values::F32(golden), Values::F32(made)) => {
            golden.iter().zip(&made).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        }
        _ => f32::NAN,
    }
}

fn grid_errors(features: &Features) -> Option<String> {
    let grid = features.grid?;
    let count = features.expansion.features();
    (grid.frames * grid.rows * grid.columns != count).then(|| format!("{grid:?} has not {count} features"))
}

#[test]
fn resize_gives_the_bytes_of_pillow() {
    for found in found(PREPROCESSED) {
        let (tested, wrong) = resized_otherwise(&found.folder().join("resize"));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        found.assert_count(tested, 60);
    }
}

/// How many pictures were resized, and which of them otherwise than Pillow does it.
pub fn resized_otherwise(folder: &Path) -> (usize, Vec<String>) {
    let case = json(&folder.join("case.json"));
    let golden = read(&folder.join("golden.safetensors"));
    let (mut tested, mut wrong) = (0, Vec::new());
    for (index, row) in case["settings"]["pictures"].as_array().unwrap().iter().enumerate() {
        let number = |at: usize| row[at].as_u64().unwrap() as u32;
        let picture = image(number(0), number(1), number(2));
        for (name, code) in case["settings"]["filters"].as_object().unwrap() {
            let filter = Filter::from_pillow(code.as_u64().unwrap()).unwrap();
            let made = resize(&picture, number(3), number(4), filter, PassOrder::Pillow13).unwrap();
            let key = format!("{name}.{index}");
            let is_equal = match golden.get(&key) {
                Some(golden) => Values::U8(made.pixels().to_vec()) == golden.values,
                None => case["arrays"][&key]["crc32"] == crc32(made.pixels()),
            };
            if !is_equal {
                wrong.push(format!("resize: {key}"));
            }
            tested += 1;
        }
    }
    (tested, wrong)
}

/// Gemma 3n's processor with its published settings, by transformers' form for Pillow.
#[test]
fn pictures_of_gemma3n_have_the_checksums_of_transformers() {
    let golden = json(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gemma3n.json"));
    let files = ConfigFiles { preprocessor: Some(&golden["settings"]), ..ConfigFiles::default() };
    let processor = Processor::read("gemma3n", &files).unwrap();
    let pictures = golden["pictures"].as_array().unwrap();
    assert!(!pictures.is_empty());
    for (index, size) in pictures.iter().enumerate() {
        let number = |at: usize| size[at].as_u64().unwrap() as u32;
        let made = processor.image(&image(number(0), number(1), number(2))).unwrap();
        assert_eq!(golden["crc32"][index.to_string()], checksum(&made.tensors["pixel_values"]), "{size}");
        assert_eq!(made.expansion.features(), 256);
    }
}

/// Checksums that are kept here, where the reference is missing: the same pictures, two of each set.
#[test]
fn processors_and_resize_give_the_checksums_that_are_kept_here() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden.json");
    let golden = json(&path);
    let number = |row: &Value, at: usize| row[at].as_u64().unwrap() as u32;
    for (set, kind) in SETS {
        let row = &golden[*set];
        let files = ConfigFiles { preprocessor: Some(&row["settings"]), ..ConfigFiles::default() };
        let processor = Processor::of_kind(kind, &files).unwrap();
        for index in [1, 2] {
            let Some(wanted) = row["crc32"].get(index.to_string()) else { continue };
            let size = &row["pictures"][index];
            let made = processor.image(&image(number(size, 0), number(size, 1), number(size, 2))).unwrap();
            assert_eq!(*wanted, checksum(&made.tensors["pixel_values"]), "{set} {index}");
        }
    }
    for (key, wanted) in golden["resize"]["crc32"].as_object().unwrap() {
        let (name, index) = key.split_once('.').unwrap();
        let row = &golden["resize"]["pictures"][index.parse::<usize>().unwrap()];
        let code = golden["resize"]["settings"]["filters"][name].as_u64().unwrap();
        let filter = Filter::from_pillow(code).unwrap();
        let source = image(number(row, 0), number(row, 1), number(row, 2));
        let made = resize(&source, number(row, 3), number(row, 4), filter, PassOrder::Pillow13).unwrap();
        assert_eq!(*wanted, crc32(made.pixels()), "{key}");
    }
}
