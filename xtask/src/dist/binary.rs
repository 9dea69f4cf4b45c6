//! The binary for other machines, built with its wheel by maturin, and what must hold of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::Endianness;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _};

use super::contents::files;
use super::{Dist, environment, read};
use crate::paths;
use crate::process::{output, run};
use crate::wheel::{Wheel, installed};

/// In the workspace's manifest.
const PROFILE: &str = "dist";
const MATURIN: Wheel<'_> = Wheel { name: "maturin", version: "1.16.0", platform: None };
/// What the wheel says it needs: what MLX's own wheels need.
const PLATFORM: &str = "manylinux_2_35";
/// The newest symbols of the C and C++ libraries of that platform.
const SYMBOLS: [(&str, u32); 2] = [("GLIBC_2.", 35), ("GLIBCXX_3.4.", 30)];
/// Of the embedded model, a piece so long is looked for.
const PIECE_BYTES: usize = 64;

/// The built binary.
pub struct Binary {
    /// Without debug information.
    pub file: PathBuf,
    /// The folder of the wheel that has it.
    wheels: PathBuf,
    /// Seconds since 1970 of the commit.
    pub epoch: u64,
}

impl Binary {
    /// Builds it in a folder, and checks it.
    pub fn build(folder: &Path) -> Result<Self, String> {
        let (build, wheels) = (folder.join("build"), folder.join("wheels"));
        let mut log = Command::new("git");
        log.args(["log", "-1", "--format=%ct"]).current_dir(paths::root());
        let epoch: u64 = output(log)?.trim().parse().map_err(|_| "git log gave no time".to_owned())?;
        let Some([maturin]) = installed([MATURIN], folder)? else {
            return Err("maturin is needed to build wheels".to_owned());
        };
        _ = std::fs::remove_dir_all(&wheels);
        let mut command = Command::new(maturin.join("bin/maturin"));
        command.args(["build", "--profile", PROFILE, "--skip-auditwheel", "--out"]).arg(&wheels);
        if cfg!(target_os = "linux") {
            command.args(["--compatibility", PLATFORM]);
        }
        command.current_dir(paths::root()).envs(environment::variables(&build, epoch));
        crate::environment::set_by_cargo().for_each(|name| _ = command.env_remove(name));
        command.env_remove("RUSTFLAGS");
        run(command)?;
        let file = build.join(PROFILE).join("omnibus");
        check(&read(&file)?, &environment::folders(&build))
            .map_err(|why| format!("{}: {why}", file.display()))?;
        Ok(Self { file, wheels, epoch })
    }
}

/// Copies the wheel to the artefacts.
pub fn copy_wheel(dist: &Dist) -> Result<(), String> {
    for wheel in files(&dist.binary.wheels)? {
        let name = wheel.file_name().unwrap_or_default().to_string_lossy();
        dist.write(&name, &read(&wheel)?)?;
    }
    Ok(())
}

/// Whether a binary runs on other machines: it names no folder of this one, needs no newer system than libmlx does, and
/// starts without libmlx.
fn check(binary: &[u8], folders: &[(PathBuf, &str)]) -> Result<(), String> {
    for (folder, _) in folders {
        let name = folder.to_string_lossy();
        if count(binary, name.as_bytes()) > 0 {
            return Err(format!("it names {name}"));
        }
    }
    let model = read(&paths::root().join("crates/cli/models/omnibus-mini/model.safetensors"))?;
    let piece = model.get(model.len() / 2..).and_then(|rest| rest.get(..PIECE_BYTES)).unwrap_or_default();
    match count(binary, piece) {
        1 => {}
        copies => return Err(format!("the embedded model is in it {copies} times")),
    }
    if cfg!(target_os = "linux") {
        loader_entries(binary)?;
        SYMBOLS.iter().try_for_each(|(prefix, newest)| newest_symbol(binary, prefix, *newest))?;
    }
    Ok(())
}

fn loader_entries(binary: &[u8]) -> Result<(), String> {
    let failed = |error: object::Error| error.to_string();
    let header = FileHeader64::<Endianness>::parse(binary).map_err(failed)?;
    let endian = header.endian().map_err(failed)?;
    let sections = header.sections(endian, binary).map_err(failed)?;
    let Some((entries, strings)) = sections.dynamic(endian, binary).map_err(failed)? else {
        return Err("it is linked statically, and cannot load libmlx".to_owned());
    };
    let strings = sections.strings(endian, binary, strings).map_err(failed)?;
    for entry in entries {
        let tag = entry.tag(endian);
        if ![DT_NEEDED, DT_RPATH, DT_RUNPATH].contains(&tag) {
            continue;
        }
        let text = entry.string(endian, strings).map_err(failed)?;
        let text = String::from_utf8_lossy(text);
        match tag {
            DT_NEEDED if text.contains("libmlx") => return Err(format!("it does not start without {text}")),
            DT_NEEDED => {}
            _ => return Err(format!("it looks for libraries in {text}")),
        }
    }
    Ok(())
}

/// Fails where a binary needs a newer symbol of a library.
fn newest_symbol(binary: &[u8], prefix: &str, newest: u32) -> Result<(), String> {
    let minor = |at: usize| {
        let rest = binary.get(at + prefix.len()..)?;
        let digits: String = rest
            .iter()
            .map_while(|byte| char::from(*byte).to_digit(10))
            .map(|digit| digit.to_string())
            .collect();
        digits.parse::<u32>().ok()
    };
    let needed = places(binary, prefix.as_bytes()).filter_map(minor).max().unwrap_or(0);
    match needed > newest {
        true => Err(format!("it needs {prefix}{needed}, and {PLATFORM} has {prefix}{newest}")),
        false => Ok(()),
    }
}

fn count(bytes: &[u8], part: &[u8]) -> usize {
    places(bytes, part).count()
}

/// Where a part is in some bytes.
fn places<'a>(bytes: &'a [u8], part: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let first = part.first().copied();
    let starts = bytes.iter().enumerate().filter(move |(_, byte)| Some(**byte) == first);
    starts.map(|(at, _)| at).filter(move |at| bytes.get(*at..).is_some_and(|rest| rest.starts_with(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_a_part_is_found() {
        assert_eq!(places(b"abcabca", b"abc").collect::<Vec<_>>(), [0, 3]);
        assert_eq!(count(b"aaa", b"aa"), 2);
        assert_eq!(count(b"abc", b""), 0);
    }

    #[test]
    fn symbols_of_a_newer_system_are_refused() {
        let binary = b"\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_2.35\0";
        assert_eq!(newest_symbol(binary, "GLIBC_2.", 35), Ok(()));
        let error = newest_symbol(binary, "GLIBC_2.", 34).unwrap_err();
        assert!(error.contains("GLIBC_2.35"), "{error}");
    }

    #[test]
    fn the_folders_of_this_machine_and_a_missing_model_are_refused() {
        let folders = [(PathBuf::from("/builder"), "")];
        let error = check(b"text /builder/src/a.rs text", &folders).unwrap_err();
        assert_eq!(error, "it names /builder");
        let error = check(b"text", &folders).unwrap_err();
        assert_eq!(error, "the embedded model is in it 0 times");
    }

    #[test]
    fn this_program_is_found_to_look_for_libraries_as_it_does() {
        // Its dynamic section is read, and it needs no libmlx.
        if cfg!(target_os = "linux") {
            let own = read(&std::env::current_exe().unwrap()).unwrap();
            assert_eq!(loader_entries(&own), Ok(()));
            assert!(loader_entries(b"no program").is_err());
        }
    }
}
