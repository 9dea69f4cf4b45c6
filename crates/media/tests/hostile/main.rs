//! Inputs that are meant to do harm: each is an error of one line, and costs little memory.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use omnibus_media::{
    Alpha, ConfigFiles, Error, Image, Limits, Processor, Sampling, decode_audio, decode_image, decode_video,
};
use omnibus_testing::hostile_pictures::{gif, inputs, png, webp_of, whole};
use serde_json::json;

mod memory;

/// Memory that an input may cost beside its own bytes.
const MEMORY_MAX: usize = 96 << 20;

/// Memory that hostile settings may cost.
const SETTINGS_MEMORY_MAX: usize = 256 << 20;

#[test]
fn hostile_pictures_are_errors_of_one_line_and_cost_little() {
    let inputs = inputs();
    assert!(inputs.len() >= 40);
    for (name, bytes) in inputs {
        let (result, memory) =
            memory::allocated(|| decode_image(&bytes, &Limits::default(), Alpha::OverWhite));
        let error = result.expect_err(name).to_string();
        assert!(error.len() < 400 && !error.contains(char::is_control), "{name}: {error:?}");
        assert!(memory < MEMORY_MAX, "{name}: {memory} bytes");
    }
}

#[test]
fn limits_are_what_the_caller_says() {
    let (bytes, _) = memory::allocated(|| whole("rgb.png"));
    let check = |limits: Limits, wanted: &str| {
        let error = decode_image(&bytes, &limits, Alpha::OverWhite).unwrap_err();
        assert_eq!(error.to_string(), wanted);
    };
    check(Limits { pixels: 62, ..Limits::default() }, "the image has 63 pixels, over the limit of 62");
    check(Limits { side: 8, ..Limits::default() }, "the image has 9 pixels to a side, over the limit of 8");
    let len = bytes.len();
    let wanted = format!("the image has {len} bytes, over the limit of 50");
    check(Limits { file_bytes: 50, ..Limits::default() }, &wanted);
    let exact = Limits { pixels: 63, side: 9, file_bytes: len as u64, ..Limits::default() };
    assert!(decode_image(&bytes, &exact, Alpha::OverWhite).is_ok());
}

#[test]
fn bytes_behind_a_picture_are_ignored_and_cost_nothing() {
    let bytes = [whole("rgb.png"), vec![b'P'; 1 << 20]].concat();
    let image = decode_image(&bytes, &Limits::default(), Alpha::OverWhite).unwrap();
    assert_eq!((image.width(), image.height()), (9, 7));
}

#[test]
fn an_exif_block_that_claims_gigabytes_is_ignored_and_costs_nothing() {
    let mut bytes = whole("orientation_6.webp");
    let turned = decode_image(&bytes, &Limits::default(), Alpha::OverWhite).unwrap();
    let at = bytes.windows(4).position(|name| name == b"EXIF").unwrap() + 4;
    bytes[at..at + 4].copy_from_slice(&0xD900_0000_u32.to_le_bytes());
    let (image, memory) = memory::allocated(|| decode_image(&bytes, &Limits::default(), Alpha::OverWhite));
    let image = image.unwrap();
    assert_eq!((image.width(), image.height()), (turned.height(), turned.width()));
    assert_ne!(image.width(), image.height());
    assert!(memory < MEMORY_MAX, "{memory} bytes");
}

#[test]
fn flipped_bits_never_panic() {
    // Under the lock, so that the others count their own memory.
    memory::allocated(flip_bits);
}

fn flip_bits() {
    for name in
        ["rgb.png", "palette.gif", "baseline.jpg", "progressive.jpg", "lossy.webp", "rgb.tiff", "palette.bmp"]
    {
        let bytes = whole(name);
        let step = (bytes.len() / 150).max(1);
        for at in (0..bytes.len()).step_by(step) {
            let mut broken = bytes.clone();
            broken[at] ^= 1 << (at % 8);
            // Either is right; a panic or a hang is not.
            let limits = Limits { pixels: 1 << 20, ..Limits::default() };
            let _ = decode_image(&broken, &limits, Alpha::OverWhite);
        }
    }
}

