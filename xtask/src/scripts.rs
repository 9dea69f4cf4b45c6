//! `cargo xtask fixtures`, `bench`, `soak` and `parity`: scripts and examples of the repository.

use crate::paths;
use crate::process::{cargo, python, run};

/// A Python script that runs a reference implementation and writes its output to fixtures.
struct Reference {
    name: &'static str,
    script: &'static str,
    /// The packages it imports, as pip arguments.
    needs: &'static str,
}

const REFERENCES: &[Reference] = &[
    Reference { name: "mlx", script: "crates/mlx/tests/fixtures/make.py", needs: "mlx[cpu]==0.32.4" },
    Reference {
        name: "foreign",
        script: "crates/model/tests/fixtures/foreign.py",
        needs: "mlx[cpu]==0.32.4 mlx-lm==0.32.2",
    },
    Reference {
        name: "layouts",
        script: "crates/model/tests/fixtures/layouts.py",
        needs: "mlx[cpu]==0.32.4 mlx-lm==0.32.2",
    },
    Reference {
        name: "adapters",
        script: "crates/model/tests/fixtures/adapters.py",
        needs: "mlx[cpu]==0.32.4 mlx-lm==0.32.2",
    },
    Reference {
        name: "served-adapters",
        script: "crates/cli/tests/adapters/make.py",
        needs: "mlx[cpu]==0.32.4 mlx-lm==0.32.2",
    },
    Reference {
        name: "gemma3n",
        script: "crates/model/tests/pictures/make_gemma3n.py",
        needs: "torch==2.15.0 timm==1.0.31 transformers==5.23.0 pillow==13.0.0",
    },
    Reference {
        name: "molmo2",
        script: "crates/model/tests/pictures/make_molmo2.py",
        needs: "mlx[cpu]==0.32.4 mlx-vlm==0.7.10",
    },
    Reference {
        name: "whisper",
        script: "crates/model/tests/fixtures/whisper.py",
        needs: "torch transformers==5.23.0 safetensors",
    },
    Reference { name: "jinja", script: "crates/jinja/tests/reference/reference.py", needs: "jinja2" },
];

/// Runs every reference, or the named ones.
pub fn fixtures(names: &[String]) -> Result<(), String> {
    let known = |name: &String| REFERENCES.iter().any(|reference| reference.name == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = REFERENCES.iter().map(|reference| reference.name).collect();
        return Err(format!("there is no `{unknown}`; there are {}", all.join(", ")));
    }
    let is_requested =
        |reference: &&Reference| names.is_empty() || names.iter().any(|name| name == reference.name);
    for reference in REFERENCES.iter().filter(is_requested) {
        println!("{}: {}", reference.name, reference.script);
        let mut script = python();
        script.arg(reference.script);
        run(script).map_err(|why| format!("{why}; it needs `pip install '{}'`", reference.needs))?;
    }
    Ok(())
}

/// The module of `bench/` that the others import.
const SHARED: &str = "serving";

/// Builds the server and runs one script of `bench/` with the other arguments.
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

/// Builds the server and runs the soak test.
pub fn soak(arguments: &[String]) -> Result<(), String> {
    bench(&[&["soak".to_owned()], arguments].concat())
}

fn bench_scripts() -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(paths::root().join("bench"))
        .map_err(|error| format!("cannot read bench/: {error}"))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut scripts: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".py").map(str::to_owned))
        .filter(|name| name != SHARED)
        .collect();
    scripts.sort();
    Ok(scripts)
}

/// Compares logits and features with the reference's, or what processors make; passes the arguments to the example.
pub fn parity(arguments: &[String]) -> Result<(), String> {
    let (package, name, arguments) = match arguments {
        [option, rest @ ..] if option == "--preprocess" => ("omnibus-media", "preprocess", rest),
        _ => ("omnibus-model", "parity", arguments),
    };
    let mut example = cargo(&["run", "--release", "--quiet", "-p", package, "--example", name, "--"]);
    example.args(arguments);
    run(example)
}
