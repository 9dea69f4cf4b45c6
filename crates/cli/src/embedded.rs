//! The model inside the binary, so that a fresh build can answer.

/// Its name.
pub const NAME: &str = "omnibus-mini";

/// Its files.
pub const FILES: &[(&str, &[u8])] = &[
    ("config.json", include_bytes!("../models/omnibus-mini/config.json")),
    ("generation_config.json", include_bytes!("../models/omnibus-mini/generation_config.json")),
    ("model.safetensors", include_bytes!("../models/omnibus-mini/model.safetensors")),
    ("tokenizer.json", include_bytes!("../models/omnibus-mini/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../models/omnibus-mini/tokenizer_config.json")),
];
