//! Which files of a repository a model needs.

use crate::checksum::Checksum;

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteFile {
    /// Its path.
    pub(crate) name: String,
    /// Its length in bytes.
    pub(crate) bytes: u64,
    /// Its content.
    pub(crate) checksum: Checksum,
}

/// Extensions of files with configs, tokenizers and templates.
const TEXTS: &[&str] = &["json", "jsonl", "txt", "jinja", "tiktoken", "md"];
/// Templates that some models have more of.
const TEMPLATES: &str = "additional_chat_templates/";
/// Names of weights in mlx-lm's and the hub's formats; others (`consolidated.…`) repeat them.
const WEIGHTS: &str = "model";
/// A head that predicts further tokens, where it is apart from the model.
const MTP_HEAD: &str = "mtp.safetensors";

/// Config, tokenizer, templates and weights. `None` when there are no weights that can be loaded.
pub(crate) fn needed(files: &[RemoteFile]) -> Option<Vec<RemoteFile>> {
    let is_weights = |name: &str| name.ends_with(".safetensors") && !name.contains('/');
    let has_models = files.iter().any(|file| is_weights(&file.name) && file.name.starts_with(WEIGHTS));
    let wanted = |name: &str| {
        if is_weights(name) {
            return !has_models || name.starts_with(WEIGHTS) || name == MTP_HEAD;
        }
        let place = name.strip_prefix(TEMPLATES).unwrap_or(name);
        let extension = place.rsplit_once('.').map_or("", |(_, extension)| extension);
        !place.contains('/') && (TEXTS.contains(&extension) || place == "tokenizer.model")
    };
    let files: Vec<RemoteFile> = files.iter().filter(|file| wanted(&file.name)).cloned().collect();
    let has = |suffix: &str| files.iter().any(|file| file.name.ends_with(suffix));
    ((has("config.json") || has("adapter_config.json")) && has(".safetensors")).then_some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_model_needs_is_downloaded() {
        let file =
            |name: &&str| RemoteFile { name: (*name).to_owned(), bytes: 1, checksum: Checksum::Unknown };
        let names = |files: &[&str]| {
            let files: Vec<RemoteFile> = files.iter().map(file).collect();
            needed(&files).map(|files| files.into_iter().map(|file| file.name).collect::<Vec<_>>())
        };
        let all = [
            "config.json",
            "model-00001-of-00001.safetensors",
            "mtp.safetensors",
            "consolidated.safetensors",
            "pytorch_model.bin",
            "onnx/model.onnx",
            "original/params.json",
            "tokenizer.json",
            "tokenizer.model",
            "merges.txt",
            "modeling.py",
            "chat_template.jinja",
            "additional_chat_templates/tools.jinja",
            "README.md",
            ".gitattributes",
            "figure.png",
        ];
        let needed = [
            "config.json",
            "model-00001-of-00001.safetensors",
            "mtp.safetensors",
            "tokenizer.json",
            "tokenizer.model",
            "merges.txt",
            "chat_template.jinja",
            "additional_chat_templates/tools.jinja",
            "README.md",
        ];
        assert_eq!(names(&all).unwrap(), needed);
        assert_eq!(names(&["adapter_config.json", "adapters.safetensors"]).unwrap().len(), 2);
        assert_eq!(names(&["config.json", "pytorch_model.bin"]), None);
    }
}
