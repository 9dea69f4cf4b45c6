//! Sounds of the reference's formula, as files, and files that are no sound.

use super::files::Picture;

/// Samples of the reference's sound of this length and seed, at 16 kHz.
pub fn sound(samples: i64, seed: i64) -> Vec<i16> {
    let noise = |n: i64| {
        let h =
            (n as u32).wrapping_mul(0x9E37_79B1).wrapping_add((3 * seed as u32).wrapping_mul(0xC2B2_AE3D));
        let h = (h ^ (h >> 15)).wrapping_mul(0x2C1B_3C6D);
        i64::from((h ^ (h >> 12)) >> 20) - 2048
    };
    let sample = |n: i64| {
        let tri = (((n * (20 + seed % 7)) & 4095) - 2048).abs() - 1024;
        let slow = (((n * 3) & 65_535) - 32_768).abs() >> 3;
        (((tri * slow) >> 8) + noise(n)).clamp(-32_768, 32_767) as i16
    };
    (0..samples).map(sample).collect()
}

/// A WAV file at 16 kHz.
pub fn wav(samples: &[i16]) -> Vec<u8> {
    let data: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    wav_of(1, 1, 16_000, 16, &data)
}

/// A WAV file of a format, with whatever data.
fn wav_of(format: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
    let frame = channels.wrapping_mul(bits / 8);
    let mut file = b"RIFF".to_vec();
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0");
    for number in [format, channels] {
        file.extend(number.to_le_bytes());
    }
    file.extend(rate.to_le_bytes());
    file.extend(rate.wrapping_mul(u32::from(frame)).to_le_bytes());
    for number in [frame, bits] {
        file.extend(number.to_le_bytes());
    }
    file.extend(b"data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    file
}

/// A FLAC file at 16 kHz, whose blocks hold the samples as they are (RFC 9639, verbatim subframes).
pub fn flac(samples: &[i16]) -> Vec<u8> {
    const BLOCK: usize = 4096;
    let mut file = b"fLaC\x80\0\0\x22".to_vec();
    file.extend([BLOCK as u16, BLOCK as u16].iter().flat_map(|size| size.to_be_bytes()));
    // Unknown frame sizes; 20 bits of the rate, 3 of the channels less one, 5 of the bits less one, 36 of the samples.
    file.extend([0; 6]);
    let packed = (16_000u64 << 44) | (15 << 36) | samples.len() as u64;
    file.extend(packed.to_be_bytes());
    // No checksum of the samples.
    file.extend([0; 16]);
    for (number, block) in samples.chunks(BLOCK).enumerate() {
        // A fixed block size of 16 bits behind the number, the rate and the bits as above, one channel.
        let mut frame = vec![0xFF, 0xF8, 0x70, 0x08, number as u8];
        frame.extend((block.len() as u16 - 1).to_be_bytes());
        frame.push(crc(&frame, 8, 0x07) as u8);
        frame.push(0x02);
        frame.extend(block.iter().flat_map(|sample| sample.to_be_bytes()));
        frame.extend((crc(&frame, 16, 0x8005) as u16).to_be_bytes());
        file.extend(frame);
    }
    file
}

/// A cyclic redundancy check without reflection, as FLAC has it.
fn crc(bytes: &[u8], width: u32, polynomial: u32) -> u32 {
    let (top, mask) = (1 << (width - 1), (1u32 << width) - 1);
    let shift = |crc: u32| if crc & top == 0 { crc << 1 } else { (crc << 1) ^ polynomial };
    let byte =
        |crc: u32, byte: &u8| (0..8).fold(crc ^ (u32::from(*byte) << (width - 8)), |crc, _| shift(crc));
    bytes.iter().fold(0, byte) & mask
}

/// Files that are no sound, or none that is taken.
pub fn hostile() -> Vec<(String, Vec<u8>)> {
    let whole = wav(&sound(2_000, 1));
    let flac = flac(&sound(2_000, 1));
    let floats = |value: f32| [0f32, value, 0.5].map(f32::to_le_bytes).concat().repeat(800);
    let long = |rate: u32, samples: usize| wav_of(1, 1, rate, 8, &vec![128; samples]);
    let fixed: Vec<(&str, Vec<u8>)> = vec![
        ("no bytes", Vec::new()),
        ("text", b"not a sound".to_vec()),
        ("a PDF", b"%PDF-1.7".to_vec()),
        ("a picture", Picture::one().png()),
        ("a zip", b"PK\x03\x04\x14\0\0\0\x08\0".to_vec()),
        ("a gzip", b"\x1F\x8B\x08\0\0\0\0\0\0\x03".to_vec()),
        ("an ELF file", b"\x7FELF\x02\x01\x01\0".to_vec()),
        ("zeros", vec![0; 4096]),
        ("WAV header only", whole[..12].to_vec()),
        ("WAV without data", whole[..36].to_vec()),
        ("WAV without samples", wav_of(1, 1, 16_000, 16, &[])),
        ("WAV without channels", wav_of(1, 0, 16_000, 16, &[0; 64])),
        ("WAV with 65,535 channels", wav_of(1, u16::MAX, 16_000, 16, &[0; 64])),
        ("WAV with a rate of 0", wav_of(1, 1, 0, 16, &[0; 64])),
        ("WAV with a rate of 4 GHz", wav_of(1, 1, u32::MAX, 16, &[0; 6400])),
        ("WAV with a rate of 1 MHz", wav_of(1, 1, 1_000_000, 16, &[0; 6400])),
        ("WAV with a rate of 10 Hz", wav_of(1, 1, 10, 16, &[0; 6400])),
        ("WAV with 7 bits", wav_of(1, 1, 16_000, 7, &[0; 64])),
        ("WAV with 0 bits", wav_of(1, 1, 16_000, 0, &[0; 64])),
        ("WAV in format 999", wav_of(999, 1, 16_000, 16, &[0; 64])),
        ("WAV of NaN", wav_of(3, 1, 16_000, 32, &floats(f32::NAN))),
        ("WAV of infinity", wav_of(3, 1, 16_000, 32, &floats(f32::INFINITY))),
        ("WAV of 20 minutes", long(1_000, 1_200_000)),
        ("FLAC header only", flac[..4].to_vec()),
        ("FLAC without frames", flac[..42].to_vec()),
        ("FLAC with a block of 16 MB", b"fLaC\x00\xFF\xFF\xFF".to_vec()),
        ("FLAC cut within its frame", flac[..60].to_vec()),
        ("Ogg header only", b"OggS\0\x02".to_vec()),
        ("MP3 tag only", b"ID3\x04\0\0\0\0\0\0".to_vec()),
        ("MP4 header only", b"\0\0\0\x18ftypM4A \0\0\0\0M4A mp42".to_vec()),
    ];
    fixed.into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect()
}
