//! Outputs of each format, written by hand, and their deltas under every split.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::deltas::{Setup, lines};
use crate::outputs::OUTPUTS;
use expect_test::{Expect, expect};
use omnibus_text::{ReasoningFormat, TOOL_CALL_FORMATS, ToolCallFormat, ToolSchemas};
use serde_json::json;

fn schemas() -> ToolSchemas {
    ToolSchemas::new(&json!([
        {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
            "city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"},
        }}}},
        {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
            "numbers": {"type": "array", "items": {"type": "number"}}, "options": {"type": "object"},
        }}}},
    ]))
}

fn check(format: &str, expected: Expect) {
    let (_, text) = OUTPUTS.iter().find(|(name, _)| *name == format).unwrap();
    let schemas = schemas();
    let tools = Some((ToolCallFormat::named(format).unwrap(), &schemas));
    let prompt = if format == "functionary-v3.2" { ">>>" } else { "" };
    let reasoning = ReasoningFormat::named(format).or(ReasoningFormat::named("think"));
    let setup = Setup { prompt, reasoning, tools };
    expected.assert_eq(&lines(&setup.parse_every_split(text)));
}

#[test]
fn every_format_has_a_fixture() {
    for format in TOOL_CALL_FORMATS {
        assert!(OUTPUTS.iter().any(|(name, _)| *name == format.name), "{} has no output", format.name);
        assert_eq!(ToolCallFormat::named(format.name).unwrap().models, format.models, "names are unique");
    }
}

