//! Outputs with reasoning in each format, written by hand, and their deltas under every split.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::deltas::{Setup, lines};
use omnibus_text::{OutputParser, REASONING_FORMATS, ReasoningFormat};

/// Outputs by format, each with the reasoning "Two\n\nand 2." and the text "It is 4.".
const OUTPUTS: &[(&str, &str)] = &[
    ("apertus", "<|inner_prefix|>Two\n\nand 2.<|inner_suffix|>It is 4."),
    (
        "apriel",
        "Here are my reasoning steps:\nTwo\n\nand 2.\n[BEGIN FINAL RESPONSE]\nIt is 4.\n[END FINAL RESPONSE]",
    ),
    ("apriel", "<thinking>Two\n\nand 2.</thinking>It is 4."),
    (
        "command-a",
        "<|START_THINKING|>Two\n\nand 2.<|END_THINKING|><|START_RESPONSE|>It is 4.<|END_RESPONSE|>",
    ),
    ("command-a", "<|START_THINKING|>Two\n\nand 2.<|END_THINKING|><|START_TEXT|>It is 4.<|END_TEXT|>"),
    ("ernie", "<think>\nTwo\n\nand 2.\n</think>\n\n<response>\nIt is 4.\n</response>\n"),
    ("gemma-4", "<|channel>thought\nTwo\n\nand 2.\n<channel|>It is 4."),
    ("granite", "Here is my thought process:\nTwo\n\nand 2.\n\nHere is my response:\nIt is 4."),
    (
        "harmony",
        "<|channel|>analysis<|message|>Two\n\nand 2.<|end|><|start|>assistant<|channel|>final<|message|>It is 4.",
    ),
    (
        "harmony",
        "<|channel|>analysis<|message|>Two\n\nand 2.<|start|>assistant<|channel|>final<|message|>It is 4.<|return|>",
    ),
    ("hunyuan", "<think>\nTwo\n\nand 2.\n</think>\n<answer>\nIt is 4.\n</answer>"),
    ("hunyuan-3", "<think:opensource>Two\n\nand 2.</think:opensource>It is 4."),
    (
        "kimi-k3",
        "<|open|>think<|sep|>Two\n\nand 2.<|close|>think<|sep|><|open|>response<|sep|>It is 4.<|close|>response<|sep|><|close|>message<|sep|>",
    ),
    ("minimax-m3", "<mm:think>Two\n\nand 2.</mm:think>It is 4."),
    ("mistral", "[THINK]Two\n\nand 2.[/THINK]It is 4."),
    ("muse", " to=self<|message|>Two\n\nand 2.<|eom|><|start|>assistant to=user<|message|>It is 4.<|eot|>"),
    ("seed-oss", "<seed:think>Two\n\nand 2.</seed:think>It is 4."),
    ("solar", "<|think|>Two\n\nand 2.<|end|><|begin|>assistant<|content|>It is 4.<|end|>"),
    ("think", "<think>\nTwo\n\nand 2.\n</think>\n\nIt is 4."),
];

#[test]
fn reasoning_and_text_of_each_format_are_separated() {
    for (name, output) in OUTPUTS {
        let setup = Setup { prompt: "", reasoning: ReasoningFormat::named(name), tools: None };
        let found = lines(&setup.parse_every_split(output));
        assert_eq!(found.trim_end(), "reasoning \"Two\\n\\nand 2.\"\ntext \"It is 4.\"", "{name}");
    }
    for format in REASONING_FORMATS {
        assert!(OUTPUTS.iter().any(|(name, _)| *name == format.name), "{} has no output", format.name);
        assert_eq!(ReasoningFormat::named(format.name).unwrap().models, format.models, "names are unique");
    }
}

#[test]
fn a_prompt_may_hold_the_opening() {
    for format in REASONING_FORMATS {
        for opening in format.prompt_ends {
            let prompt = format!("<assistant>{opening}\n");
            assert!(format.begins_inside(&prompt), "{}", format.name);
            let setup = Setup { prompt: &prompt, reasoning: Some(format), tools: None };
            let found = lines(&setup.parse_every_split(&format!("Two\n{}", format.closing)));
            assert_eq!(found, "reasoning \"Two\"\n", "{}", format.name);
        }
    }
}

#[test]
fn the_parser_knows_where_reasoning_ends() {
    let format = ReasoningFormat::named("think").unwrap();
    let mut parser = OutputParser::new("<think>", Some(format), None);
    let mut inside = vec![parser.in_reasoning()];
    for piece in ["Two", "</thi", "nk>", "\n4", "<think>"] {
        parser.push(piece);
        inside.push(parser.in_reasoning());
    }
    assert_eq!(inside, [true, true, true, false, false, false]);
}

#[test]
fn a_parser_moves_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<OutputParser>();
}
