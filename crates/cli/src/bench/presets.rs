//! Configs of published models, by name, for benchmarks with random weights. The shapes are those that the models were
//! published with.

/// Names, and the text of each config.json.
pub const PRESETS: &[(&str, &str)] = &[
    ("qwen3-0.6b", include_str!("presets/qwen3-0.6b.json")),
    ("qwen3-4b", include_str!("presets/qwen3-4b.json")),
    ("llama-3.1-8b", include_str!("presets/llama-3.1-8b.json")),
    ("qwen3-30b-a3b", include_str!("presets/qwen3-30b-a3b.json")),
    ("qwen3-next", include_str!("presets/qwen3-next.json")),
    ("gemma-3-4b", include_str!("presets/gemma-3-4b.json")),
    ("deepseek-v2-lite", include_str!("presets/deepseek-v2-lite.json")),
    ("qwen1.5-moe-a2.7b", include_str!("presets/qwen1.5-moe-a2.7b.json")),
    ("gpt-oss-20b", include_str!("presets/gpt-oss-20b.json")),
    ("nemotron-3-nano", include_str!("presets/nemotron-3-nano.json")),
    ("lfm2-1.2b", include_str!("presets/lfm2-1.2b.json")),
    ("granite-3.3-8b", include_str!("presets/granite-3.3-8b.json")),
    ("olmo-3-32b", include_str!("presets/olmo-3-32b.json")),
    ("apertus-8b", include_str!("presets/apertus-8b.json")),
    ("aya-23-8b", include_str!("presets/aya-23-8b.json")),
    ("devstral-small-2-24b", include_str!("presets/devstral-small-2-24b.json")),
    ("step-3.5-flash", include_str!("presets/step-3.5-flash.json")),
];

/// The config of a preset.
pub fn config(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(preset, _)| *preset == name).map(|(_, config)| *config)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use omnibus_offline::bench::RandomWeights;

    use super::*;

    #[test]
    fn presets_have_the_sizes_of_their_names() {
        let sizes = PRESETS.iter().map(|(name, config)| {
            let gigabytes = |bits| {
                let random = RandomWeights::new(name, config, bits).unwrap();
                format!("{:.2}", random.bytes() as f64 / 1e9)
            };
            format!("{name}: {} GB, in 4 bits {} GB", gigabytes(None), gigabytes(Some(4)))
        });
        expect![[r#"
            qwen3-0.6b: 1.19 GB, in 4 bits 0.34 GB
            qwen3-4b: 8.04 GB, in 4 bits 2.26 GB
            llama-3.1-8b: 16.06 GB, in 4 bits 4.52 GB
            qwen3-30b-a3b: 61.06 GB, in 4 bits 17.18 GB
            qwen3-next: 159.35 GB, in 4 bits 44.84 GB
            gemma-3-4b: 7.76 GB, in 4 bits 2.18 GB
            deepseek-v2-lite: 31.41 GB, in 4 bits 8.84 GB
            qwen1.5-moe-a2.7b: 28.63 GB, in 4 bits 8.05 GB
            gpt-oss-20b: 41.83 GB, in 4 bits 11.78 GB
            nemotron-3-nano: 63.16 GB, in 4 bits 17.76 GB
            lfm2-1.2b: 2.34 GB, in 4 bits 0.66 GB
            granite-3.3-8b: 16.34 GB, in 4 bits 4.60 GB
            olmo-3-32b: 64.47 GB, in 4 bits 18.13 GB
            apertus-8b: 16.11 GB, in 4 bits 4.53 GB
            aya-23-8b: 16.06 GB, in 4 bits 4.52 GB
            devstral-small-2-24b: 47.14 GB, in 4 bits 13.26 GB
            step-3.5-flash: 395.40 GB, in 4 bits 111.23 GB"#]]
        .assert_eq(&sizes.collect::<Vec<_>>().join("\n"));
    }
}
