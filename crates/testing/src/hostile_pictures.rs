//! Pictures that are meant to do harm.

/// A PNG with a header that says so, and whatever data.
pub fn png(width: u32, height: u32, depth: u8, colour: u8, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1A\n".to_vec();
    let mut header = width.to_be_bytes().to_vec();
    header.extend(height.to_be_bytes());
    header.extend([depth, colour, 0, 0, 0]);
    for (kind, data) in [(b"IHDR", &header[..]), (b"IDAT", data), (b"IEND", &[])] {
        file.extend((data.len() as u32).to_be_bytes());
        let body = [kind.as_slice(), data].concat();
        file.extend(&body);
        file.extend(crate::formulas::crc32(&body).to_be_bytes());
    }
    file
}

fn bmp(width: i32, height: i32, bits: u16, compression: u32) -> Vec<u8> {
    let mut file = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
    file.extend(width.to_le_bytes());
    file.extend(height.to_le_bytes());
    file.extend([1, 0]);
    file.extend(bits.to_le_bytes());
    file.extend(compression.to_le_bytes());
    file.extend([0; 20]);
    file
}

/// A GIF with this header.
pub fn gif(width: u16, height: u16, rest: &[u8]) -> Vec<u8> {
    let mut file = b"GIF89a".to_vec();
    file.extend(width.to_le_bytes());
    file.extend(height.to_le_bytes());
    file.extend([0x80, 0, 0, 0, 0, 0, 255, 255, 255]);
    file.extend(rest);
    file
}

fn jpeg(width: u16, height: u16, components: u8) -> Vec<u8> {
    let mut file = b"\xFF\xD8\xFF\xC0\0\x11\x08".to_vec();
    file.extend(height.to_be_bytes());
    file.extend(width.to_be_bytes());
    file.extend([components, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0]);
    file
}

/// A little-endian TIFF with one directory of (tag, type, count, value).
fn tiff(entries: &[(u16, u16, u32, u32)]) -> Vec<u8> {
    let mut file = b"II*\0\x08\0\0\0".to_vec();
    file.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, count, value) in entries {
        file.extend(tag.to_le_bytes());
        file.extend(kind.to_le_bytes());
        file.extend(count.to_le_bytes());
        file.extend(value.to_le_bytes());
    }
    file.extend([0; 4]);
    file
}

fn tiff_of(width: u32, height: u32, bits: u32, strip: u32) -> Vec<u8> {
    tiff(&[
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 1, bits),
        (259, 3, 1, 1),
        (262, 3, 1, 1),
        (273, 4, 1, strip),
        (277, 3, 1, 1),
        (278, 4, 1, height),
        (279, 4, 1, u32::MAX),
    ])
}

