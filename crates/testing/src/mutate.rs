//! Seeded mutations of JSON documents and bytes, for the tests of mutated model folders and requests.

use serde_json::{Value, json};

use crate::environment;

/// SplitMix64. Case `n` of a test is the generator seeded with `n`.
pub struct Rng(u64);

impl Rng {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, and 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// The cases to run: `count` of them, or as many as the variable says, from `OMNIBUS_FUZZ_FIRST` on.
pub fn cases(variable: &str, count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| environment::variable(name).and_then(|text| text.parse().ok());
    let first = number("OMNIBUS_FUZZ_FIRST").unwrap_or(0);
    first..first + number(variable).unwrap_or(count)
}

fn odd_value(rng: &mut Rng) -> Value {
    let deep = (0..150).fold(Value::Null, |inner, _| json!([inner]));
    let odd = [
        Value::Null,
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(3),
        json!(7.5),
        json!(-0.0),
        json!(1e300),
        json!(4_294_967_296_u64),
        json!(9_007_199_254_740_993_u64),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(""),
        json!("x"),
        json!("NaN"),
        json!("\u{0}\u{1}\u{7f}"),
        json!("é🚌\u{200d}\u{fffd}"),
        json!("../../etc/passwd"),
        json!("[[[["),
        json!("a".repeat(5_000)),
        json!([]),
        json!({}),
        json!([null, 1, "a", [], {}]),
        json!({"a": {"b": null}, "type": "object"}),
        deep,
    ];
    rng.pick(&odd).clone()
}

/// Changes one place of a document, more often near its root.
pub fn json(rng: &mut Rng, document: &mut Value) {
    let children = match document {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        _ => 0,
    };
    if children > 0 && rng.below(4) > 0 {
        let child = rng.below(children);
        let child = match document {
            Value::Array(items) => items.get_mut(child),
            Value::Object(map) => map.values_mut().nth(child),
            _ => None,
        };
        return child.map_or((), |child| json(rng, child));
    }
    match (document, rng.below(4)) {
        (Value::Object(map), 0) => {
            let key = map.keys().nth(rng.below(map.len())).cloned().unwrap_or_default();
            map.remove(&key);
        }
        (Value::Object(map), 1) => {
            let key = map.keys().nth(rng.below(map.len())).cloned().unwrap_or_default();
            let value = map.remove(&key).unwrap_or_default();
            map.insert(rng.pick(&["type", "", "id", "é", "content", "version"]).to_string(), value);
        }
        (Value::Object(map), 2) => {
            let key = format!("{}x", map.keys().next().cloned().unwrap_or_default());
            map.insert(key, odd_value(rng));
        }
        (Value::Array(items), 0) => {
            let at = rng.below(items.len());
            if at < items.len() {
                items.remove(at);
            }
        }
        (Value::Array(items), 1 | 2) => {
            let item = items.get(rng.below(items.len())).cloned().unwrap_or_else(|| odd_value(rng));
            items.push(item);
        }
        (Value::Number(number), 0) => {
            let value = number.as_f64().unwrap_or_default();
            let changed = [value + 1.0, value - 1.0, value * 2.0, -value, value / 3.0, value * 1e9];
            *number = serde_json::Number::from_f64(*rng.pick(&changed)).unwrap_or_else(|| 0.into());
        }
        (Value::String(text), 0) => text.push(*rng.pick(&['x', '"', '\n', '{', '🚌', '(', '%', '\0'])),
        (place, 1) => *place = json!([place.take()]),
        (place, _) => *place = odd_value(rng),
    }
}

/// Changes some bytes: flips, cuts, repeats, and inserts what parsers trip over.
pub fn bytes(rng: &mut Rng, bytes: &mut Vec<u8>) {
    const TRIPS: &[&[u8]] = &[
        b"NaN",
        b"1e999",
        b"-",
        b"\"",
        b"{",
        b"]",
        b",",
        b"\\u",
        b"\\ud800",
        b"\xff",
        b"\0",
        b"//",
        b"\xef\xbb\xbf",
    ];
    for _ in 0..=rng.below(3) {
        let at = rng.below(bytes.len() + 1);
        match rng.below(5) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, rng.pick(TRIPS).iter().copied())),
            2 => {
                let end = (at + rng.below(40)).min(bytes.len());
                let repeated = bytes[at..end].to_vec();
                bytes.splice(at..at, repeated);
            }
            3 => {
                let end = (at + rng.below(20)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let bit = 1 << rng.below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= bit;
                }
            }
        }
    }
}
