//! Which files of a repository a model needs.

use crate::checksum::Checksum;
use crate::error::Error;
use crate::id::ModelId;

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

/// What sentence-transformers and others have beside a model's own files.
const HEADS: &[&str] = &["artifact.metadata", "sparse_linear.pt", "colbert_linear.pt"];
/// Files that make a folder that of a model.
pub(crate) const CONFIGS: &[&str] = &["config.json", "adapter_config.json", "modules.json"];

/// The file's name in a folder of a module of sentence-transformers: `1_Pooling/config.json`.
fn in_module(name: &str) -> Option<&str> {
    let (folder, file) = name.split_once('/')?;
    let (number, module) = folder.split_once('_')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !module.is_empty() && !file.contains('/')).then_some(file)
}

/// Config, tokenizer, templates, weights, and the modules behind a network. `None` when there are no weights that can be loaded.
pub(crate) fn needed(files: &[RemoteFile]) -> Option<Vec<RemoteFile>> {
    let is_weights = |name: &str| name.ends_with(".safetensors") && !name.contains('/');
    let has_models = files.iter().any(|file| is_weights(&file.name) && file.name.starts_with(WEIGHTS));
    let wanted = |name: &str| {
        if is_weights(name) {
            return !has_models || name.starts_with(WEIGHTS) || name == MTP_HEAD;
        }
        if HEADS.contains(&name) {
            return true;
        }
        let in_module = in_module(name);
        if in_module == Some("model.safetensors") {
            return true;
        }
        let place = in_module.unwrap_or_else(|| name.strip_prefix(TEMPLATES).unwrap_or(name));
        let extension = place.rsplit_once('.').map_or("", |(_, extension)| extension);
        !place.contains('/') && (TEXTS.contains(&extension) || place == "tokenizer.model")
    };
    let files: Vec<RemoteFile> = files.iter().filter(|file| wanted(&file.name)).cloned().collect();
    let has_config = files.iter().any(|file| CONFIGS.contains(&file.name.as_str()));
    let has_weights = files.iter().any(|file| file.name.ends_with(".safetensors"));
    (has_config && has_weights).then_some(files)
}

/// Whether a file is llama.cpp's.
pub(crate) fn is_gguf(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".gguf")
}

/// The files of a model: safetensors with their config, else the only GGUF file.
pub(crate) fn of_model(id: &ModelId, files: &[RemoteFile]) -> Result<Vec<RemoteFile>, Error> {
    match needed(files) {
        Some(files) => Ok(files),
        None => only_gguf(files).map_err(|count| match count {
            0 => Error::NotAModel { id: id.clone() },
            files => Error::Gguf { id: id.clone(), files },
        }),
    }
}

/// The GGUF file of a repository that has one. How many there are, where that is another number.
fn only_gguf(files: &[RemoteFile]) -> Result<Vec<RemoteFile>, usize> {
    let found: Vec<RemoteFile> = files.iter().filter(|file| is_gguf(&file.name)).cloned().collect();
    if found.len() == 1 { Ok(found) } else { Err(found.len()) }
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

    #[test]
    fn a_repository_has_one_gguf_file_or_none_is_downloaded() {
        let file =
            |name: &&str| RemoteFile { name: (*name).to_owned(), bytes: 1, checksum: Checksum::Unknown };
        let only = |names: &[&str]| {
            let files: Vec<RemoteFile> = names.iter().map(file).collect();
            only_gguf(&files).map(|files| files.into_iter().map(|file| file.name).collect::<Vec<_>>())
        };
        assert_eq!(only(&["README.md", "tiny-Q4_0.GGUF"]), Ok(vec!["tiny-Q4_0.GGUF".to_owned()]));
        assert_eq!(only(&["tiny-Q4_0.gguf", "tiny-Q8_0.gguf"]), Err(2));
        assert_eq!(only(&["README.md"]), Err(0));
    }

    #[test]
    fn modules_behind_a_network_are_downloaded() {
        let names = |files: &[&str]| {
            let file =
                |name: &&str| RemoteFile { name: (*name).to_owned(), bytes: 1, checksum: Checksum::Unknown };
            let files: Vec<RemoteFile> = files.iter().map(file).collect();
            needed(&files).map(|files| files.into_iter().map(|file| file.name).collect::<Vec<_>>())
        };
        let needed = [
            "config.json",
            "modules.json",
            "model.safetensors",
            "1_Pooling/config.json",
            "2_Dense/config.json",
            "2_Dense/model.safetensors",
            "artifact.metadata",
            "sparse_linear.pt",
        ];
        let others = ["2_Dense/pytorch_model.bin", "openvino/model.safetensors", "1_Pooling/a/config.json"];
        assert_eq!(names(&[&needed[..], &others].concat()).unwrap(), needed);
        // Static embeddings have no config.
        let needed =
            ["modules.json", "0_StaticEmbedding/model.safetensors", "0_StaticEmbedding/tokenizer.json"];
        assert_eq!(names(&needed).unwrap(), needed);
        assert_eq!(names(&["1_Pooling/config.json", "model.safetensors"]), None);
    }
}
