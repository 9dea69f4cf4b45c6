//! The model embedded in the binary, which a fresh build serves by default.

/// The embedded model's name.
pub const NAME: &str = "omnibus-mini";

/// The embedded model's files. One copy of them: a constant would be in the binary once for each use.
pub static FILES: &[(&str, &[u8])] = &[
    ("config.json", include_bytes!("../models/omnibus-mini/config.json")),
    ("generation_config.json", include_bytes!("../models/omnibus-mini/generation_config.json")),
    ("model.safetensors", include_bytes!("../models/omnibus-mini/model.safetensors")),
    ("mtp.safetensors", include_bytes!("../models/omnibus-mini/mtp.safetensors")),
    ("tokenizer.json", include_bytes!("../models/omnibus-mini/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../models/omnibus-mini/tokenizer_config.json")),
];
