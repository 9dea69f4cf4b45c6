//! Libraries neither print nor panic on purpose: they return errors. `assert!` is allowed, for bugs of ours.

use super::source::Source;
use super::{Tree, Violation};

/// Crates below `crates/` that are programs.
const PROGRAMS: &[&str] = &["cli"];

/// Parts of libraries that are test support.
const TEST_SUPPORT: &[(&str, &str)] = &[
    ("crates/core/src/sim/", "the simulator stops at a failure and prints its seed"),
    ("crates/testing/", "tests fail so"),
];

const PRINTS: &[&str] = &["print!", "println!", "eprint!", "eprintln!", "dbg!"];

/// `expect` of a parser takes no message, so only the message distinguishes the two. Clippy finds the rest.
const PANICS: &[&str] = &[".unwrap()", ".expect(\"", ".expect(&", "panic!", "todo!", "unimplemented!"];

/// An allowed panic or print; its line ends with a comment that gives the reason.
struct Allowed {
    path: &'static str,
    what: &'static str,
}

const ALLOWED: &[Allowed] = &[];

pub fn check(tree: &Tree) -> Vec<Violation> {
    let library = |source: &&Source| source.krate().is_some_and(|krate| !PROGRAMS.contains(&krate));
    tree.sources.iter().filter(library).flat_map(panics).collect()
}

fn panics(source: &Source) -> Vec<Violation> {
    // A build script prints for cargo, and no crate links it.
    let is_test_support = TEST_SUPPORT.iter().any(|(folder, _)| source.path.starts_with(folder));
    if is_test_support || source.path.ends_with("/build.rs") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in source.work().filter(|(_, line)| !is_constant(line)) {
        for what in PRINTS.iter().chain(PANICS).filter(|what| stands_in(line, what)) {
            if !is_allowed(source, number, what) {
                let (path, what) = (source.path.clone(), what.trim_end_matches(['"', '&', '(']));
                let message = format!("`{what}` in a library: return an error, or `assert!` what must hold");
                found.push(Violation { path, line: number, message });
            }
        }
    }
    found
}

/// The compiler evaluates it and reports a failure.
fn is_constant(line: &str) -> bool {
    let line = line.trim_start().trim_start_matches("pub ");
    line.starts_with("const ") && !line.starts_with("const fn ")
}

fn stands_in(line: &str, what: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let starts_word = what.starts_with(part);
    line.match_indices(what).any(|(at, _)| !(starts_word && line[..at].ends_with(part)))
}

fn is_allowed(source: &Source, number: usize, what: &str) -> bool {
    let listed = ALLOWED.iter().any(|row| row.path == source.path && row.what == what);
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
    fn prints_and_panics_in_libraries_are_refused() {
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
    fn similar_code_is_accepted() {
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
    fn tests_and_programs_may_print_and_panic() {
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
