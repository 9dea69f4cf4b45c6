//! Pipeline parallelism: stages give the tokens of one process, whatever a request is computed with, and end and begin together.

use super::client::{get, post};
use super::isolation::{disturbed, process, requests, undisturbed};
use super::process::{Server, signal};
use super::ranks::{check_refused, children, runs};

fn stages(count: &str, more: &[&str]) -> Server {
    let arguments = ["--log", "off", "--pipeline-parallel-size", count, "--watchdog-s", "5"];
    Server::start(&[&arguments[..], more].concat())
}

/// What one process gives, or several ranks of one stage.
fn in_one_stage(more: &[&str]) -> Vec<String> {
    let server = Server::start(&[&["--log", "off"], more].concat());
    undisturbed(server.address, &requests(6))
}

#[test]
fn stages_give_the_tokens_of_one_process_alone_and_in_batches() {
    let expected = in_one_stage(&[]);
    for count in ["2", "3"] {
        // Small chunks, so that prompts are computed in several steps.
        let server = stages(count, &["--max-num-batched-tokens", "24"]);
        assert_eq!(
            undisturbed(server.address, &requests(6)),
            expected,
            "{count} stages, one after the other"
        );
        assert_eq!(disturbed(&server, &requests(6), || ()), expected, "{count} stages, together");
    }
}

#[test]
fn stages_of_several_ranks_give_the_tokens_of_the_ranks() {
    let expected = in_one_stage(&["--tensor-parallel-size", "2"]);
    let server = stages("2", &["--tensor-parallel-size", "2"]);
    assert_eq!(undisturbed(server.address, &requests(6)), expected);
    let first = process(&server);
    // Of the first stage its second rank, and the first of the second stage, which has another.
    let of_first = children(first);
    assert_eq!(of_first.len(), 2, "{of_first:?}");
    let of_second: Vec<u32> = of_first.iter().flat_map(|process| children(*process)).collect();
    let [last] = of_second[..] else { panic!("{of_second:?}") };
    assert_eq!(disturbed(&server, &requests(6), || assert!(signal(last, "KILL"))), expected);
    assert!(!runs(last) && process(&server) != first);
}

#[test]
fn streams_resume_after_a_stage_is_killed_or_stopped() {
    let server = stages("3", &[]);
    let bodies = requests(4);
    let expected = undisturbed(server.address, &bodies);
    for (name, which) in [("KILL", 0), ("STOP", 1), ("STOP", 0), ("KILL", 1)] {
        let first = process(&server);
        let later = children(first);
        assert_eq!(later.len(), 2, "{later:?}");
        assert_eq!(disturbed(&server, &bodies, || assert!(signal(later[which], name))), expected, "{name}");
        assert_ne!(process(&server), first, "{name}");
        assert!(later.into_iter().all(|stage| !runs(stage)), "a stage runs after {name}");
    }
    server.signal("TERM");
    assert_eq!(server.wait().0.code(), Some(0));
}

#[test]
fn what_the_last_stage_computes_is_reported() {
    let body = r#"{"prompt": "the next stop is home", "max_tokens": 3, "temperature": 0, "logprobs": 2, "echo": true}"#;
    let texts = |server: &Server| post(server.address, "/v1/completions", body).json()["choices"].clone();
    let one = Server::start(&["--log", "off"]);
    let several = stages("3", &[]);
    assert_eq!(texts(&several), texts(&one));
    let metrics = get(several.address, "/metrics").body;
    assert!(metrics.contains("omnibus_prompt_tokens_total"), "{metrics}");
}

#[test]
fn what_stages_cannot_do_is_refused_in_one_line() {
    check_refused(
        &["--pipeline-parallel-size", "9"],
        "it has 8 layers; --pipeline-parallel-size may be 2, 3, 4, 5, 6, 7, 8",
    );
    check_refused(&["--pipeline-parallel-size", "2", "--in-process"], "leave out --in-process");
    check_refused(
        &["--pipeline-parallel-size", "2", "--swap-space", "1G"],
        "does not work with --swap-space",
    );
    check_refused(
        &["--pipeline-parallel-size", "2", "--max-num-batched-tokens", "1000000"],
        "--max-num-batched-tokens 1000000 is above the 131072",
    );
    let draft = concat!(env!("CARGO_MANIFEST_DIR"), "/models/omnibus-mini");
    check_refused(
        &["--pipeline-parallel-size", "2", "--draft", "model", "--draft-model", draft],
        "does not work with a draft model",
    );
}