#[test]
fn hostile_settings_are_errors_that_name_the_field() {
    let picture = Image::new(61, 47, vec![9; 61 * 47 * 3]).unwrap();
    let check = |kind: &str, settings: serde_json::Value| {
        let files = ConfigFiles { preprocessor: Some(&settings), ..ConfigFiles::default() };
        let (result, memory) = memory::allocated(|| {
            Processor::of_kind(kind, &files).and_then(|processor| processor.image(&picture))
        });
        let error = result.expect_err(&format!("{kind} {settings}"));
        let text = error.to_string();
        assert!(text.len() < 400 && !text.contains(char::is_control), "{text:?}");
        assert!(memory < SETTINGS_MEMORY_MAX, "{kind} {settings}: {memory} bytes");
        error
    };
    let field = |kind, settings, name| match check(kind, settings) {
        Error::Config { field, .. } => assert_eq!(field, name),
        other => panic!("{other}"),
    };
    field("clip", json!({"size": {"shortest_edge": 0}}), "size");
    field("clip", json!({"size": {"shortest_edge": 1_000_000}}), "size");
    field("clip", json!({"size": "big"}), "size");
    field("clip", json!({"image_std": [0.5, 0.0, 0.5]}), "image_std");
    field("clip", json!({"image_mean": [0.5, 0.5]}), "image_mean");
    field("clip", json!({"image_mean": ["a", "b", "c"]}), "image_mean");
    field("clip", json!({"resample": 9}), "resample");
    field("clip", json!({"do_resize": false}), "do_resize");
    field("clip", json!({"rescale_factor": "much"}), "rescale_factor");
    field("mlx.qwen2_vl", json!({"patch_size": 0}), "patch_size");
    field("mlx.qwen2_vl", json!({"patch_size": -14}), "patch_size");
    field("mlx.qwen2_vl", json!({"patch_size": 1_000_000, "merge_size": 1_000_000}), "patch_size");
    field("mlx.qwen2_vl", json!({"min_pixels": 100, "max_pixels": 10}), "max_pixels");
    field("lfm2_vl", json!({"min_tiles": 9, "max_tiles": 2}), "min_tiles");
    field("mllama", json!({"size": {"height": 10, "width": 20}}), "size");
    field("llava_next", json!({"image_grid_pinpoints": [[0, 0]]}), "image_grid_pinpoints");
    field("mlx.kimi_vl", json!({"merge_kernel_size": [0, 2]}), "merge_kernel_size");
    check("mlx.qwen2_vl", json!({"min_pixels": 1_000_000_000, "max_pixels": 1_000_000_000}));
    check("siglip2", json!({"patch_size": 1000, "max_num_patches": 1_000_000_000}));
    check("mlx.gemma4", json!({"max_soft_tokens": 60_000, "patch_size": 1000, "pooling_kernel_size": 4}));
    check(
        "clip",
        json!({"size": {"shortest_edge": 16_384}, "crop_size": {"height": 16_384, "width": 16_384}}),
    );
    check(
        "got_ocr2",
        json!({"size": {"height": 16_384, "width": 16_384}, "crop_to_patches": true, "max_patches": 12}),
    );
    check("mllama", json!({"size": {"height": 4_096, "width": 4_096}, "max_image_tiles": 256}));
}

#[test]
fn an_unknown_model_is_an_error_that_names_it() {
    let error = Processor::read("no\nsuch", &ConfigFiles::default()).unwrap_err();
    assert_eq!(error.to_string(), "no image or audio processor is known for the model type `no such`");
}

/// A WAV file of a format, with whatever data.
fn wav(format: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
    let mut file = b"RIFF\xFF\xFF\xFF\x7FWAVEfmt \x10\0\0\0".to_vec();
    file.extend(format.to_le_bytes());
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate.wrapping_mul(u32::from(channels))).to_le_bytes());
    file.extend((channels.wrapping_mul(bits / 8)).to_le_bytes());
    file.extend(bits.to_le_bytes());
    file.extend(b"data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

fn sounds() -> Vec<(&'static str, Vec<u8>)> {
    let floats = |value: f32| value.to_le_bytes().repeat(64);
    vec![
        ("nothing", vec![]),
        ("text", b"hello, this is no sound".to_vec()),
        ("a picture instead of sound", whole("rgb.png")),
        ("zeros", vec![0; 4096]),
        ("WAV header only", b"RIFF\x24\0\0\0WAVE".to_vec()),
        ("WAV without samples", wav(1, 1, 16_000, 16, &[])),
        ("WAV without channels", wav(1, 0, 16_000, 16, &[0; 64])),
        ("WAV with 65,535 channels", wav(1, 65_535, 16_000, 16, &[0; 64])),
        ("WAV with a rate of 0", wav(1, 1, 0, 16, &[0; 64])),
        ("WAV with a rate of 4 GHz", wav(1, 1, u32::MAX, 16, &[0; 64])),
        ("WAV with 7 bits", wav(1, 1, 16_000, 7, &[0; 64])),
        ("WAV in format 999", wav(999, 1, 16_000, 16, &[0; 64])),
        ("WAV of NaN", wav(3, 1, 16_000, 32, &floats(f32::NAN))),
        ("WAV of infinity", wav(3, 1, 16_000, 32, &floats(f32::INFINITY))),
        ("FLAC header only", b"fLaC".to_vec()),
        ("FLAC with a block of 16 MB", b"fLaC\x00\xFF\xFF\xFF".to_vec()),
        ("Ogg header only", b"OggS\0\x02".to_vec()),
        ("Ogg of zeros", [b"OggS".to_vec(), vec![0; 512]].concat()),
        ("MP3 header only", b"\xFF\xFB\x90\x00".to_vec()),
        ("MP3 tag of 256 MB", b"ID3\x04\0\0\x7F\x7F\x7F\x7F".to_vec()),
        ("MP4 without tracks", b"\0\0\0\x18ftypM4A \0\0\0\0M4A mp42".to_vec()),
        ("MP4 with an atom of 2^63 bytes", b"\0\0\0\x01ftyp\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF".to_vec()),
        ("Matroska header only", b"\x1A\x45\xDF\xA3".to_vec()),
        ("AAC of ones", vec![0xFF; 4096]),
        ("AIFF header only", b"FORM\0\0\0\x04AIFF".to_vec()),
    ]
}

#[test]
fn hostile_sounds_are_errors_of_one_line_and_cost_little() {
    for (name, bytes) in sounds() {
        let (result, memory) = memory::allocated(|| decode_audio(&bytes, &Limits::default(), 16_000));
        let error = result.expect_err(name).to_string();
        assert!(error.len() < 400 && !error.contains(char::is_control), "{name}: {error:?}");
        assert!(memory < MEMORY_MAX, "{name}: {memory} bytes");
    }
}

#[test]
fn flipped_bits_of_sound_never_panic() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sound");
    memory::allocated(|| {
        for name in ["sine.mp3", "sine.flac", "sine.ogg", "sine.m4a"] {
            let bytes = std::fs::read(folder.join(name)).unwrap();
            for at in (0..bytes.len()).step_by((bytes.len() / 60).max(1)) {
                let mut broken = bytes.clone();
                broken[at] ^= 1 << (at % 8);
                let _ = decode_audio(&broken, &Limits::default(), 16_000);
            }
        }
    });
}

