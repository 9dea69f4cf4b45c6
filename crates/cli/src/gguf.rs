//! GGUF files, which this program does not load: what one is, and what to fetch instead.
//!
//! Invariant: only the head of a file is read, within limits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// The first bytes of every file.
const MAGIC: &[u8] = b"GGUF";
/// Most entries of the head that are read.
const ENTRIES_MAX: u64 = 64;
/// Longest text of the head that is read, in bytes.
const TEXT_BYTES_MAX: u64 = 4096;
/// The type of a text.
const TEXT: u32 = 8;

/// The only kind of weights of a directory, if it is this one.
pub fn only(directory: &Path) -> Option<PathBuf> {
    if directory.join("config.json").exists() {
        return None;
    }
    let files = std::fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gguf"))).min()
}

/// Why a file is not loaded, and what to fetch instead. `None` for other files.
pub fn refusal(file: &Path) -> Option<String> {
    let mut reader = BufReader::new(File::open(file).ok()?);
    let mut magic = [0; 4];
    reader.read_exact(&mut magic).ok()?;
    if magic != MAGIC {
        return None;
    }
    // A file that was cut may have no more than this.
    let about = texts(&mut reader).unwrap_or_default();
    let text = |name: &str| about.get(name).map(String::as_str);
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let name = text("general.basename").or(text("general.name")).unwrap_or(stem);
    let size = text("general.size_label").map(|size| format!(" {size}")).unwrap_or_default();
    let architecture =
        text("general.architecture").map(|kind| format!(" ({kind}{size})")).unwrap_or_default();
    let origin =
        text("general.base_model.0.repo_url").map(|url| format!(", made from {url}")).unwrap_or_default();
    Some(format!(
        "{} is a GGUF file of {name}{architecture}{origin}, which llama.cpp and Ollama load; omnibus loads safetensors: take \
         the model's own repository on the hub, or one in MLX's format such as mlx-community/{}-4bit",
        file.display(),
        name.replace(' ', "-")
    ))
}

/// The texts at the begin of a head. `None` where it breaks off or has another form.
fn texts(reader: &mut impl Read) -> Option<BTreeMap<String, String>> {
    let _version = number(reader, 4)?;
    let _tensors = number(reader, 8)?;
    let entries = number(reader, 8)?;
    let mut found = BTreeMap::new();
    for _ in 0..entries.min(ENTRIES_MAX) {
        let Some(name) = text(reader) else { break };
        let Some(kind) = number(reader, 4).and_then(|kind| u32::try_from(kind).ok()) else { break };
        let is_read = match kind {
            TEXT => text(reader).map(|value| _ = found.insert(name, value)),
            other => skip(reader, other),
        };
        // A list: what follows is rarely a text about the model.
        if is_read.is_none() {
            break;
        }
    }
    Some(found)
}

/// Reads over a number or a truth value. `None` for lists.
fn skip(reader: &mut impl Read, kind: u32) -> Option<()> {
    let bytes = match kind {
        0 | 1 | 7 => 1,
        2 | 3 => 2,
        4..=6 => 4,
        10..=12 => 8,
        _ => return None,
    };
    number(reader, bytes).map(|_| ())
}

fn number(reader: &mut impl Read, bytes: usize) -> Option<u64> {
    let mut all = [0; 8];
    reader.read_exact(all.get_mut(..bytes)?).ok()?;
    Some(u64::from_le_bytes(all))
}

fn text(reader: &mut impl Read) -> Option<String> {
    let length = number(reader, 8).filter(|length| *length <= TEXT_BYTES_MAX)?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    reader.read_exact(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, bytes: &[u8]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("omnibus-gguf-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("Tiny-Model-Q4_K_M.gguf");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn entry(name: &str, value: &str) -> Vec<u8> {
        let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
        [text(name), TEXT.to_le_bytes().to_vec(), text(value)].concat()
    }

    fn head(entries: &[Vec<u8>]) -> Vec<u8> {
        let count = (entries.len() as u64).to_le_bytes();
        [MAGIC, &3_u32.to_le_bytes(), &[0; 8], &count, &entries.concat()].concat()
    }

    #[test]
    fn a_file_is_described_by_its_head() {
        let size = [&entry("general.size", "")[..20], &4_u32.to_le_bytes(), &[0; 4]].concat();
        let entries = [
            entry("general.architecture", "qwen3"),
            size,
            entry("general.basename", "Qwen3 Tiny"),
            entry("general.size_label", "8B"),
        ];
        let path = file("whole", &head(&entries));
        let why = refusal(&path).unwrap();
        assert!(why.contains("is a GGUF file of Qwen3 Tiny (qwen3 8B)"), "{why}");
        assert!(why.ends_with("mlx-community/Qwen3-Tiny-4bit"), "{why}");
        assert_eq!(only(path.parent().unwrap()), Some(path));
    }

    #[test]
    fn a_cut_or_hostile_head_leaves_the_files_name() {
        let long = [&u64::MAX.to_le_bytes()[..], b"x"].concat();
        for (name, bytes) in [("cut", MAGIC.to_vec()), ("long", head(&[long])), ("none", head(&[]))] {
            let why = refusal(&file(name, &bytes)).unwrap();
            assert!(why.contains("GGUF file of Tiny-Model-Q4_K_M,"), "{name}: {why}");
        }
        assert_eq!(refusal(&file("other", b"{}{}{}")), None);
        assert_eq!(refusal(&file("empty", b"")), None);
    }
}
