//! `cargo xtask fixtures`, `bench`, `soak` and `parity`: programs of the repository that are run now and then.

use crate::place;
use crate::process::{cargo, python, run};

/// A Python script that asks a reference implementation and writes what it answers.
struct Reference {
    name: &'static str,
    script: &'static str,
    /// What it imports, as pip is told.
    needs: &'static str,
}

const REFERENCES: &[Reference] = &[
    Reference { name: "mlx", script: "crates/mlx/tests/fixtures/make.py", needs: "mlx[cpu]==0.32.4" },
    Reference { name: "jinja", script: "crates/text/tests/jinja/reference.py", needs: "jinja2" },
];

/// Runs every reference, or those that are named.
pub fn fixtures(names: &[String]) -> Result<(), String> {
    let known = |name: &String| REFERENCES.iter().any(|reference| reference.name == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = REFERENCES.iter().map(|reference| reference.name).collect();
        return Err(format!("there is no `{unknown}`; there are {}", all.join(", ")));
    }
    let wanted = |reference: &&Reference| names.is_empty() || names.iter().any(|name| name == reference.name);
    for reference in REFERENCES.iter().filter(wanted) {
        println!("{}: {}", reference.name, reference.script);
        let mut script = python();
        script.arg(reference.script);
        run(script).map_err(|why| format!("{why}; it needs `pip install '{}'`", reference.needs))?;
    }
    Ok(())
}

/// The module of `bench/` that the others import.
const SHARED: &str = "serving";

/// Builds the server and runs one script of `bench/` on it, passing the other arguments on.
pub fn bench(arguments: &[String]) -> Result<(), String> {
    let scripts = bench_scripts()?;
    let Some((name, rest)) = arguments.split_first().filter(|(name, _)| scripts.contains(name)) else {
        return Err(format!("needs the name of a script: {}", scripts.join(", ")));
    };
    run(cargo(&["build", "--release", "-p", "mlx-omnibus"]))?;
    let mut script = python();
    script.arg(format!("bench/{name}.py")).args(rest);
    run(script)
}

/// Builds the server and lets the world go wrong around it for some minutes.
pub fn soak(arguments: &[String]) -> Result<(), String> {
    bench(&[&["soak".to_owned()], arguments].concat())
}

fn bench_scripts() -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(place::root().join("bench"))
        .map_err(|error| format!("cannot read bench/: {error}"))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut scripts: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".py").map(str::to_owned))
        .filter(|name| name != SHARED)
        .collect();
    scripts.sort();
    Ok(scripts)
}

/// Compares logits with the reference's; the arguments are the example's own.
pub fn parity(arguments: &[String]) -> Result<(), String> {
    let mut example =
        cargo(&["run", "--release", "--quiet", "-p", "omnibus-model", "--example", "parity", "--"]);
    example.args(arguments);
    run(example)
}