fn video(name: &str) -> Vec<u8> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/video");
    std::fs::read(folder.join(name)).unwrap()
}

/// The file with what stands for one four-letter box replaced by another.
fn renamed(name: &str, from: &[u8; 4], to: &[u8; 4]) -> Vec<u8> {
    let mut bytes = video(name);
    let at = bytes.windows(4).position(|window| window == from).unwrap();
    bytes[at..at + 4].copy_from_slice(to);
    bytes
}

fn videos() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("nothing", vec![]),
        ("text", b"hello, this is no video".to_vec()),
        ("a playlist", b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n".to_vec()),
        ("a list of files", b"ffconcat version 1.0\nfile /etc/passwd\n".to_vec()),
        ("sound instead of video", wav(1, 1, 16_000, 16, &[0; 64])),
        ("MP4 header only", video("b_frames.mp4")[..32].to_vec()),
        ("MP4 without its index", renamed("b_frames.mp4", b"moov", b"free")),
        ("MP4 without its samples", renamed("baseline.mp4", b"mdat", b"free")[..1000].to_vec()),
        ("MP4 without decoder parameters", renamed("b_frames.mp4", b"avcC", b"free")),
        (
            "MP4 with only sound",
            std::fs::read(
                std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sound/sine.m4a"),
            )
            .unwrap(),
        ),
        ("Matroska cut at its header", video("high.mkv")[..200].to_vec()),
        ("GIF of 65,535x65,535", gif(65_535, 65_535, b",\0\0\0\0\xFF\xFF\xFF\xFF\0\x02\x02\x44\x01\0;")),
        ("GIF without frames", gif(16, 16, b";")),
        ("PNG of 30,000x30,000", png(30_000, 30_000, 8, 2, b"x")),
        ("WebP of 16,777,216x16,777,216", webp_of(1 << 24, 1 << 24)),
        ("AVI without ffmpeg", b"RIFF\x04\0\0\0AVI ".to_vec()),
    ]
}

#[test]
fn hostile_videos_are_errors_of_one_line_and_cost_little() {
    let sampling = Sampling::Count(8);
    for (name, bytes) in videos() {
        let (result, memory) =
            memory::allocated(|| decode_video(&bytes, &Limits::default(), &sampling, None));
        let error = result.expect_err(name).to_string();
        assert!(error.len() < 400 && !error.contains(char::is_control), "{name}: {error:?}");
        assert!(memory < MEMORY_MAX, "{name}: {memory} bytes");
    }
}

#[test]
fn flipped_bits_of_videos_never_panic() {
    memory::allocated(|| {
        for name in ["b_frames.mp4", "high.mkv", "frames.gif", "frames.webp", "frames.png"] {
            let bytes = video(name);
            for at in (0..bytes.len()).step_by((bytes.len() / 120).max(1)) {
                let mut broken = bytes.clone();
                broken[at] ^= 1 << (at % 8);
                let limits = Limits { pixels: 1 << 20, decoded_pixels: 1 << 24, ..Limits::default() };
                let _ = decode_video(&broken, &limits, &Sampling::Count(8), None);
            }
        }
    });
}
