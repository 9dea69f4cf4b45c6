//! `ps`, `list` and `run`, models by position or by `-m`, and what says how to go on.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::Value;

use super::process::{Server, omnibus, run, text};

fn result(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn with_stdin(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = omnibus(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn check_failed(output: &Output, code: i32, expected: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(expected), "{expected} in {}", text(&output.stderr));
}

#[test]
fn ps_shows_what_a_server_serves() {
    let server = Server::start(&["--log", "error", "--api-key", "secret"]);
    let url = format!("http://{}", server.address);
    let shown = result(&["ps", "--url", &url, "--api-key", "secret"]);
    let lines: Vec<&str> = shown.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("NAME") && lines[1].starts_with("omnibus-mini "),
        "{shown}"
    );
    assert!(
        lines[1].contains("4096  ") && lines[1].contains("loaded  ") && lines[1].ends_with("GB"),
        "{shown}"
    );
    let json: Value =
        serde_json::from_str(&result(&["ps", "--url", &url, "--api-key", "secret", "--json"])).unwrap();
    assert_eq!(
        (&json["models"][0]["model"], &json["running"]),
        (&"omnibus-mini".into(), &0.into()),
        "{json}"
    );
    check_failed(&run(&["ps", "--url", &url]), 1, "--api-key");
    check_failed(&run(&["ps", "--url", "http://127.0.0.1:1"]), 1, "omnibus serve");
}

#[test]
fn run_completes_a_prompt_of_the_command_line_or_of_stdin() {
    let expected = result(&["generate", "What is two plus two?", "--max-tokens", "4"]);
    assert_eq!(result(&["generate", "-p", "What is two plus two?", "--max-tokens", "4"]), expected);
    for arguments in [
        &["run", "omnibus-mini", "What is two plus two?"][..],
        &["run", "omnibus-mini", "What", "is", "two", "plus", "two?"],
        &["run", "-m", "omnibus-mini", "What is two plus two?"],
        &["run", "omnibus-mini", "-p", "What is two plus two?"],
    ] {
        assert_eq!(result(&[arguments, &["--max-tokens", "4"]].concat()), expected, "{arguments:?}");
    }
    let piped = with_stdin(&["run", "omnibus-mini", "--max-tokens", "4"], b"What is two plus two?");
    assert_eq!(text(&piped.stdout), expected);
    check_failed(&with_stdin(&["run", "omnibus-mini"], b"\n"), 2, "missing prompt");
    check_failed(&run(&["run", "omnibus-mini", "a", "-p", "b"]), 2, "twice");
    let by_position = ["generate", "omnibus-mini", "-p", "What is two plus two?", "--max-tokens", "4"];
    assert_eq!(result(&by_position), expected);
    check_failed(&run(&["generate", "a", "-p", "b"]), 1, "no directory `a`");
    check_failed(&run(&["generate", "a", "-m", "b", "-p", "c"]), 2, "`a` is neither the prompt");
}

#[test]
fn a_model_is_named_by_position_or_by_m() {
    for command in [
        &["serve"][..],
        &["perplexity"],
        &["chat"],
        &["cache", "prompt"],
        &["bench", "engine"],
        &["pull"],
        &["batch"],
    ] {
        let twice = [command, &["/nowhere", "-m", "/elsewhere"]].concat();
        check_failed(&run(&twice), 2, "the model is there twice");
    }
    check_failed(&run(&["serve", "-m", "/nowhere", "--port", "0"]), 1, "/nowhere");
    check_failed(&run(&["chat", "/nowhere"]), 1, "/nowhere");
    check_failed(&run(&["convert", "/nowhere", "--mlx-path", "/tmp/never-written"]), 1, "/nowhere");
    check_failed(&run(&["pull"]), 2, "missing model");
    let server = Server::start(&["-m", "omnibus-mini", "--log", "error"]);
    assert!(super::client::get(server.address, "/v1/models").body.contains("omnibus-mini"));
}

#[test]
fn the_last_of_a_repeated_flag_counts() {
    let printed = result(&["serve", "--port", "1", "--port", "2", "--print-config"]);
    assert!(
        printed.lines().any(|line| line.split_whitespace().eq(["port", "=", "2", "#", "flag"])),
        "{printed}"
    );
    // Names are a list, of which all count.
    let printed =
        result(&["serve", "--served-model-name", "a", "--served-model-name", "b", "--print-config"]);
    assert!(printed.contains(r#"["a", "b"]"#), "{printed}");
}

#[test]
fn empty_lists_say_so() {
    let folder: PathBuf = std::env::temp_dir().join(format!("omnibus-empty-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let folder_text = folder.display().to_string();
    for command in [&["ls"][..], &["list"]] {
        let output = omnibus(command).env("HF_HUB_CACHE", &folder).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), ""));
        assert!(text(&output.stderr).contains(&format!("no models in {folder_text}")), "{output:?}");
    }
    let json = omnibus(&["list", "--json"]).env("HF_HUB_CACHE", &folder).output().unwrap();
    assert_eq!((text(&json.stdout).trim(), text(&json.stderr).as_str()), ("[]", ""));
    let blocks = run(&["cache", "ls", "--cache-dir", &folder_text]);
    assert!(text(&blocks.stderr).contains("no blocks in"), "{blocks:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_cannot_be_loaded_says_what_to_fetch_instead() {
    let folder: PathBuf = std::env::temp_dir().join(format!("omnibus-formats-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("Qwen3-8B-Q4_K_M.gguf");
    std::fs::write(&file, b"GGUF\x03\0\0\0").unwrap();
    for model in [&file, &folder] {
        let model = model.display().to_string();
        check_failed(
            &run(&["generate", "-m", &model, "hi"]),
            1,
            "Qwen3-8B-Q4_K_M.gguf: not a sound GGUF file",
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let offline = omnibus(&["run", "org/name", "hi"])
        .env("HF_HUB_OFFLINE", "1")
        .env("HF_HUB_CACHE", std::env::temp_dir().join("omnibus-no-such-cache"))
        .output()
        .unwrap();
    check_failed(&offline, 1, "`omnibus list` shows the models that are here");
    let unreachable = omnibus(&["run", "org/name", "hi"])
        .env("HF_ENDPOINT", "http://127.0.0.1:1")
        .env_remove("HF_HUB_OFFLINE")
        .env("HF_HUB_CACHE", std::env::temp_dir().join("omnibus-no-such-cache"))
        .output()
        .unwrap();
    check_failed(&unreachable, 1, "HF_ENDPOINT");
}
