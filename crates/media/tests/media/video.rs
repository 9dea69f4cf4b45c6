//! Frames of videos, which of them are kept, and what Qwen's processors make of them.

use std::path::Path;

use omnibus_media::{Clip, ConfigFiles, Ffmpeg, Frame, Image, Limits, Processor, Sampling, decode_video};

use crate::support::image;

const ALL: Sampling = Sampling::Count(usize::MAX);

fn file(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/video").join(name)).unwrap()
}

fn decoded(name: &str, sampling: &Sampling) -> Clip {
    decode_video(&file(name), &Limits::default(), sampling, None)
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The frame of `make_animations.py`.
fn animation_frame(frame: u8) -> Vec<u8> {
    let pixel = |x: usize| match x % 3 == usize::from(frame) {
        true => [60 * frame + 10, 200 - 50 * frame, 128],
        false => [0; 3],
    };
    (0..7).flat_map(|_| (0..9).flat_map(pixel)).collect()
}

#[test]
fn animations_have_their_frames_and_times() {
    for name in ["frames.gif", "frames.webp", "frames.png"] {
        let clip = decoded(name, &ALL);
        assert_eq!(clip.total(), 3, "{name}");
        for (index, frame) in clip.frames().iter().enumerate() {
            let golden = animation_frame(index as u8);
            let most = frame.image.pixels().iter().zip(golden).map(|(a, b)| a.abs_diff(b)).max().unwrap();
            // `image` blends frames of WebP even where they are opaque, and rounds down.
            assert!(most <= u8::from(name.ends_with("webp")), "{name} {index} differs by {most}");
            assert_eq!(frame.index, index);
            assert!((frame.seconds - [0.0, 0.1, 0.3][index]).abs() < 1e-6, "{name} {}", frame.seconds);
        }
        let middle = decoded(name, &Sampling::Count(2));
        assert_eq!(middle.frames().iter().map(|frame| frame.index).collect::<Vec<_>>(), [0, 2], "{name}");
    }
}

/// The column that is brightest in red, in units of 4 pixels: which frame it is.
fn bright_column(image: &Image) -> usize {
    let row = &image.pixels()[3 * 48 * 16..3 * 48 * 17];
    let red = |column: usize| -> u32 { (0..4).map(|x| u32::from(row[3 * (4 * column + x)])).sum() };
    (0..12).max_by_key(|column| red(*column)).unwrap()
}

fn check_columns(name: &str, clip: &Clip) {
    assert_eq!(clip.total(), 12, "{name}");
    assert!((clip.rate() - 8.0).abs() < 0.1, "{name}: {}", clip.rate());
    for frame in clip.frames() {
        assert_eq!((frame.image.width(), frame.image.height()), (48, 32), "{name}");
        assert_eq!(bright_column(&frame.image), frame.index, "{name}: frame {}", frame.index);
        assert!((frame.seconds - frame.index as f64 / 8.0).abs() < 0.01, "{name}: {}", frame.seconds);
    }
}

#[test]
fn h264_frames_come_in_the_order_in_which_they_are_shown() {
    for name in ["baseline.mp4", "b_frames.mp4", "high.mkv"] {
        let clip = decoded(name, &ALL);
        assert_eq!(clip.frames().len(), 12, "{name}");
        check_columns(name, &clip);
    }
}

#[test]
fn only_sampled_frames_are_kept() {
    let clip = decoded("b_frames.mp4", &Sampling::Rate { fps: 2.0, min: 1, max: 100 });
    assert_eq!(clip.frames().iter().map(|frame| frame.index).collect::<Vec<_>>(), [0, 6, 11]);
    check_columns("b_frames.mp4", &clip);
}

#[test]
fn sampling_is_that_of_the_references() {
    let rate = Sampling::Rate { fps: 2.0, min: 4, max: 768 };
    assert_eq!(rate.indices(100, 25.0), [0, 14, 28, 42, 57, 71, 85, 99]);
    assert_eq!(rate.indices(3, 25.0), [0, 1, 2]);
    assert_eq!(rate.indices(0, 25.0), [0; 0]);
    let steps = Sampling::RateInSteps { fps: 2.0, min: 4, max: 6, multiple: 2 };
    assert_eq!(steps.indices(100, 25.0), [0, 16, 33, 50, 66, 83]);
    assert_eq!(steps.indices(5, 25.0), [0, 1, 2, 3]);
    assert_eq!(Sampling::Count(4).indices(10, 1.0), [0, 3, 6, 9]);
}

#[test]
fn limits_of_videos_are_what_the_caller_says() {
    let bytes = file("b_frames.mp4");
    let check = |limits: Limits, wanted: &str| {
        let error = decode_video(&bytes, &limits, &ALL, None).unwrap_err();
        assert_eq!(error.to_string(), wanted);
    };
    check(Limits { frames: 11, ..Limits::default() }, "the video has 12 frames, over the limit of 11");
    check(Limits { pixels: 100, ..Limits::default() }, "the video has 1536 pixels, over the limit of 100");
    check(Limits { seconds: 1.0, ..Limits::default() }, "the video has 2 seconds, over the limit of 1");
    check(
        Limits { clip_pixels: 2000, ..Limits::default() },
        "the video has 3072 pixels in the frames that are kept, over the limit of 2000",
    );
    check(
        Limits { decoded_pixels: 2000, ..Limits::default() },
        "the video has 3072 pixels in all of its frames, over the limit of 2000",
    );
}

#[test]
fn another_codec_needs_ffmpeg() {
    let error = decode_video(b"\0\0\x01\xBA", &Limits::default(), &ALL, None).unwrap_err();
    assert!(error.to_string().starts_with("the video is an MPEG program stream; supported are"), "{error}");
    let missing = Ffmpeg::new("/no/such/program");
    let error = decode_video(b"\0\0\x01\xBA", &Limits::default(), &ALL, Some(&missing)).unwrap_err();
    assert!(error.to_string().contains("cannot be started"), "{error}");
}

/// Runs where an ffmpeg is on the search path.
#[test]
fn ffmpeg_gives_the_frames_that_the_libraries_give() {
    let ffmpeg = Ffmpeg::new("ffmpeg");
    if std::process::Command::new("ffmpeg").arg("-version").output().is_err() {
        return println!("skipped: there is no ffmpeg");
    }
    for name in ["b_frames.mp4", "high.mkv"] {
        for sampling in [ALL, Sampling::Count(3)] {
            let clip = ffmpeg.decode_video(&file(name), &Limits::default(), &sampling).unwrap();
            check_columns(name, &clip);
            let ours = decoded(name, &sampling);
            assert_eq!(clip.frames().len(), ours.frames().len());
        }
    }
    let playlist = b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n";
    assert!(ffmpeg.decode_video(playlist, &Limits::default(), &ALL).is_err());
    let list = b"ffconcat version 1.0\nfile /etc/passwd\n";
    assert!(ffmpeg.decode_video(list, &Limits::default(), &ALL).is_err());
    let limits = Limits { ffmpeg_s: 0.0, ..Limits::default() };
    assert!(ffmpeg.decode_video(&file("b_frames.mp4"), &limits, &ALL).is_err());
}

#[test]
fn a_video_has_a_grid_of_steps_and_their_times() {
    let frames = (0..5).map(|index| Frame {
        image: image(60, 40, 21 + index),
        index: index as usize,
        seconds: f64::from(index) / 2.0,
    });
    let clip = Clip::new(frames.collect(), 5, 2.0).unwrap();
    let settings =
        serde_json::json!({"size": {"shortest_edge": 4096, "longest_edge": 24576}, "patch_size": 16});
    let files = ConfigFiles { video_preprocessor: Some(&settings), ..ConfigFiles::default() };
    let made = Processor::read("qwen3_vl", &files).unwrap().video(&clip).unwrap();
    let grid = made.grid.unwrap();
    assert_eq!(grid.frames * grid.rows * grid.columns, made.expansion.features());
    assert_eq!(made.seconds, [0.0, 1.0, 2.0]);
    let error = Processor::read("gemma3", &files).unwrap().video(&clip).unwrap_err();
    assert_eq!(error.to_string(), "the video does not suit the model: its processor takes no videos");
}
