//! Pictures in each format, colour model and orientation, against Pillow.

use std::path::PathBuf;

use omnibus_media::{Alpha, ContentKey, Format, Image, Limits, decode_base64, decode_image};

use crate::safetensors::{Values, read};

fn folder() -> PathBuf {
    crate::support::images()
}

fn decoded(name: &str, alpha: Alpha) -> Image {
    let bytes = std::fs::read(folder().join(name)).unwrap();
    decode_image(&bytes, &Limits::default(), alpha).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// How far a level may be from Pillow's: lossy decoders round in their own ways.
fn tolerance(name: &str) -> u8 {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("jpg") => 4,
        _ if name == "lossy.webp" => 4,
        // `image` rounds CMYK down.
        _ if name == "cmyk.tiff" => 1,
        _ => 0,
    }
}

#[test]
fn base64_is_read_with_and_without_padding_and_line_breaks() {
    for text in ["AQIDBA==", "AQIDBA", "AQID\r\nBA==\n", " AQ ID BA "] {
        assert_eq!(decode_base64(text.as_bytes()).unwrap(), [1, 2, 3, 4], "{text:?}");
    }
    for (text, why) in [("AQ*D", "character 2 is not of its alphabet"), ("AQIDB", "its end is missing")] {
        let error = decode_base64(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("the text is not base64") && error.contains(why), "{error}");
    }
}

#[test]
fn every_format_has_the_pixels_of_pillow() {
    let expected = read(&folder().join("expected.safetensors"));
    let mut tested = 0;
    for (key, golden) in &expected {
        let (name, alpha) = match key.strip_suffix(".dropped") {
            Some(name) => (name, Alpha::Dropped),
            None => (key.as_str(), Alpha::OverWhite),
        };
        let image = decoded(name, alpha);
        assert_eq!([image.height() as usize, image.width() as usize, 3], golden.shape[..], "{key}");
        let Values::U8(levels) = &golden.values else { panic!("{key}") };
        let most = image.pixels().iter().zip(levels).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
        assert!(most <= tolerance(name), "{key} differs by {most}");
        tested += 1;
    }
    assert!(tested > 40, "{tested}");
}

#[test]
fn equal_pixels_have_equal_keys_whatever_the_format() {
    let key = |name| ContentKey::of_image(&decoded(name, Alpha::OverWhite));
    assert_eq!(key("rgb.png"), key("rgb.bmp"));
    assert_eq!(key("rgb.png"), key("lossless.webp"));
    assert_ne!(key("rgb.png"), key("palette.png"));
    let wide = Image::new(6, 1, vec![7; 18]).unwrap();
    let tall = Image::new(1, 6, vec![7; 18]).unwrap();
    assert_ne!(ContentKey::of_image(&wide), ContentKey::of_image(&tall));
}

#[test]
fn a_format_is_what_the_first_bytes_say() {
    let check = |bytes: &[u8], format| assert_eq!(Format::of(bytes), format, "{bytes:?}");
    check(b"\0\0\0\x20ftypavif\0\0\0\0", Some(Format::Avif));
    check(b"\0\0\0\x20ftypmif1\0\0\0\0heic", Some(Format::Heic));
    check(b"\0\0\0\x20ftypmif1\0\0\0\0avif", Some(Format::Avif));
    check(b"\0\0\0\x20ftypisom\0\0\0\0", Some(Format::Mp4));
    check(b"RIFF\0\0\0\0WAVE", Some(Format::Wav));
    check(b"RIFF\0\0\0\0WEBP", Some(Format::WebP));
    check(b"RIFF\0\0\0\0????", None);
    check(b"\xFF\xF1\x50\x80", Some(Format::Adts));
    check(b"\xFF\xFB\x90\x00", Some(Format::Mp3));
    check(b"ID3\x04", Some(Format::Mp3));
    check(b"%PDF-1.7", None);
    check(b"", None);
}