#[test]
fn hermes() {
    check(
        "hermes",
        expect![[r#"
            text "Let me look."
            call get_weather {"city":"Zürich","days":2}
            call add {}
        "#]],
    );
}

#[test]
fn qwen3_coder() {
    check(
        "qwen3-coder",
        expect![[r#"
            call get_weather {"city":"42","days":42,"exact":true,"x":""}
            text "Done."
        "#]],
    );
}

#[test]
fn harmony() {
    check(
        "harmony",
        expect![[r#"
            reasoning "Need weather."
            text "Looking."
            call get_weather {"city":"Bern"}
        "#]],
    );
}

#[test]
fn apertus() {
    check(
        "apertus",
        expect![[r#"
            call get_weather {"city":"Bern"}
            call add {"numbers":[1,2.50]}
        "#]],
    );
}

#[test]
fn command_a() {
    check(
        "command-a",
        expect![[r#"
            reasoning "I need it."
            call get_weather (0) {"city":"Bern"}
            call add (1) {}
        "#]],
    );
}

#[test]
fn command_r() {
    check(
        "command-r",
        expect![[r#"
            text "I will look."
            call get_weather {"city":"Bern"}
        "#]],
    );
}

#[test]
fn deepseek_v3() {
    check(
        "deepseek-v3",
        expect![[r#"
            text "Hm."
            call get_weather {"city":"a ``` b"}
            call add {}
        "#]],
    );
}

#[test]
fn deepseek_v31() {
    check(
        "deepseek-v3.1",
        expect![[r#"
            call get_weather {"city":"Bern"}
            call add {"numbers":[]}
        "#]],
    );
}

#[test]
fn deepseek_v32() {
    check(
        "deepseek-v3.2",
        expect![[r#"
            text "Look."
            call get_weather {"city":"42 ","days":42}
            call add {}
        "#]],
    );
}

#[test]
fn ernie() {
    check(
        "ernie",
        expect![[r#"
            reasoning "Sure."
            text "Here."
            call get_weather {"city":"Bern"}
        "#]],
    );
}

#[test]
fn firefunction() {
    check(
        "firefunction",
        expect![[r#"
            text "Hi"
            call get_weather {"city":"Bern"}
        "#]],
    );
}

#[test]
fn function_gemma() {
    check(
        "function-gemma",
        expect![[r#"
            call get_weather {"city":"a, \"b\"}","days":3}
        "#]],
    );
}

#[test]
fn functionary_v31() {
    check(
        "functionary-v3.1",
        expect![[r#"
            call get_weather {"city":"Bern"}
            call add {}
        "#]],
    );
}

#[test]
fn functionary_v32() {
    check(
        "functionary-v3.2",
        expect![[r#"
            text "Let me look."
            call get_weather {"city":"Bern"}
            call add {"numbers":[1]}
        "#]],
    );
}

#[test]
fn gemma() {
    check(
        "gemma",
        expect![[r#"
            text "Sure:"
            call get_weather {"city":"Bern","days":2}
            call add {"numbers":[1,2]}
            text "Done."
        "#]],
    );
}

#[test]
fn gemma_4() {
    check(
        "gemma-4",
        expect![[r#"
            reasoning "hm"
            call get_weather {"city":"a {b}, \"c\"","days":-1,"exact":true}
            call add {"numbers":[1,2.5],"options":{"k":"v","n":null}}
        "#]],
    );
}

#[test]
fn gigachat() {
    check(
        "gigachat",
        expect![[r#"
            text "Look."
            call get_weather {"city":"Bern"}
        "#]],
    );
}

#[test]
fn glm() {
    check(
        "glm",
        expect![[r#"
            reasoning "hm"
            text "Look."
            call get_weather {"city":"42","days":42}
            call add {"numbers":[1,2],"other":"a < b"}
        "#]],
    );
}

#[test]
fn granite() {
    check(
        "granite",
        expect![[r#"
            call get_weather {"city":"Bern"}
            call add {}
        "#]],
    );
}

#[test]
fn hunyuan() {
    check(
        "hunyuan",
        expect![[r#"
            reasoning "hm"
            text "Look."
            call get_weather {"city":"Bern"}
        "#]],
    );
}

#[test]
fn hunyuan_3() {
    check(
        "hunyuan-3",
        expect![[r#"
            call get_weather {"city":"Bern"}
            call add {}
        "#]],
    );
}

#[test]
fn internlm() {
    check(
        "internlm",
        expect![[r#"
            text "Look."
            call get_weather {"city":"Bern"}
        "#]],
    );
}

#[test]
fn json() {
    check(
        "json",
        expect![[r#"
            call get_weather {"city":"Bern"}
            call add {"numbers":[1]}
        "#]],
    );
}

#[test]
fn kimi_k2() {
    check(
        "kimi-k2",
        expect![[r#"
            text "Look."
            call get_weather (functions.get_weather:0) {"city":"Bern"}
            call add (functions.add:1) {}
        "#]],
    );
}

#[test]
fn kimi_k3() {
    check(
        "kimi-k3",
        expect![[r#"
            reasoning "hm"
            text "Look."
            call get_weather {"city":"42","days":42}
        "#]],
    );
}

#[test]
fn lfm2() {
    check(
        "lfm2",
        expect![[r#"
            call get_weather {"city":"it's \"x\"","days":2}
            call add {"numbers":[1,2.5],"options":{"a":null}}
            call add {}
            text "Looking."
        "#]],
    );
}

#[test]
fn llama_3() {
    check(
        "llama-3",
        expect![[r#"
            call get_weather {"city":"Bern"}
            call add {}
        "#]],
    );
}

#[test]
fn llama_4() {
    check(
        "llama-4",
        expect![[r#"
        call get_weather {"city":"Bern","exact":true}
        call add {"numbers":[]}
    "#]],
    );
}

#[test]
fn longcat() {
    check(
        "longcat",
        expect![[r#"
            call get_weather {"city":"Bern"}
        "#]],
    );
}

#[test]
fn minicpm_5() {
    check(
        "minicpm-5",
        expect![[r#"
            call get_weather {"city":"a </param> b","days":3}
            call add {}
        "#]],
    );
}

#[test]
fn minimax_m2() {
    check(
        "minimax-m2",
        expect![[r#"
            reasoning "hm"
            text "Look."
            call get_weather {"city":"Bern","exact":false}
            call add {}
            reasoning "more"
            text "Done."
        "#]],
    );
}

#[test]
fn minimax_m3() {
    check(
        "minimax-m3",
        expect![[r#"
            call add {"numbers":[1,2.5],"options":{"a":"x"}}
        "#]],
    );
}

#[test]
fn mistral() {
    check(
        "mistral",
        expect![[r#"
            reasoning "hm"
            text "Look."
            call get_weather (abc123) {"city":"Bern"}
            call add {}
            call add {"numbers":[1]}
        "#]],
    );
}

#[test]
fn muse() {
    check(
        "muse",
        expect![[r#"
            reasoning "hm"
            call get_weather {"city":"Bern"}
            text "Done."
        "#]],
    );
}

#[test]
fn nemotron() {
    check(
        "nemotron",
        expect![[r#"
            call get_weather {"city":"Bern"}
            call add {}
        "#]],
    );
}

#[test]
fn olmo_3() {
    check(
        "olmo-3",
        expect![[r#"
            text "Look."
            call get_weather {"city":"Bern"}
            call add {"numbers":[1,2]}
        "#]],
    );
}

#[test]
fn phi_4() {
    check(
        "phi-4",
        expect![[r#"
            call get_weather {"city":"Bern"}
        "#]],
    );
}

#[test]
fn seed_oss() {
    check(
        "seed-oss",
        expect![[r#"
            reasoning "hm"
            call get_weather {"city":"Bern\n","exact":true}
            call add {"options":{"round":true,"n":null}}
        "#]],
    );
}

#[test]
fn solar() {
    check(
        "solar",
        expect![[r#"
            reasoning "hm"
            call get_weather (ab12) {"city":"Bern"}
            call add (cd34) {}
        "#]],
    );
}

#[test]
fn step_3() {
    check(
        "step-3",
        expect![[r#"
            text "Look."
            call get_weather {"city":"Bern"}
            call add {}
        "#]],
    );
}

#[test]
fn tool_call_text() {
    check(
        "tool-call-text",
        expect![[r#"
            text "Look."
            call get_weather {"city":"Bern"}
            call add {"numbers":[1]}
            text "Not TOOL_CALL: {\"name\": \"add\"}"
        "#]],
    );
}

#[test]
fn tool_calls() {
    check(
        "tool-calls",
        expect![[r#"
            call get_weather {"city":"Bern"}
            call add {}
            call add {}
        "#]],
    );
}

#[test]
fn xlam() {
    check(
        "xlam",
        expect![[r#"
            call get_weather {"city":"Bern"}
            call add {}
        "#]],
    );
}