fn webp(chunk: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let mut file = b"RIFF".to_vec();
    file.extend((data.len() as u32 + 12).to_le_bytes());
    file.extend(b"WEBP");
    file.extend(chunk);
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

/// An extended WebP header that claims a size.
pub fn webp_of(width: u32, height: u32) -> Vec<u8> {
    let mut data = vec![0, 0, 0, 0];
    data.extend(&(width - 1).to_le_bytes()[..3]);
    data.extend(&(height - 1).to_le_bytes()[..3]);
    webp(b"VP8X", &data)
}

/// A good file.
pub fn whole(name: &str) -> Vec<u8> {
    let folder = crate::formulas::images();
    std::fs::read(folder.join(name)).unwrap()
}

fn half(name: &str) -> Vec<u8> {
    let mut bytes = whole(name);
    bytes.truncate(bytes.len() / 2);
    bytes
}

/// Files that are no pictures, by what is wrong with them.
pub fn inputs() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("nothing", vec![]),
        ("one byte", vec![0xFF]),
        ("text", b"hello, this is no image".to_vec()),
        ("JSON", br#"{"image": "data"}"#.to_vec()),
        ("HTML page", b"<!DOCTYPE html><html><body>not found</body></html>".to_vec()),
        ("SVG", b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>".to_vec()),
        ("PDF", b"%PDF-1.7\n1 0 obj\n".to_vec()),
        ("ZIP", b"PK\x03\x04\x14\0\0\0".to_vec()),
        ("gzip", b"\x1F\x8B\x08\0\0\0".to_vec()),
        ("JPEG XL", b"\xFF\x0A\xFA\x1F\x41".to_vec()),
        ("JPEG 2000", b"\0\0\0\x0CjP  \r\n\x87\n".to_vec()),
        ("zeros", vec![0; 4096]),
        ("noise", (0..4096u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()),
        ("sound instead of a picture", b"RIFF\x24\0\0\0WAVEfmt ".to_vec()),
        ("video instead of a picture", b"\0\0\0\x18ftypisom\0\0\0\0isom".to_vec()),
        ("AVIF without ffmpeg", b"\0\0\0\x18ftypavif\0\0\0\0avif".to_vec()),
        ("PNG of 30,000x30,000", png(30_000, 30_000, 8, 2, b"x")),
        ("PNG of 2^31-1 squared", png(i32::MAX as u32, i32::MAX as u32, 16, 6, b"")),
        ("PNG wider than a side may be", png(16_385, 1, 8, 0, b"")),
        ("PNG without width", png(0, 10, 8, 2, b"")),
        ("PNG without height", png(10, 0, 8, 2, b"")),
        ("PNG with a bit depth of 7", png(4, 4, 7, 2, b"")),
        ("PNG with colour type 5", png(4, 4, 8, 5, b"")),
        ("PNG with a palette type and no palette", png(4, 4, 8, 3, b"\x78\x9c\x03\0\0\0\0\x01")),
        ("PNG with data that is not deflate", png(64, 64, 8, 2, b"not deflate at all")),
        ("PNG with too little data", png(64, 64, 8, 2, b"\x78\x9c\x03\0\0\0\0\x01")),
        ("PNG signature only", b"\x89PNG\r\n\x1A\n".to_vec()),
        ("PNG cut in half", half("rgb.png")),
        ("PNG with a chunk of 4 GB", b"\x89PNG\r\n\x1A\n\xFF\xFF\xFF\xFFIHDR".to_vec()),
        ("JPEG of 65,535x65,535", jpeg(65_535, 65_535, 3)),
        ("JPEG without width", jpeg(0, 16, 3)),
        ("JPEG without components", jpeg(16, 16, 0)),
        ("JPEG with 200 components", jpeg(16, 16, 200)),
        ("JPEG header only", b"\xFF\xD8\xFF\xE0".to_vec()),
        ("JPEG end without a picture", b"\xFF\xD8\xFF\xD9".to_vec()),
        ("GIF of 65,535x65,535", gif(65_535, 65_535, b",\0\0\0\0\xFF\xFF\xFF\xFF\0\x02\x02\x44\x01\0;")),
        ("GIF without frames", gif(16, 16, b";")),
        ("GIF without size", gif(0, 0, b";")),
        ("GIF header only", b"GIF89a".to_vec()),
        ("GIF cut in half", half("palette.gif")),
        ("BMP of 2^31-1 squared", bmp(i32::MAX, i32::MAX, 24, 0)),
        ("BMP of negative width", bmp(-16, 16, 24, 0)),
        ("BMP without size", bmp(0, 0, 24, 0)),
        ("BMP with 77 bits", bmp(16, 16, 77, 0)),
        ("BMP with compression 99", bmp(16, 16, 24, 99)),
        ("BMP without its pixels", bmp(4_000, 4_000, 24, 0)),
        ("TIFF without a directory", b"II*\0\xFF\xFF\xFF\x7F".to_vec()),
        ("TIFF that is its own directory", b"II*\0\0\0\0\0".to_vec()),
        ("TIFF without tags", tiff(&[])),
        ("TIFF of 2^32-1 squared", tiff_of(u32::MAX, u32::MAX, 8, 8)),
        ("TIFF with its pixels beyond the end", tiff_of(64, 64, 8, 0x7FFF_FFFF)),
        ("TIFF with 4 billion strips", tiff(&[(256, 4, 1, 9), (257, 4, 1, 9), (273, 4, u32::MAX, 8)])),
        ("WebP of 16,777,216x16,777,216", webp_of(1 << 24, 1 << 24)),
        ("WebP header only", b"RIFF\x04\0\0\0WEBP".to_vec()),
        ("WebP with a lossy chunk of zeros", webp(b"VP8 ", &[0; 64])),
        ("WebP with a lossless chunk of ones", webp(b"VP8L", &[0x2F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF])),
        ("WebP cut in half", half("lossless.webp")),
        ("a PNG behind a GIF's header", [b"GIF89a".to_vec(), whole("rgb.png")].concat()),
        ("a JPEG behind a ZIP's header", [b"PK\x03\x04".to_vec(), whole("baseline.jpg")].concat()),
    ]
}
