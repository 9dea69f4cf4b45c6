//! Libraries neither print nor panic on purpose: they return. `assert!` stays, for what only we can get wrong.

use super::source::Source;
use super::{Tree, Violation};

/// Crates below `crates/` that are programs.
const PROGRAMS: &[&str] = &["cli"];

/// Parts of libraries that exist to find faults, as tests do.
const EQUIPMENT: &[(&str, &str)] =
    &[("crates/core/src/sim/", "a world that finds a fault stops with its seed")];

const PRINTS: &[&str] = &["print!", "println!", "eprint!", "eprintln!", "dbg!"];

/// A parser's own `expect` takes no message, so only the message tells the two apart. Clippy finds the rest.
const PANICS: &[&str] = &[".unwrap()", ".expect(\"", ".expect(&", "panic!", "todo!", "unimplemented!"];

/// A place where an outburst is right; its line ends with a comment that says why.
struct Escape {
    path: &'static str,
    what: &'static str,
}

const ESCAPES: &[Escape] = &[];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let library = |source: &&Source| source.krate().is_some_and(|krate| !PROGRAMS.contains(&krate));
    tree.sources.iter().filter(library).flat_map(outbursts).collect()
}

fn outbursts(source: &Source) -> Vec<Violation> {
    // A build script talks to cargo by printing, and nobody links it.
    let is_equipment = EQUIPMENT.iter().any(|(folder, _)| source.path.starts_with(folder));
    if is_equipment || source.path.ends_with("/build.rs") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in source.work().filter(|(_, line)| !is_constant(line)) {
        for what in PRINTS.iter().chain(PANICS).filter(|what| stands_in(line, what)) {
            if !escapes(source, number, what) {
                let (path, what) = (source.path.clone(), what.trim_end_matches(['"', '&', '(']));
                let message = format!("`{what}` in a library: return an error, or `assert!` what must hold");
                found.push(Violation { path, line: number, message });
            }
        }
    }
    found
}

/// The compiler evaluates it, and says so when it fails.
fn is_constant(line: &str) -> bool {
    let line = line.trim_start().trim_start_matches("pub ");
    line.starts_with("const ") && !line.starts_with("const fn ")
}

fn stands_in(line: &str, what: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let starts_word = what.starts_with(part);
    line.match_indices(what).any(|(at, _)| !(starts_word && line[..at].ends_with(part)))
}

fn escapes(source: &Source, number: usize, what: &str) -> bool {
    let listed = ESCAPES.iter().any(|escape| escape.path == source.path && escape.what == what);
    listed && source.text[number - 1].contains("// ")
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn check_line(line: &str, expected: usize) {
        assert_eq!(found(check, &[("crates/core/src/a.rs", line)]).len(), expected, "{line}");
    }

    #[test]
    fn outbursts_in_libraries_are_refused() {
        for line in [
            "println!(\"x\");",
            "std::eprintln!();",
            "dbg!(x)",
            "x.unwrap();",
            "x.expect(\"y\");",
            "panic!(\"x\")",
            "todo!()",
        ] {
            check_line(line, 1);
        }
    }

    #[test]
    fn what_only_looks_like_one_is_fine() {
        for line in [
            "assert!(x);",
            "x.unwrap_or(1);",
            "parser.expect(Token::End)?;",
            "// panic!",
            "my_print!(x)",
            "const A: B = b().expect(\"c\");",
        ] {
            check_line(line, 0);
        }
    }

    #[test]
    fn tests_and_programs_have_their_freedom() {
        assert_eq!(found(check, &[("crates/core/tests/a.rs", "x.unwrap();")]), [""; 0]);
        assert_eq!(
            found(check, &[("crates/core/src/a.rs", "#[cfg(test)]\nmod tests {\n x.unwrap(); }")]),
            [""; 0]
        );
        assert_eq!(found(check, &[("crates/cli/src/a.rs", "println!();")]), [""; 0]);
        assert_eq!(found(check, &[("crates/core/src/sim/a.rs", "panic!();")]), [""; 0]);
        assert_eq!(found(check, &[("crates/core/build.rs", "println!();")]), [""; 0]);
    }
}
