//! The licences of everything in the binary: `LICENSES.txt`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::contents::{files, wheel};
use super::{Dist, read};

/// How names of files with licences begin.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];
/// Texts for crates that name one of these licences and have no file, without the lines of their copyright.
const STANDARD: [(&str, &str); 4] = [
    ("Apache-2.0", include_str!("../../../LICENSE-APACHE")),
    ("MIT", include_str!("texts/MIT.txt")),
    ("BSD-3-Clause", include_str!("texts/BSD-3-Clause.txt")),
    ("BSD-2-Clause", include_str!("texts/BSD-2-Clause.txt")),
];

const HEAD: &str = "Licences of the crates and libraries in omnibus. A text that several have is printed once, below their names.\n";

/// The page. Fails where there is no text for a crate.
pub fn texts(dist: &Dist) -> Result<String, String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for found in dist.crates.iter().filter(|found| found.is_foreign) {
        let name = format!("{} {} ({})", found.name, found.version, found.licence);
        let mut own = of_folder(&found.folder)?;
        if own.is_empty() {
            let standard = standard(&found.licence);
            let standard = standard.ok_or_else(|| format!("{name} has no text of its licence"))?;
            own.push(format!("Copyright (c) the authors of {}\n\n{}", found.name, standard.trim()));
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

/// The texts in a crate's folder, and in those directly below it, where other projects' sources are.
fn of_folder(folder: &Path) -> Result<Vec<String>, String> {
    let entries = |folder: &Path| {
        let entries = folder.read_dir().map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        Ok::<_, String>(paths)
    };
    let own = entries(folder)?;
    let mut paths = own.clone();
    for below in own.iter().filter(|path| path.is_dir()) {
        paths.extend(entries(below)?);
    }
    paths.iter().filter(|path| is_licence(path)).map(|path| text(path)).collect()
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

/// Whether a file is the text of a licence, by its name.
pub fn is_licence(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_uppercase()).unwrap_or_default();
    path.is_file() && NAMES.iter().any(|begin| name.starts_with(begin))
}

fn standard(licence: &str) -> Option<&'static str> {
    STANDARD.iter().find(|(name, _)| licence.contains(name)).map(|(_, text)| *text)
}

fn text(path: &Path) -> Result<String, String> {
    Ok(String::from_utf8_lossy(&read(path)?).replace("\r\n", "\n").trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_a_file_gets_the_text_that_its_expression_names() {
        assert!(standard("MIT OR Apache-2.0").is_some_and(|text| text.contains("Apache License")));
        assert!(standard("MIT").is_some_and(|text| text.starts_with("Permission is hereby granted")));
        assert!(standard("BSD-2-Clause").is_some_and(|text| !text.contains("Neither the name")));
        assert!(standard("BSD-3-Clause").is_some_and(|text| text.contains("Neither the name")));
        assert_eq!(standard("Zlib"), None);
    }

    #[test]
    fn every_crate_in_the_binary_has_a_text() {
        for found in super::super::dependencies::crates().unwrap().iter().filter(|found| found.is_foreign) {
            let has_text = of_folder(&found.folder).is_ok_and(|texts| !texts.is_empty());
            assert!(has_text || standard(&found.licence).is_some(), "{} {}", found.name, found.licence);
        }
    }
}
