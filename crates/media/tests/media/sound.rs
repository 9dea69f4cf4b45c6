//! Spectra of the reference's feature extractors.

use std::path::Path;

use omnibus_media::{Audio, AudioProcessor, ConfigFiles, Elements, Limits, decode_audio};
use omnibus_testing::reference::{PREPROCESSED, found};

use crate::safetensors::{Values, json, read, sample};
use crate::support::sound;

/// Golden sets of sound, the audio processor that must give them, and how far values may be off. The reference
/// transforms Gemma's frames in float32; Whisper's are in float64.
pub const SETS: &[(&str, &str, f32)] = &[
    ("sound.gemma3n", "gemma3n", 2e-4),
    ("sound.gemma4", "gemma4", 2e-5),
    ("sound.whisper80", "whisper", 5e-7),
    ("sound.whisper128.unpadded", "whisper.unpadded", 5e-7),
];

#[test]
fn every_feature_extractor_gives_its_golden_set() {
    for found in found(PREPROCESSED) {
        let sets = SETS.iter().map(|(set, kind, tolerance)| (found.folder().join(set), kind, tolerance));
        let mut tested = 0;
        for (set, kind, tolerance) in sets.filter(|(set, ..)| found.is_whole() || set.is_dir()) {
            let wrong = differences(&set, kind, *tolerance);
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
            tested += 1;
        }
        found.assert_count(tested, SETS.len());
    }
}

/// What a feature extractor makes otherwise than its golden set has it.
pub fn differences(folder: &Path, kind: &str, tolerance: f32) -> Vec<String> {
    let set = folder.file_name().unwrap().to_string_lossy();
    let case = json(&folder.join("case.json"));
    let golden = read(&folder.join("golden.safetensors"));
    let settings = &case["settings"];
    let files = ConfigFiles { preprocessor: Some(settings), ..ConfigFiles::default() };
    let processor = AudioProcessor::of_kind(kind, &files).unwrap();
    let (mut compared, mut wrong) = (0, Vec::new());
    for (index, row) in settings["sounds"].as_array().unwrap().iter().enumerate() {
        let samples = sound(row[0].as_i64().unwrap(), row[1].as_i64().unwrap());
        let made = processor.audio(&Audio::new(16_000, samples).unwrap()).unwrap();
        for (key, golden) in &golden {
            let name = key.strip_suffix(".sample").unwrap_or(key);
            let Some(name) = name.strip_suffix(&format!(".{index}")) else { continue };
            let tensor = &made.tensors[name];
            if let Some(row) = case["arrays"].get(format!("{name}.{index}")) {
                let shape: Vec<usize> = serde_json::from_value(row["shape"].clone()).unwrap();
                let Elements::F32(values) = &tensor.elements else { panic!("{key}") };
                let total: f64 = values.iter().map(|value| f64::from(value.abs())).sum();
                let off = (total / row["abs"].as_f64().unwrap() - 1.0).abs();
                if tensor.shape != shape || off >= 1e-6 {
                    wrong.push(format!("{set}: {key} {:?}, sum of magnitudes off by {off}", tensor.shape));
                }
            }
            match (&golden.values, sample(tensor, golden.shape.iter().product())) {
                (Values::F32(golden), Values::F32(made)) => {
                    let most = golden.iter().zip(&made).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    if most > tolerance {
                        wrong.push(format!("{set}: {key} differs by {most}"));
                    }
                }
                (golden, made) if *golden != made => wrong.push(format!("{set}: {key} differs")),
                _ => {}
            }
            compared += 1;
        }
    }
    // Features and a mask of each.
    let expected = 2 * settings["sounds"].as_array().unwrap().len();
    if compared != expected {
        wrong.push(format!("{set}: {compared} tensors are not {expected}"));
    }
    wrong
}

