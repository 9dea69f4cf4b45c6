//! Conversions between f32 and the floating-point types of 16 bits.

#[inline(always)]
pub(super) fn bf16_to_f32(v: u16) -> f32 {
    f32::from_bits((v as u32) << 16)
}

#[inline(always)]
pub(super) fn bf16_from_f32(v: f32) -> u16 {
    let bits = v.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    ((if v.is_nan() { bits | 0x40_0000 } else { rounded }) >> 16) as u16
}

#[inline(always)]
pub(super) fn f16_to_f32(v: u16) -> f32 {
    let sign = ((v as u32) & 0x8000) << 16;
    let magnitude = ((v as u32) & 0x7fff) << 13;
    // Scaling by 2^112 moves the exponent's bias and also normalizes small numbers.
    let scaled = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
    let infinite = if magnitude >= 0x7c00 << 13 { 0xff << 23 } else { 0 };
    f32::from_bits(scaled.to_bits() | infinite | sign)
}

#[inline(always)]
pub(super) fn f16_from_f32(v: f32) -> u16 {
    let bits = v.to_bits();
    let (sign, magnitude) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
    let half = if magnitude > 0x7f80_0000 {
        0x7e00
    } else if magnitude >= (143 << 23) {
        0x7c00 // 65536 and above; what lies between is rounded below
    } else if magnitude < (113 << 23) {
        // Adding 0.5 leaves a small number's bits, rounded, at the bottom of the sum.
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()
    } else {
        (magnitude - (112 << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13
    };
    (half | sign) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives_the_round_trip() {
        for half in 0..=u16::MAX {
            let value = f16_to_f32(half);
            let back = f16_from_f32(value);
            assert!(back == half || value.is_nan(), "{half:#x} became {value} and then {back:#x}");
            let value = bf16_to_f32(half);
            assert!(bf16_from_f32(value) == half || value.is_nan());
        }
    }

    #[test]
    fn halves_round_to_even() {
        assert_eq!(f16_from_f32(65519.0), 0x7bff);
        assert_eq!(f16_from_f32(65520.0), 0x7c00);
        assert_eq!(f16_from_f32(1.0 + 1.0 / 2048.0), 0x3c00);
        assert_eq!(f16_from_f32(1.0 + 3.0 / 2048.0), 0x3c02);
        assert_eq!(f16_from_f32(2f32.powi(-25)), 0);
        assert_eq!(f16_from_f32(2f32.powi(-25) * 1.5), 1);
        assert_eq!(bf16_from_f32(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(bf16_from_f32(f32::from_bits(0x3f81_8000)), 0x3f82);
    }
}
