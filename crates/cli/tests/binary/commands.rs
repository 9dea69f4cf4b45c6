//! Commands: output, and exit codes.

use std::io::Write;
use std::process::Stdio;

use serde_json::Value;

use super::process::{Server, omnibus, run, text};

fn check_wrong_usage(arguments: &[&str], expected: &str) {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
}

/// Exit code 1, and one line on stderr with the reason.
fn check_failed(arguments: &[&str], expected: &str) {
    let output = run(arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
}

fn result(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn wrong_usage_is_exit_code_2() {
    check_wrong_usage(&[], "Usage");
    check_wrong_usage(&["sing"], "sing");
    check_wrong_usage(&["bench"], "Usage");
    check_wrong_usage(&["serve", "--no-such-flag", "4"], "--no-such-flag");
    check_wrong_usage(&["serve", "--kv-bits", "5"], "--kv-bits");
    check_wrong_usage(&["serve", "--port", "high"], "--port");
    check_wrong_usage(&["serve", "--device", "tpu"], "tpu");
    check_wrong_usage(&["serve", "--api-key", ""], "empty");
    check_wrong_usage(&["serve", "--api-key-file", "/nowhere"], "/nowhere");
    check_wrong_usage(&["serve", "--config", "/nowhere"], "/nowhere");
    check_wrong_usage(
        &["serve", "--root-path", "omnibus"],
        "--root-path: `omnibus` is not a prefix of paths",
    );
    check_wrong_usage(&["serve", "--tls-cert", "/nowhere"], "--tls-cert and --tls-key need each other");
    check_wrong_usage(&["serve", "--tls-cert", "/no", "--tls-key", "/no"], "cannot read /no: ");
    check_wrong_usage(&["serve", "--allowed-hosts", "http://a"], "--allowed-hosts: `http://a` is not a host");
    check_wrong_usage(&["serve", "--allowed-origins", "a.example"], "`a.example` is not an origin");
    for (source, what) in
        [("model", "a smaller model"), ("eagle3", "an EAGLE-3 head"), ("dflash", "a DFlash head")]
    {
        let why = format!("--draft {source} needs --draft-model, {what}");
        check_wrong_usage(&["serve", "--port", "0", "--draft", source], &why);
        check_wrong_usage(&["generate", "-p", "a", "--draft", source], &why);
    }
    check_wrong_usage(
        &["serve", "--generation-config", "/nowhere"],
        "--generation-config: `/nowhere` has no generation_config.json",
    );
    check_wrong_usage(&["serve", "--hostfile", "/nowhere"], "--hostfile /nowhere: No such file");
    check_wrong_usage(&["serve", "--models-dir", "/nowhere"], "--models-dir: cannot read /nowhere");
    check_wrong_usage(&["generate"], "-p");
    check_wrong_usage(&["generate", "--raw", "-p", "a", "--video", "b.mp4"], "--video");
    check_wrong_usage(&["completions", "tcsh"], "tcsh");
    check_wrong_usage(&["bench", "serve", "--url", "https://x"], "http://");
    check_wrong_usage(&["bench", "engine", "--random-weights", "/nowhere"], "presets are qwen3-0.6b");
    check_wrong_usage(&["bench", "engine", "--quantize", "4"], "--random-weights");
    check_wrong_usage(&["bench", "engine", "--streams", "4,x"], "integers");
    check_wrong_usage(&["bench", "engine", "--synthetic-acceptance", "101"], "100");
    check_wrong_usage(&["bench", "engine", "--recorded", "/nowhere"], "--recorded: /nowhere");
    let both = ["bench", "engine", "--recorded", "/nowhere", "--synthetic-acceptance", "80"];
    check_wrong_usage(&both, "exclude each other");
    check_wrong_usage(
        &["bench", "engine", "--profile", "--synthetic-acceptance", "80"],
        "exclude each other",
    );
}

#[test]
fn work_that_fails_is_exit_code_1_and_one_line() {
    check_failed(&["serve", "/nowhere", "--port", "0"], "/nowhere");
    check_failed(&["generate", "-m", "/nowhere", "-p", "hi"], "/nowhere");
    check_failed(&["bench", "serve", "--url", "http://127.0.0.1:1/v1"], "127.0.0.1:1");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    check_failed(&["serve", "--port", &port], &port);
    check_failed(&["serve", "--uds", "/nowhere/socket"], "cannot listen on /nowhere/socket");
}

#[test]
fn a_calibration_text_without_a_sequence_is_refused_by_its_own_flag() {
    let folder = std::env::temp_dir().join(format!("omnibus-calibration-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, ids, count) in [("none.json", "[]", "0 tokens"), ("one.json", "[7]", "1 tokens")] {
        let (file, to) = (folder.join(name), folder.join("to"));
        std::fs::write(&file, ids).unwrap();
        let [file, to] = [&file, &to].map(|path| path.display().to_string());
        let arguments =
            ["convert", "--hf-path", "omnibus-mini", "--mlx-path", &to, "-q", "--calibration", &file];
        check_failed(&arguments, &format!("--calibration {file}: the text has {count}"));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn packing_a_packed_model_says_what_stays() {
    let folder = std::env::temp_dir().join(format!("omnibus-packed-{}", std::process::id()));
    let to = folder.display().to_string();
    let arguments = ["convert", "--hf-path", "omnibus-mini", "--mlx-path", &to, "-q", "--q-bits", "4"];
    let output = omnibus(&arguments).output().unwrap();
    let notes = text(&output.stderr);
    assert!(output.status.success() && notes.contains("the model is quantized (8-bit)"), "{notes}");
    assert!(folder.join("mtp.safetensors").is_file(), "its head is kept");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_help_of_a_command_that_needs_a_model_has_no_default_for_it() {
    check_wrong_usage(
        &["convert"],
        "missing model: name a directory or org/name by position, -m or --hf-path",
    );
    let help = result(&["convert", "--help"]);
    assert!(!help.contains("Default: the model embedded in this binary"), "{help}");
    assert!(result(&["chat", "--help"]).contains("Default: the model embedded in this binary"));
}

#[test]
fn help_and_version_are_results() {
    assert!(result(&["--help"]).contains("serve"));
    assert!(result(&["--version"]).starts_with("omnibus "));
    let help = result(&["serve", "--help"]);
    assert!(help.contains("--shutdown-timeout") && help.contains("[env: OMNIBUS_PORT]"), "{help}");
}

#[test]
fn each_shell_has_a_completion_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(result(&["completions", shell]).contains("max-num-seqs"), "{shell}");
    }
}

#[test]
fn print_config_shows_sources() {
    let output =
        omnibus(&["serve", "--print-config", "--port", "9"]).env("OMNIBUS_MAX_QUEUE", "7").output().unwrap();
    let lines: Vec<String> = text(&output.stdout)
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for line in ["port = 9 # flag", "max-queue = 7 # OMNIBUS_MAX_QUEUE", "host = \"127.0.0.1\" # default"] {
        assert!(lines.iter().any(|shown| shown == line), "{line} in {lines:?}");
    }
}

#[test]
fn print_config_shows_whose_the_sampling_parameters_are() {
    let folder = std::env::temp_dir().join(format!("omnibus-print-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("generation_config.json"), r#"{"temperature": 0.6, "top_k": 20}"#).unwrap();
    let shown = |config: &str| {
        let output = omnibus(&["serve", "--print-config", "--generation-config", config]).output().unwrap();
        let printed = text(&output.stdout);
        let defaults = printed.lines().skip_while(|line| !line.starts_with("# sampling defaults"));
        defaults.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let publisher = shown(folder.to_str().unwrap());
    assert_eq!(publisher[0], "# sampling defaults of the embedded model:");
    assert_eq!(publisher[1], "# temperature = 0.6 # generation_config.json");
    assert_eq!(publisher[2], "# top_p = 1 # default");
    assert_eq!(publisher[3], "# top_k = 20 # generation_config.json");
    assert_eq!(shown("none")[1], "# temperature = 1 # default");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn architectures_are_listed_as_text_and_json() {
    assert!(result(&["models"]).lines().any(|line| line.starts_with("qwen3 ")));
    let list: Value = serde_json::from_str(&result(&["models", "--json"])).unwrap();
    let inputs = |name: &str| {
        let row = list.as_array().unwrap().iter().find(|row| row["architecture"] == name);
        row.map(|row| row["inputs"].to_string()).unwrap_or_default()
    };
    assert_eq!(inputs("qwen3"), r#"["text"]"#);
    assert_eq!(inputs("qwen3_vl"), r#"["text","image"]"#);
}

#[test]
fn stdout_has_the_completion_only() {
    let arguments = ["generate", "-p", "What is two plus two?", "--max-tokens", "12"];
    let once = run(&arguments);
    assert!(once.status.success() && once.stderr.is_empty(), "{once:?}");
    assert!(!once.stdout.is_empty());
    assert_eq!(once.stdout, run(&arguments).stdout);
    let verbose = run(&[arguments.as_slice(), &["--verbose"]].concat());
    assert_eq!(once.stdout, verbose.stdout);
    let report = text(&verbose.stderr);
    assert!(report.contains("tokens/s") && report.contains("peak memory"), "{report}");
}

#[test]
fn a_model_that_sees_answers_about_an_image() {
    let training = concat!(env!("CARGO_MANIFEST_DIR"), "/../../training/vision");
    let (model, picture) = (format!("{training}/omnibus-see"), format!("{training}/examples/colour-1.png"));
    let question = "Name the colour of the triangle.";
    let answer = result(&["generate", "-m", &model, "--image", &picture, "-p", question]);
    assert_eq!(answer.trim(), "blue");
    check_failed(&["generate", "-m", &model, "--video", &picture, "-p", question], "sees images only");
    check_failed(&["generate", "-m", &model, "--audio", &picture, "-p", question], "audio");
}

#[test]
fn a_raw_prompt_is_read_from_stdin() {
    let mut child = omnibus(&["generate", "-p", "-", "--raw", "--max-tokens", "4"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"Once upon a").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        text(&output.stdout),
        result(&["generate", "-p", "Once upon a", "--raw", "--max-tokens", "4"])
    );
}

#[test]
fn a_chat_session_runs_until_quit() {
    let mut child = omnibus(&["chat", "--max-tokens", "8"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = b"Hello!\n/help\n/nothing\n/retry\n/system Be brief.\nHello!\n/reset\n/quit\nnever read\n";
    child.stdin.take().unwrap().write_all(lines).unwrap();
    let output = child.wait_with_output().unwrap();
    let (responses, notes) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{notes}");
    assert!(responses.lines().filter(|line| !line.trim().is_empty()).count() >= 3, "{responses}");
    assert!(notes.contains("/system TEXT") && notes.contains("unknown command /nothing"), "{notes}");
    assert!(notes.starts_with("omnibus-mini, 4096 tokens of context. /help"), "{notes}");
    assert!(
        notes.contains("the system prompt is set") && notes.contains("the conversation begins anew"),
        "{notes}"
    );
}

#[test]
fn a_retry_is_sampled_anew() {
    let answers = |temperature: &str| {
        let arguments = ["chat", "--max-tokens", "24", "--seed", "5", "--temp", temperature];
        let mut child = omnibus(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = b"Tell me a story.\n/retry\n/retry\n/quit\n";
        child.stdin.take().unwrap().write_all(lines).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let (hot, notes) = answers("1.5");
    assert!(!notes.contains("the temperature is 0"), "{notes}");
    assert_eq!(answers("1.5").0, hot, "a seed repeats the whole session");
    let lines: std::collections::BTreeSet<&str> = hot.lines().filter(|line| !line.is_empty()).collect();
    assert!(lines.len() >= 3, "{hot}");
    let (_, notes) = answers("0");
    assert!(notes.contains("the temperature is 0, which gives the same answer"), "{notes}");
}

#[test]
fn bench_prefix_measures_what_the_prefix_cache_gives() {
    let bench = |flags: &[&str]| {
        let server = Server::start(&[&["--log", "error"], flags].concat());
        let url = format!("http://{}/v1", server.address);
        let load = ["--num-prompts", "4", "--input-len", "96", "--output-len", "2"];
        let command = [&["bench", "prefix", "--url", &url], &load[..]].concat();
        let json: Value = serde_json::from_str(&result(&[&command[..], &["--json"]].concat())).unwrap();
        (json, result(&command))
    };
    let (json, table) = bench(&[]);
    let share = |json: &Value, round: &str| json[round]["cached_share"].as_f64().unwrap();
    // The chat template's beginning is cached in both rounds. A second run finds nothing of the first.
    assert!(share(&json, "cold") < 0.25 && share(&json, "warm") > 0.35, "{json}");
    for round in ["cold", "warm"] {
        assert!(json[round]["ttft_ms"]["p50"].as_f64().unwrap() > 0.0, "{json}");
        assert!(table.lines().any(|line| line.starts_with(round) && line.ends_with('%')), "{table}");
    }
    let medians = ["cold", "warm"].map(|round| json[round]["ttft_ms"]["p50"].as_f64().unwrap());
    assert!((json["ttft_ratio"].as_f64().unwrap() - medians[0] / medians[1]).abs() < 1e-6, "{json}");
    let (json, _) = bench(&["--prefix-cache", "off"]);
    assert_eq!((share(&json, "cold"), share(&json, "warm")), (0.0, 0.0), "{json}");
}

#[test]
fn bench_serve_measures_a_server() {
    let server = Server::start(&["--log", "error"]);
    let url = format!("http://{}/v1", server.address);
    let load = ["--num-prompts", "6", "--input-len", "16", "--output-len", "8", "--json"];
    let closed = ["bench", "serve", "--url", &url, "--concurrency", "3", "--ignore-eos"];
    let summary: Value = serde_json::from_str(&result(&[closed.as_slice(), &load].concat())).unwrap();
    assert_eq!((summary["completed"].as_u64(), summary["failed"].as_u64()), (Some(6), Some(0)));
    assert_eq!(
        (summary["model"].as_str(), summary["output_tokens"].as_u64()),
        (Some("omnibus-mini"), Some(48))
    );
    for name in ["ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"] {
        let at = |percentile: &str| summary[name][percentile].as_f64().unwrap();
        assert!(at("p50") <= at("p95") && at("p95") <= at("p99"), "{name}: {summary}");
    }
    let open = [
        "bench",
        "serve",
        "--url",
        &url,
        "--request-rate",
        "1000",
        "--endpoint",
        "completions",
        "--dataset",
        "shared-prefix",
    ];
    let summary: Value = serde_json::from_str(&result(&[open.as_slice(), &load].concat())).unwrap();
    assert_eq!(summary["completed"], 6);
    let unknown = run(&[
        "bench",
        "serve",
        "--url",
        &url,
        "--model",
        "ghost",
        "--num-warmups",
        "0",
        "--num-prompts",
        "1",
    ]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("404"), "{}", text(&unknown.stderr));
}

#[test]
fn bench_engine_measures_steps_beside_the_limits_of_the_device() {
    let arguments = "bench engine --streams 2,1 --context 24 --steps 4 --prefill 40 --json";
    let results: Value = serde_json::from_str(&result(&arguments.split(' ').collect::<Vec<_>>())).unwrap();
    assert_eq!(results["architecture"], "qwen3");
    let decode = results["decode"].as_array().unwrap();
    assert_eq!(decode.iter().map(|case| case["streams"].as_u64()).collect::<Vec<_>>(), [Some(2), Some(1)]);
    for case in decode.iter().chain([&results["prefill"]]) {
        assert!(case["limit_ms"].as_f64().unwrap() > 0.0, "{case}");
        assert!(case["tokens_per_s"].as_f64().unwrap() > 0.0, "{case}");
    }
}

#[test]
fn bench_engine_measures_drafts_that_chance_accepts() {
    let arguments = "bench engine --streams 2 --context 24 --steps 4 --synthetic-acceptance 100 --num-draft-tokens 2 \
         --draft-policy all --json";
    let results: Value =
        serde_json::from_str(&result(&arguments.split_whitespace().collect::<Vec<_>>())).unwrap();
    let case = &results["drafted"][0];
    assert_eq!(case["decode"]["tokens_per_step"], 3.0, "{case}");
    assert!(case["speed_ratio"].as_f64().unwrap() > 0.0, "{case}");
}

#[test]
fn bench_engine_gives_recorded_answers_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("answers.jsonl");
    let recorded = r#"{"prompt": [5, 6, 7, 8, 9, 10, 11, 12, 5, 6], "answer": [7, 8, 9, 10, 11, 12]}"#;
    std::fs::write(&file, recorded).unwrap();
    let arguments = "bench engine --streams 1 --draft-policy all --json --recorded";
    let arguments: Vec<&str> = arguments.split(' ').chain([file.to_str().unwrap()]).collect();
    let results: Value = serde_json::from_str(&result(&arguments)).unwrap();
    let case = &results["cases"][0];
    assert!(case["drafted"]["tokens_per_step"].as_f64().unwrap() > 1.5, "{case}");
    std::fs::write(&file, "{\"prompt\": [1]}\n").unwrap();
    check_wrong_usage(&arguments, "line 1: missing field `answer`");
}

#[test]
fn doctor_checks_the_machine() {
    let output = run(&["doctor", "--json"]);
    let findings: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let engine =
        findings.as_array().unwrap().iter().find(|finding| finding["check"] == "engine").unwrap().clone();
    assert_eq!((output.status.code(), engine["verdict"].as_str()), (Some(0), Some("ok")), "{findings}");
    assert!(result(&["doctor"]).contains("libmlx"));
}

/// Steps take less than a millisecond, and a sequence has room for those of a measurement.
const SMALL: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 192, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}"#;

#[test]
fn doctor_writes_a_report_without_the_home_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.md");
    let config = folder.path().join("config.json");
    std::fs::write(&config, SMALL).unwrap();
    let mut command = omnibus(&["doctor", "--soak", "0", "--context", "16", "--random-weights"]);
    let output = command.arg(&config).arg("--report").arg(&file).env("HOME", folder.path()).output().unwrap();
    let report = std::fs::read_to_string(&file).unwrap();
    assert_eq!(output.status.code(), Some(0), "{report}{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("can be attached to an issue"), "{}", text(&output.stdout));
    let parts =
        ["## Machine", "libmlx", "## Kernels", "## Steps of the embedded model", "decode, 16 streams"];
    for part in parts.into_iter().chain(["## Soak of", "16 requests", "Every part ran"]) {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert!(!report.contains(folder.path().to_str().unwrap()), "{report}");
    let nowhere = folder.path().join("missing/report.md");
    let output = run(&["doctor", "--report", nowhere.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("--report: "), "{}", text(&output.stderr));
}

#[test]
fn doctor_plans_for_a_mac_that_is_not_there() {
    let plans: Value = serde_json::from_str(&result(&["doctor", "--as", "m1-16gb", "--json"])).unwrap();
    let first = &plans[0];
    assert_eq!(first["plan"]["limit"]["bytes"], 8_u64 << 30, "{plans}");
    assert_eq!(first["wired_bytes_of_weights"], Value::Null, "macOS 14 has no wired limit: {plans}");
    assert!(plans[3]["error"].as_str().unwrap().contains("the weights take"), "{plans}");
    let listed = result(&["doctor", "--as", "m4-16gb", "--plan", "qwen3-0.6b", "--quantize", "4"]);
    for part in ["m4-16gb: 17.18 GB", "KV cache for", "qk_rope_write", "launched one by one"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    assert_eq!(run(&["doctor", "--as", "m9"]).status.code(), Some(2));
}

#[test]
fn doctor_lists_the_kernels_of_a_decode_step_without_a_gpu() {
    let listed = result(&["doctor", "--plan", "qwen3-0.6b", "--rows", "3"]);
    let memory = "1.19 GB weights, 114.7 KB of keys and values a token";
    for line in ["28 layers, 4 rows with padding, one CUDA graph", memory, "28 times:", "qk_rope_write"] {
        assert!(listed.contains(line), "{line} in {listed}");
    }
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/fixtures/mamba2/config.json");
    let step: Value = serde_json::from_str(&result(&["doctor", "--plan", config, "--json"])).unwrap();
    let (pass, choice) = (step["pass"].as_array().unwrap(), &step["choice"][0]);
    assert!(pass.iter().any(|launch| launch["name"] == "recurrence"), "{step}");
    assert_eq!((choice["name"].as_str(), choice["groups"][0].as_u64()), (Some("choose"), Some(1)));
    assert_eq!(run(&["doctor", "--rows", "3"]).status.code(), Some(2));
}
