//! Weights from a recipe: the reference generates the same numbers, so no weight file is stored.

use mlx::{Array, Dtype};
use omnibus_model::Weights;
use serde_json::Value;

const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

fn splitmix64(x: u64) -> u64 {
    let z = x.wrapping_add(GOLDEN_RATIO);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn fnv1a64(text: &str) -> u64 {
    text.bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

/// Element `i` of the tensor that `base` stands for, in [-1, 1).
fn unit(base: u64, i: u64) -> f32 {
    let raw = splitmix64(base.wrapping_add(i.wrapping_mul(GOLDEN_RATIO)));
    (raw >> 40) as f32 * 2f32.powi(-23) - 1.0
}

/// The bits of element `i` of an integer tensor.
fn word(base: u64, i: u64) -> u32 {
    (splitmix64(base.wrapping_add(i.wrapping_mul(GOLDEN_RATIO))) >> 32) as u32
}

/// The tensors of `tensors.json`: rows `[name, shape, center, scale, dtype?]`, where `{0..7}` in a
/// name stands for one tensor per number, and `copies` of some of them.
pub fn weights(recipe: &Value) -> Result<Weights, mlx::Error> {
    let broken = || mlx::Error::new("a recipe of another format");
    let seed = splitmix64(recipe["seed"].as_u64().ok_or_else(broken)?);
    let mut weights = Weights::new();
    for row in recipe["tensors"].as_array().ok_or_else(broken)? {
        let shape = row[1].as_array().ok_or_else(broken)?.iter().filter_map(Value::as_i64);
        let shape: Vec<i32> = shape.map(|axis| axis as i32).collect();
        let number = |index: usize| row[index].as_f64().map(|number| number as f32);
        let (center, scale) = (number(2).ok_or_else(broken)?, number(3).ok_or_else(broken)?);
        let count = shape.iter().map(|axis| *axis as u64).product::<u64>();
        let dtype = row.get(4).and_then(Value::as_str).unwrap_or("F32");
        for name in expand(row[0].as_str().ok_or_else(broken)?) {
            let base = fnv1a64(&name) ^ seed;
            let floats = || -> Vec<f32> { (0..count).map(|i| center + scale * unit(base, i)).collect() };
            let words = (0..count).map(|i| word(base, i));
            let array = match dtype {
                "F32" => Array::from_slice(&floats(), &shape)?,
                "F16" => Array::from_slice(&floats(), &shape)?.astype(Dtype::F16)?,
                "SGN" => {
                    let signs = (0..count).map(|i| if unit(base, i) < 0.0 { -1.0 } else { 1.0 });
                    Array::from_slice(&signs.collect::<Vec<f32>>(), &shape)?
                }
                "IOTA" => Array::from_slice(&(0..count as i32).collect::<Vec<_>>(), &shape)?,
                "U32" => Array::from_slice(&words.collect::<Vec<_>>(), &shape)?,
                "I8" => Array::from_slice(&words.map(|word| word as i8).collect::<Vec<_>>(), &shape)?,
                "U8" => {
                    let byte = |word: u32| match scale as u32 {
                        0 => word as u8,
                        values => (center as u32 + word % values) as u8,
                    };
                    Array::from_slice(&words.map(byte).collect::<Vec<_>>(), &shape)?
                }
                // Moderate numbers of E4M3, as bytes.
                "F8" => {
                    let byte = |word: u32| ((word & 0x80) | (0x20 + ((word >> 8) & 0x1F))) as u8;
                    Array::from_slice(&words.map(byte).collect::<Vec<_>>(), &shape)?
                }
                other => return Err(mlx::Error::new(format!("{name}: no fixture has {other}"))),
            };
            weights.insert(name, array);
        }
    }
    for (copy, original) in recipe["copies"].as_object().into_iter().flatten() {
        let original = original.as_str().and_then(|original| weights.get(original)).cloned();
        weights.insert(copy.clone(), original.ok_or_else(broken)?);
    }
    Ok(weights)
}

fn expand(name: &str) -> Vec<String> {
    let range = name.find('{').zip(name.find('}')).and_then(|(open, close)| {
        let (first, last) = name[open + 1..close].split_once("..")?;
        Some((open, close, first.parse::<u32>().ok()?, last.parse::<u32>().ok()?))
    });
    match range {
        Some((open, close, first, last)) => (first..=last)
            .flat_map(|number| expand(&format!("{}{number}{}", &name[..open], &name[close + 1..])))
            .collect(),
        None => vec![name.to_owned()],
    }
}

#[test]
fn the_generator_gives_the_published_numbers() {
    assert_eq!(fnv1a64("model.norm.weight"), 0xd6d6_e5af_d116_04e4);
    assert_eq!(splitmix64(7), 0x63cb_e1e4_5932_0dd7);
    let base = fnv1a64("model.norm.weight") ^ splitmix64(7);
    assert_eq!([unit(base, 0), unit(base, 1)], [0.919_196_84, -0.256_353_86]);
    assert_eq!(expand("a.{0..2}.b"), ["a.0.b", "a.1.b", "a.2.b"]);
}
