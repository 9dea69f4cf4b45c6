//! `cargo xtask metal-kernels`: compiles the Metal kernels as C++14 with address spaces, by the compiler of the wheel `ziglang`. It
//! needs no Mac, and links and runs nothing.
//!
//! The texts are those of the kernels that `crates/mlx/tests/gpu` runs in the emulator: run its tests first. Metal's language is
//! C++14 until macOS 26, so what a newer one has is refused for all of them. A kernel's own names and those of Metal that it
//! uses are in `prelude.h`. What C++14 accepts and Metal refuses is looked for in the text.

use std::process::Command;

use crate::process::run as finish;
use crate::{kernel_texts, paths, wheel, zig};

const PRELUDE: &str = include_str!("metal_kernels/prelude.h");
const FLAGS: [&str; 9] = [
    "-target",
    "aarch64-macos.14.0",
    "-std=c++14",
    "-pedantic-errors",
    "-Werror=double-promotion",
    "-nostdinc",
    "-nostdinc++",
    // There are no headers of Metal's.
    "-DGK_EMU",
    "-c",
];

/// Gets the compiler, if it is not there, and compiles every text.
pub fn run(arguments: &[String]) -> Result<(), String> {
    if !arguments.is_empty() {
        return Err(format!("takes nothing, not `{}`", arguments.join(" ")));
    }
    let texts = kernel_texts::of("metal")?;
    let wheels = zig::folder()?;
    let Some([zig]) = wheel::installed([zig::WHEEL], &wheels)? else { return Ok(()) };
    let folder = paths::target()?.join("metal-kernels");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).map(|()| path).map_err(|error| error.to_string())
    };
    let prelude = write("prelude.h", PRELUDE)?;
    for path in &texts {
        let in_text = |why: String| format!("{}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| in_text(error.to_string()))?;
        if let Some(why) = refused(&text) {
            return Err(in_text(why));
        }
        let mut compile = Command::new(zig::program(&zig));
        compile.envs(zig::caches(&wheels)).arg("c++").args(FLAGS).arg("-include").arg(&prelude);
        compile
            .arg("-o")
            .arg(folder.join("kernel.o"))
            .arg(write("kernel.cpp", &with_copies(&text).map_err(in_text)?)?);
        finish(compile).map_err(|_| in_text("does not compile, see above".to_owned()))?;
    }
    println!("{} Metal texts compile as C++14 with address spaces", texts.len());
    Ok(())
}

/// The text with copies of structures between address spaces, which Metal has and C++ has not, as copies that drop the space.
/// Two functions of the dialect copy; a text in which they are written otherwise is refused.
fn with_copies(text: &str) -> Result<String, String> {
    let mut changed = text.to_owned();
    // The second is in texts with simdgroup matrices alone.
    for space in ["GK_DEV", "GK_TGP"] {
        let read = format!("return *reinterpret_cast<const {space} V*>(p);");
        let write = format!("*reinterpret_cast<{space} V*>(p) = x;");
        if space == "GK_DEV" && !(changed.contains(&read) && changed.contains(&write)) {
            return Err("gk_read and gk_write are not found: see with_copies".to_owned());
        }
        changed = changed.replace(&read, "return *(const V*)(p);").replace(&write, "*(V*)(p) = x;");
    }
    Ok(changed)
}

/// Words that give a pointer an address space.
const SPACES: [&str; 5] = ["GK_DEV", "GK_TGP", "device", "threadgroup", "constant"];

/// What Metal's compiler for macOS 14 refuses and C++14 accepts, if the text has it: lambda expressions, and pointers and
/// references without an address space.
fn refused(text: &str) -> Option<String> {
    for (number, line) in text.lines().enumerate() {
        if ["[&](", "[=](", "[]("].iter().any(|capture| line.contains(capture)) {
            return Some(format!("line {} has a lambda expression: {line}", number + 1));
        }
        let pointers = line.char_indices().filter(|(at, letter)| {
            let before = line[..*at].chars().next_back();
            let is_type = before.is_some_and(|letter| letter.is_alphanumeric() || "_>".contains(letter));
            // Operators have a space before them.
            matches!(letter, '*' | '&') && is_type && line.get(at + 1..at + 2) != Some("&")
        });
        for (at, _) in pointers {
            let declaration = declaration(&line[..at]);
            if !SPACES.iter().any(|space| declaration.contains(space)) {
                return Some(format!("line {} has a pointer without an address space: {line}", number + 1));
            }
        }
    }
    None
}

/// The last part of a text that may declare one pointer.
fn declaration(text: &str) -> &str {
    let mut depth = 0;
    for (at, letter) in text.char_indices().rev() {
        match letter {
            '>' => depth += 1,
            '<' if depth > 0 => depth -= 1,
            '<' | '(' | '{' | ';' => return &text[at + 1..],
            ',' if depth == 0 => return &text[at + 1..],
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_metal_alone_refuses_is_found() {
        let is_refused = |line: &str| refused(line).is_some();
        assert!(is_refused("auto at = [&](int i) { return i; };"));
        assert!(is_refused("GK_FN float sum(const float* p, GK_DEV int* q) {"));
        assert!(is_refused("const T* values = keys + 1;"));
        assert!(is_refused("gk_fv<8>& x,"));
        assert!(!is_refused("GK_FN float sum(const GK_DEV gk_vec<T, 8>* p, GK_TGP float* q) {"));
        assert!(!is_refused("x.w = *reinterpret_cast<const GK_DEV gk_vec<T, 8>*>(p + a * b & c);"));
        assert!(!is_refused("if (a && b || *p == c) q = &r;"));
    }

    #[test]
    fn copies_drop_their_address_space() {
        let text =
            "{ return *reinterpret_cast<const GK_DEV V*>(p); }\n{ *reinterpret_cast<GK_DEV V*>(p) = x; }";
        assert_eq!(with_copies(text).unwrap(), "{ return *(const V*)(p); }\n{ *(V*)(p) = x; }");
        assert!(with_copies("nothing").is_err());
    }
}
