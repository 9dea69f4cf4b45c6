//! The licences of everything in the binary: `LICENSES.txt`.

use std::collections::BTreeMap;
use std::path::Path;

use super::contents::{files, wheel};
use super::{Dist, read};
use crate::paths;

/// How names of files with licences begin.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];
/// Texts for crates that name one of these licences and have no file.
const STANDARD: [(&str, &str); 2] = [("Apache-2.0", "LICENSE-APACHE"), ("MIT", "LICENSE-MIT")];

const HEAD: &str = "Licences of the crates and libraries in omnibus. A text that several have is printed once, below their names.\n";

/// The page. Fails where there is no text for a crate.
pub fn texts(dist: &Dist) -> Result<String, String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for found in dist.crates.iter().filter(|found| found.is_foreign) {
        let name = format!("{} {} ({})", found.name, found.version, found.licence);
        let mut own = of_folder(&found.folder)?;
        if own.is_empty() {
            own.push(standard(&found.licence).ok_or_else(|| format!("{name} has no text of its licence"))??);
        }
        for text in own {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for text in of_libmlx(&wheel(dist, "mlx-cpu")?)? {
        texts.entry(text).or_default().push("libmlx, in packages that contain it".to_owned());
    }
    let mut sections: Vec<(Vec<String>, String)> =
        texts.into_iter().map(|(text, names)| (names, text)).collect();
    sections.sort();
    let sections = sections.into_iter().map(|(names, text)| {
        let line = "=".repeat(100);
        format!("\n{line}\n{}\n{line}\n\n{text}\n", names.join("\n"))
    });
    Ok(HEAD.to_owned() + &sections.collect::<String>())
}

/// The texts in a crate's folder.
fn of_folder(folder: &Path) -> Result<Vec<String>, String> {
    let entries = folder.read_dir().map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_licence(path)).collect();
    paths.sort();
    paths.iter().map(|path| text(path)).collect()
}

/// The texts that a wheel of MLX brings.
fn of_libmlx(folder: &Path) -> Result<Vec<String>, String> {
    let mut texts = Vec::new();
    for path in files(folder)? {
        if path.components().any(|part| part.as_os_str().to_string_lossy().ends_with(".dist-info"))
            && is_licence(&path)
        {
            texts.push(text(&path)?);
        }
    }
    Ok(texts)
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_uppercase()).unwrap_or_default();
    path.is_file() && NAMES.iter().any(|begin| name.starts_with(begin))
}

fn standard(licence: &str) -> Option<Result<String, String>> {
    let (_, file) = STANDARD.iter().find(|(name, _)| licence.contains(name))?;
    Some(text(&paths::root().join(file)))
}

fn text(path: &Path) -> Result<String, String> {
    Ok(String::from_utf8_lossy(&read(path)?).replace("\r\n", "\n").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_a_file_gets_the_text_that_its_expression_names() {
        assert!(
            standard("MIT OR Apache-2.0").is_some_and(|text| text.is_ok_and(|text| text.contains("Apache")))
        );
        assert!(standard("MIT").is_some_and(|text| text.is_ok()));
        assert!(standard("Zlib").is_none());
    }
}