/// A WAV file with 16-bit samples, interleaved.
fn wav(rate: u32, channels: u16, samples: &[i16]) -> Vec<u8> {
    let bytes = samples.len() as u32 * 2;
    let mut file = b"RIFF".to_vec();
    file.extend((36 + bytes).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0");
    file.extend(channels.to_le_bytes());
    file.extend(rate.to_le_bytes());
    file.extend((rate * u32::from(channels) * 2).to_le_bytes());
    file.extend((channels * 2).to_le_bytes());
    file.extend(b"\x10\0data");
    file.extend(bytes.to_le_bytes());
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    file
}

#[test]
fn samples_at_the_wanted_rate_are_those_of_the_file() {
    let samples: Vec<i16> = sound(5000, 3).iter().map(|sample| (sample * 32_768.0) as i16).collect();
    let made = decode_audio(&wav(16_000, 1, &samples), &Limits::default(), 16_000).unwrap();
    assert_eq!(made.samples(), sound(5000, 3));
    assert_eq!(made.rate(), 16_000);
}

#[test]
fn channels_are_mixed_to_their_mean() {
    let made = decode_audio(&wav(16_000, 2, &[16_384, 0, -8192, -8192]), &Limits::default(), 16_000).unwrap();
    assert_eq!(made.samples(), [0.25, -0.25]);
}

#[test]
fn a_tone_keeps_its_pitch_length_and_loudness_in_every_format() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sound");
    for name in ["sine.mp3", "sine.flac", "sine.ogg", "sine.m4a"] {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        let made = decode_audio(&bytes, &Limits::default(), 16_000)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        // Lossy encoders pad by up to a few packets.
        assert!((0.59..0.75).contains(&made.seconds()), "{name}: {} s", made.seconds());
        let middle = &made.samples()[3200..8000];
        let crossings = middle.windows(2).filter(|pair| pair[0] < 0.0 && pair[1] >= 0.0).count();
        // 0.3 s of 440 Hz, with an eighth of the full amplitude, less 3 dB for the second channel.
        assert!((131..=133).contains(&crossings), "{name}: {crossings} periods");
        let loudest = middle.iter().copied().fold(0.0, f32::max);
        assert!((0.080..0.096).contains(&loudest), "{name}: {loudest}");
    }
}

#[test]
fn resampled_silence_and_steps_keep_their_level_and_length() {
    for rate in [8_000, 11_025, 22_050, 44_100, 48_000, 16_001] {
        let samples = vec![8192i16; rate as usize];
        let made = decode_audio(&wav(rate, 1, &samples), &Limits::default(), 16_000).unwrap();
        assert_eq!(made.samples().len(), 16_000, "{rate}");
        let middle = &made.samples()[2_000..14_000];
        assert!(middle.iter().all(|sample| (sample - 0.25).abs() < 1e-3), "{rate}");
    }
}

#[test]
fn sound_that_is_too_long_is_refused() {
    let limits = Limits { seconds: 1.0, ..Limits::default() };
    let error = decode_audio(&wav(16_000, 1, &[0; 32_000]), &limits, 16_000).unwrap_err();
    assert_eq!(error.to_string(), "the audio has 2 seconds, over the limit of 1");
    let settings = serde_json::json!({"chunk_length": 1});
    let files = ConfigFiles { preprocessor: Some(&settings), ..ConfigFiles::default() };
    let whisper = AudioProcessor::read("whisper", &files).unwrap();
    let error = whisper.audio(&Audio::new(16_000, vec![0.0; 16_001]).unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the audio does not suit the model: it is 1.0 s long, and the model takes 1.0 s"
    );
    let error = whisper.audio(&Audio::new(8_000, vec![0.0; 10]).unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the audio does not suit the model: it has 8000 samples per second, and the model takes 16000"
    );
}

#[test]
fn gemma_4_has_as_many_tokens_as_its_encoder_gives_rows() {
    let gemma = AudioProcessor::read("gemma4", &ConfigFiles::default()).unwrap();
    let count =
        |samples| gemma.audio(&Audio::new(16_000, sound(samples, 3)).unwrap()).unwrap().expansion.features();
    assert_eq!([count(16_000), count(9_000), count(700)], [25, 14, 1]);
}

#[test]
fn gemma_3n_has_one_number_of_tokens_for_every_sound() {
    let count = |files: &ConfigFiles, samples| {
        let gemma = AudioProcessor::read("gemma3n", files).unwrap();
        gemma.audio(&Audio::new(16_000, sound(samples, 3)).unwrap()).unwrap().expansion
    };
    let made = [700, 16_000, 480_000].map(|samples| count(&ConfigFiles::default(), samples));
    assert!(
        made.iter().all(|made| made.features() == 188 && made.replaced_in("", 0) == "<audio_soft_token>")
    );
    let config = serde_json::json!({"audio_soft_tokens_per_image": 20});
    let processor = serde_json::json!({"audio_seq_length": 12});
    let files = ConfigFiles { config: Some(&config), ..ConfigFiles::default() };
    assert_eq!(count(&files, 700).features(), 20);
    assert_eq!(count(&ConfigFiles { processor: Some(&processor), ..files }, 700).features(), 12);
}
