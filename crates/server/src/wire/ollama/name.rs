//! Ollama's names of models: `[host/][namespace/]model[:tag]`, with the tag `latest` where there is none.

/// Places whose names are short.
const PLACES: &[&str] =
    &["registry.ollama.ai/library/", "registry.ollama.ai/", "library/", "hf.co/", "huggingface.co/"];
/// The tag of a name without one.
const LATEST: &str = "latest";

/// A served name as it is listed: always with a tag.
pub fn listed(name: &str) -> String {
    let model = name.rsplit('/').next().unwrap_or(name);
    match model.contains(':') {
        true => name.to_owned(),
        false => format!("{name}:{LATEST}"),
    }
}

/// Whether two names are of one model.
pub fn is_same(one: &str, other: &str) -> bool {
    listed(short(one)).eq_ignore_ascii_case(&listed(short(other)))
}

fn short(name: &str) -> &str {
    PLACES.iter().find_map(|place| name.strip_prefix(place)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_tag_and_no_case() {
        assert_eq!(listed("qwen3"), "qwen3:latest");
        assert_eq!(listed("qwen3:8b"), "qwen3:8b");
        assert_eq!(listed("mlx-community/Qwen3-8B-4bit"), "mlx-community/Qwen3-8B-4bit:latest");
        for name in
            ["qwen3", "qwen3:latest", "QWEN3", "library/qwen3", "registry.ollama.ai/library/Qwen3:latest"]
        {
            assert!(is_same(name, "qwen3"), "{name}");
        }
        assert!(is_same("hf.co/org/name", "org/name:latest"));
        assert!(!is_same("qwen3:8b", "qwen3") && !is_same("org/qwen3", "qwen3"));
    }
}
