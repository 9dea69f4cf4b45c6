//! Random JSON schemas, each of which some value matches.

use serde_json::{Map, Value, json};

/// A stream of pseudo-random numbers.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len() as u64) as usize]
    }
}

const NAMES: &[&str] =
    &["name", "age", "city", "ünïcode", "a b", "quote\"d", "id", "tags", "nested", "$price", "日本", ""];

/// A schema of a few levels.
pub fn schema(seed: u64) -> Value {
    let mut random = Random::new(seed);
    let mut schema = object(&mut random, 3);
    if random.one_in(4) {
        schema["$defs"] = json!({
            "node": {
                "type": "object",
                "properties": {
                    "value": { "type": "integer" },
                    "next": { "anyOf": [{ "$ref": "#/$defs/node" }, { "type": "null" }] }
                },
                "required": ["value", "next"],
                "additionalProperties": false
            }
        });
        schema["properties"]["list"] = json!({ "$ref": "#/$defs/node" });
    }
    schema
}

fn value(random: &mut Random, depth: usize) -> Value {
    let leaves = 9;
    match random.below(if depth == 0 { leaves } else { leaves + 5 }) {
        0 => json!({ "type": "integer" }),
        1 => {
            let least = random.below(200) as i64 - 100;
            json!({ "type": "integer", "minimum": least, "maximum": least + random.below(50) as i64 })
        }
        2 => json!({ "type": "number", "minimum": -2.5, "exclusiveMaximum": 1000 }),
        3 => string(random),
        4 => json!({ "type": "boolean", "description": "yes or no" }),
        5 => json!({ "enum": ["red", "green", 3, null, { "a": [1, "\u{e9}"] }] }),
        6 => json!({ "const": *random.pick(&["fixed value", "with \"quotes\" and \\", "日本語\n"]) }),
        7 => json!({ "type": ["string", "null"], "maxLength": 6 }),
        8 => json!({ "type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 1000 }),
        9 | 10 => object(random, depth - 1),
        11 => array(random, depth - 1),
        12 => json!({ "anyOf": [value(random, depth - 1), value(random, depth - 1)] }),
        _ => json!({ "allOf": [{ "type": "string", "minLength": 2 }, { "maxLength": 9 }] }),
    }
}

fn string(random: &mut Random) -> Value {
    match random.below(6) {
        0 => json!({ "type": "string", "maxLength": 12 }),
        1 => json!({ "type": "string", "minLength": 3, "maxLength": 8 }),
        2 => json!({ "type": "string", "pattern": "^[a-z]{2,5}-\\d{3}$" }),
        3 => {
            json!({ "type": "string", "format": *random.pick(&["date", "date-time", "time", "uuid", "ipv4"]) })
        }
        4 => json!({ "type": "string", "pattern": "^\\w{1,4}( \\w+){0,2}$", "maxLength": 30 }),
        _ => json!({ "enum": ["one", "two", "three"] }),
    }
}

fn array(random: &mut Random, depth: usize) -> Value {
    let least = random.below(3);
    let mut schema =
        json!({ "type": "array", "items": value(random, depth), "maxItems": least + random.below(3) });
    if least > 0 {
        schema["minItems"] = least.into();
    }
    if random.one_in(4) {
        schema["prefixItems"] = json!([{ "type": "boolean" }]);
    }
    schema
}

fn object(random: &mut Random, depth: usize) -> Value {
    let mut properties = Map::new();
    for _ in 0..1 + random.below(4) {
        properties.insert((*random.pick(NAMES)).to_owned(), value(random, depth.saturating_sub(1)));
    }
    let required: Vec<String> = properties.keys().filter(|_| !random.one_in(3)).cloned().collect();
    let mut schema = json!({ "type": "object", "properties": properties, "required": required });
    schema["additionalProperties"] = match random.below(6) {
        0 => json!({ "type": "integer" }),
        _ => false.into(),
    };
    schema
}
