//! Sources of settings, and the errors of invalid values.

use std::collections::BTreeMap;
use std::path::Path;

use expect_test::{Expect, expect};
use omnibus_engine::{WarmUp, WiredLimit};

use super::resolve::ValueSource;
use super::*;
use crate::command_table::COMMANDS;

fn resolved(flags: &[(&str, &str)], variables: &[(&str, &str)], file: &str) -> Result<Resolved, String> {
    let folder = std::env::temp_dir().join(format!(
        "omnibus-settings-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("omnibus.toml");
    std::fs::write(&path, file).unwrap();
    let flag = |name: &str| match name {
        "config" => vec![path.display().to_string()],
        name => {
            flags.iter().filter(|(flag, _)| *flag == name).map(|(_, value)| (*value).to_owned()).collect()
        }
    };
    let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
    let variable = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    let resolved = resolve(CommandName::Serve, &Inputs { flag: &flag, variable: &variable });
    std::fs::remove_dir_all(&folder).unwrap();
    resolved.map_err(|error| error.to_string().replace(&path.display().to_string(), "omnibus.toml"))
}

fn check_port(flags: &[(&str, &str)], variables: &[(&str, &str)], file: &str, port: u16) {
    assert_eq!(resolved(flags, variables, file).map(|resolved| resolved.config.listen.port), Ok(port));
}

fn check_error(flags: &[(&str, &str)], variables: &[(&str, &str)], file: &str, expected: Expect) {
    expected.assert_eq(&resolved(flags, variables, file).map(|_| ()).expect_err("an error"));
}

#[test]
fn a_flag_beats_a_variable_beats_the_file_beats_the_default() {
    let (flag, variable, file) = (("port", "1"), ("OMNIBUS_PORT", "2"), "port = 3");
    check_port(&[flag], &[variable], file, 1);
    check_port(&[], &[variable], file, 2);
    check_port(&[], &[], file, 3);
    check_port(&[], &[], "", 8000);
    check_port(&[], &[("OMNIBUS_PORT", "")], "", 8000);
}

#[test]
fn a_program_that_cannot_be_executed_is_an_error_of_one_line() {
    let (file, folder) = (concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), env!("CARGO_MANIFEST_DIR"));
    let check = |program: &str, expected: &str| {
        let error = resolved(&[("ffmpeg", program)], &[], "").map(|_| ()).expect_err("an error");
        assert_eq!(error, expected);
    };
    check("no-such-program", "--ffmpeg: no program `no-such-program` is on the search path");
    for program in ["/no/such/ffmpeg", "./no-such-ffmpeg", file, folder] {
        check(program, &format!("--ffmpeg: `{program}` is not an executable program"));
    }
    let found = resolved(&[("ffmpeg", "sh")], &[], "").map(|resolved| resolved.config.engine.ffmpeg);
    assert!(found.unwrap().unwrap().is_absolute());
    assert!(resolved(&[], &[], "").unwrap().config.engine.ffmpeg.is_none());
}

#[test]
fn errors_name_the_source_and_the_valid_values() {
    check_error(
        &[("port", "high")],
        &[],
        "",
        expect!["--port must be an integer from 0 to 65535, not `high`"],
    );
    check_error(
        &[("port", "65536")],
        &[],
        "",
        expect!["--port must be an integer from 0 to 65535, not `65536`"],
    );
    check_error(
        &[],
        &[("OMNIBUS_DEVICE", "tpu")],
        "",
        expect!["OMNIBUS_DEVICE must be one of auto, gpu, cpu, not `tpu`"],
    );
    check_error(
        &[],
        &[("OMNIBUS_KV_CACHE_MEMORY", "lots")],
        "",
        expect!["OMNIBUS_KV_CACHE_MEMORY must be a size such as 512MB or 4GiB, not `lots`"],
    );
    check_error(&[], &[], "prot = 1", expect!["omnibus.toml: unknown setting `prot`"]);
    check_error(&[], &[], "print-config = true", expect!["omnibus.toml: unknown setting `print-config`"]);
    check_error(&[], &[], "port = \"a\"", expect![[r#"omnibus.toml: `port` cannot be "a"; it takes N"#]]);
    check_error(&[], &[], "api-key = [1]", expect!["omnibus.toml: `api-key` must be a list of strings"]);
    check_error(
        &[("chat-template", "/nowhere")],
        &[],
        "",
        expect!["--chat-template: cannot read `/nowhere`: No such file or directory (os error 2)"],
    );
}

#[test]
fn sizes_take_decimal_and_binary_units() {
    let size = |text: &str| {
        resolved(&[("kv-cache-memory", text)], &[], "").map(|resolved| resolved.config.engine.kv_cache_memory)
    };
    assert_eq!(size("4096"), Ok(Some(4096)));
    assert_eq!(size("1.5GB"), Ok(Some(1_500_000_000)));
    assert_eq!(size("2 GiB"), Ok(Some(2 << 30)));
    assert!(size("-1").is_err() && size("1e999").is_err() && size("GB").is_err());
}

#[test]
fn lists_come_from_repeated_flags_from_commas_and_from_arrays() {
    let keys = |flags: &[(&str, &str)], variables: &[(&str, &str)], file: &str| {
        resolved(flags, variables, file).unwrap().config.listen.keys
    };
    assert_eq!(keys(&[("api-key", "a,b"), ("api-key", "c")], &[], ""), ["a,b", "c"]);
    assert_eq!(keys(&[], &[("OMNIBUS_API_KEY", "a, b")], ""), ["a", "b"]);
    assert_eq!(keys(&[], &[], "api-key = [\"a\", \"b\"]"), ["a", "b"]);
}

#[test]
fn print_config_shows_sources_and_hides_keys() {
    let resolved = resolved(&[("api-key", "secret")], &[("OMNIBUS_PORT", "2")], "device = \"cpu\"").unwrap();
    let printed = resolved.printed();
    let wanted = ["api-key", "port", "device", "host", "max-model-len"];
    let shown = printed
        .lines()
        .filter(|line| wanted.iter().any(|name| line.trim_start_matches("# ").starts_with(name)));
    let shown: Vec<String> =
        shown.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let shown: Vec<&str> = shown
        .iter()
        .map(|line| line.split_once(".toml").map_or(line.as_str(), |_| "device = \"cpu\" # FILE"))
        .collect();
    expect![[r#"
        host = "127.0.0.1" # default
        port = 2 # OMNIBUS_PORT
        # api-key is hidden (flag)
        # api-key-file is unset
        # max-model-len is unset
        device = "cpu" # FILE
        # hostfile is unset"#]]
    .assert_eq(&shown.join("\n"));
    assert!(!printed.contains("secret"));
    assert!(file::parse(Path::new("printed"), &printed).is_ok(), "the printed configuration parses");
}

#[test]
fn every_default_parses_and_every_row_reads_its_own_kind() {
    for setting in all() {
        let sample = match setting.kind {
            Kind::Counts(least, _) => format!("{least}, {least}"),
            Kind::Count(least, _) => least.to_string(),
            Kind::CountOrAll(_) => "-1".into(),
            Kind::Number(least, _) => least.to_string(),
            Kind::Bytes | Kind::BytesOr(_) => "1".into(),
            Kind::Choice(choices) => choices[0].text.into(),
            Kind::Switch => "true".into(),
            // A file that there is: tests run in the crate's folder.
            Kind::Text("FILE") => "Cargo.toml".into(),
            Kind::Text("auto|none|DIRECTORY") => "models/omnibus-mini".into(),
            Kind::Text("PROGRAM") => "sh".into(),
            Kind::List("NAME=URL") => "x=http://x".into(),
            Kind::List("URL") => "http://x".into(),
            Kind::List("PART") => "spec".into(),
            Kind::List("LOAD") => "closed".into(),
            Kind::List("ORIGIN") => "null".into(),
            Kind::List("SAMPLER") => "top_k".into(),
            Kind::Text("MAC") => "m4-16gb".into(),
            Kind::Text("ENDPOINT") => "tcp://127.0.0.1:5557".into(),
            Kind::Text("/PREFIX") => "/x".into(),
            Kind::Text("NAME") if setting.name.ends_with("-format") => "none".into(),
            Kind::Text(_) | Kind::List(_) => "x".into(),
        };
        for text in [setting.default, &sample] {
            if !text.is_empty() {
                let value = setting.kind.parse(text).unwrap();
                (setting.set)(&mut Config::default(), &value).unwrap();
            }
        }
    }
}

#[test]
fn memory_is_a_size_or_a_word() {
    let engine = |file: &str| resolved(&[], &[], file).map(|resolved| resolved.config.engine);
    let wired = |value: &str| engine(&format!("wired-limit = {value}")).map(|engine| engine.wired_limit);
    assert_eq!(wired("\"off\"").unwrap(), WiredLimit::Off);
    assert_eq!(wired("\"weights\"").unwrap(), WiredLimit::Weights);
    assert_eq!(wired("\"2GB\"").unwrap(), WiredLimit::Bytes(2_000_000_000));
    let refused = wired("\"some\"").unwrap_err();
    assert!(refused.contains("must be off, weights or a size such as 512MB or 4GiB"), "{refused}");
    assert_eq!(engine("memory-limit = 5").unwrap().memory_limit, Some(5));
    assert_eq!(engine("memory-limit = \"auto\"").unwrap().memory_limit, None);
}

#[test]
fn no_command_has_two_settings_of_one_name_or_letter() {
    for spec in COMMANDS {
        let mut names: Vec<&str> = of(spec.name).map(|setting| setting.name).collect();
        let mut letters: Vec<char> = of(spec.name).filter_map(|setting| setting.short).collect();
        let (count, letter_count) = (names.len(), letters.len());
        names.sort_unstable();
        names.dedup();
        letters.sort_unstable();
        letters.dedup();
        assert_eq!((names.len(), letters.len()), (count, letter_count), "{:?}", spec.path);
    }
}

#[test]
fn the_tables_defaults_equal_the_engines() {
    let config = resolved(&[], &[], "").unwrap().config;
    let expected = omnibus_engine::Settings {
        // The engine's own default is off; `serve` sets it to auto.
        warm_up: WarmUp::Auto,
        ..omnibus_engine::Settings::default()
    };
    assert_eq!(config.engine, expected);
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let flag = |_: &str| Vec::new();
    let variable = |_: &str| Some(String::new());
    let resolved = resolve(CommandName::Serve, &Inputs { flag: &flag, variable: &variable }).unwrap();
    let from_variables = resolved.rows.iter().filter(|row| matches!(row.2, ValueSource::Variable(_)));
    assert_eq!(from_variables.count(), 0);
}
