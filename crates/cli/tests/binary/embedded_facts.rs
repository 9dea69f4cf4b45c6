//! What the embedded model says of the product: its facts name what there is, and so do its answers.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::client::{get, post};
use super::process::{Server, omnibus, text};

/// What the facts name and this version does not have. A line goes with what brings it, or with the next training
/// (training/README.md).
const PROMISED: &[&str] = &[];

/// The names in a table of training/facts.py.
fn table(facts: &str, name: &str) -> Vec<String> {
    let rows = facts.split(&format!("\n{name} = {{")).nth(1).and_then(|rest| rest.split("\n}").next());
    let rows = rows.unwrap_or_else(|| panic!("{name} is a table of the facts"));
    rows.lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.split_once("\": ("))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn facts() -> [Vec<String>; 3] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../training/facts.py");
    let facts = std::fs::read_to_string(path).unwrap();
    ["COMMANDS", "FLAGS", "ROUTES"].map(|name| table(&facts, name))
}

/// Everything that the product has: its commands, its flags, its routes.
fn product(server: &Server) -> BTreeSet<String> {
    let help = |arguments: &[&str]| text(&omnibus(arguments).output().unwrap().stdout);
    let words = |page: &str| -> BTreeSet<String> {
        let is_name = |character: char| character.is_ascii_alphanumeric() || character == '-';
        page.split(|character| !is_name(character)).map(str::to_owned).collect()
    };
    let mut all = BTreeSet::new();
    for command in words(&help(&["--help"])) {
        let page = help(&[&command, "--help"]);
        if !page.contains("Usage: omnibus") {
            continue;
        }
        all.extend(words(&page).into_iter().filter(|word| word.starts_with("--")));
        for inner in ["ls", "serve"] {
            all.extend(words(&help(&[&command, inner, "--help"])));
        }
        all.insert(format!("omnibus {command}"));
    }
    let document = get(server.address, "/openapi.json").json();
    all.extend(document["paths"].as_object().unwrap().keys().cloned());
    all.insert("/v1/stream".to_owned());
    all
}

fn answer(server: &Server, question: &str) -> String {
    let messages = json!([{"role": "user", "content": question}]);
    let body = json!({"messages": messages, "max_tokens": 96, "temperature": 0});
    let reply = post(server.address, "/v1/chat/completions", &body.to_string());
    let reply: Value = reply.json();
    reply["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
}

/// The flags, routes and commands in an answer.
fn named(answer: &str) -> Vec<String> {
    let ends = |character: char| character.is_whitespace() || "`,;:()\"'?".contains(character);
    let words: Vec<&str> = answer.split(ends).map(|word| word.trim_end_matches('.')).collect();
    let alone = words.iter().filter(|word| word.starts_with("--") || word.starts_with("/v1/"));
    // In code only: "omnibus serves" is prose.
    let code = answer.split('`').skip(1).step_by(2);
    let commands = code.filter_map(|code| {
        let command = code.strip_prefix("omnibus ")?.split_whitespace().next()?;
        Some(format!("omnibus {command}"))
    });
    alone.map(|word| (*word).to_owned()).chain(commands).collect()
}

#[test]
fn the_facts_name_what_there_is_or_is_promised() {
    let server = Server::start(&["--log", "error"]);
    let product = product(&server);
    let missing: BTreeSet<String> =
        facts().into_iter().flatten().filter(|name| !product.contains(name)).collect();
    let promised: BTreeSet<String> = PROMISED.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(missing, promised, "what is missing beside what is listed as missing");
}

#[test]
fn answers_about_the_product_name_what_there_is_or_is_promised() {
    let server = Server::start(&["--log", "error"]);
    let product = product(&server);
    let [commands, flags, routes] = facts();
    let asked = [("command", commands), ("flag", flags), ("route", routes)];
    let (mut wrong, mut right) = (Vec::new(), 0);
    for (kind, names) in asked {
        for name in names {
            let answer = answer(&server, &format!("Please explain the {kind} {name}."));
            right += usize::from(answer.to_lowercase().contains(&name));
            let unknown = named(&answer)
                .into_iter()
                .filter(|name| !product.contains(name) && !PROMISED.contains(&name.as_str()));
            wrong.extend(unknown.map(|unknown| format!("{name}: {unknown} in {answer:?}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(right >= 70, "{right} answers say what they were about");
}
