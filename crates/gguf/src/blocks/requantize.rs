//! Groups of new codes for numbers.

use half::f16;

use super::{GROUP, Group};

/// Calls `take` with the groups of `numbers` at so many bits.
pub fn each(numbers: &[f32], bits: u32, take: &mut dyn FnMut(Group)) {
    for numbers in numbers.as_chunks::<GROUP>().0 {
        take(group(numbers, bits));
    }
}

/// The range from the smallest number to the largest in equal steps. Codes are chosen for the scale and the bias that are
/// stored, which are float16.
fn group(numbers: &[f32; GROUP], bits: u32) -> Group {
    let stored = |number: f32| f16::from_f32(number).to_f32();
    let (least, most) =
        numbers.iter().fold((f32::MAX, f32::MIN), |(least, most), x| (least.min(*x), most.max(*x)));
    let top = ((1_u32 << bits) - 1) as f32;
    let (scale, bias) = (stored((most - least) / top), stored(least));
    let code =
        |number: f32| if scale > 0.0 { ((number - bias) / scale).round().clamp(0.0, top) as u8 } else { 0 };
    Group { scale, bias, codes: numbers.map(code) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_moves_by_half_a_step(numbers in prop::array::uniform32(-4.0_f32..4.0)) {
            let packed = group(&numbers, 8);
            for (number, code) in numbers.iter().zip(packed.codes) {
                let stored = packed.scale * f32::from(code) + packed.bias;
                // Half a step, and the rounding of scale and bias to float16.
                prop_assert!((stored - number).abs() <= packed.scale * 0.5 + 8.0 / 1024.0, "{number} {stored}");
            }
        }
    }
}
