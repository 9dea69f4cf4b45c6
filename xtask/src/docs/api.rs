//! docs/api.md and the pages beside it: every route, and how every field is handled, from the tables in `crates/server`.
//!
//! Invariant: reads the tables as text, so a row must be a call with literals: `honoured("name", "note")`. Any other
//! row is an error.

use crate::tidy::Tree;
use crate::tidy::source::Source;

const WIRE: &str = "crates/server/src/wire/";
/// They have a page of their own.
const OLLAMA: &str = "crates/server/src/wire/ollama/";
const ROUTES: &str = "crates/server/src/routes/table.rs";
const HANDLINGS: &[(&str, &str)] =
    &[("honoured", "yes"), ("harmless", "accepted, no effect"), ("refused", "400")];

const HEAD: &str = "\
# The HTTP API

<!-- Made from the tables in crates/server: `cargo xtask docs` writes it. -->

[Anthropic's fields](api-messages.md), those of [the Responses API](api-responses.md) and those of [vectors, ranking, labels and
decisions](api-pooling.md) have pages of their own.

A field is honoured, or accepted because it cannot change the answer, or refused with its name and the reason. A field
that is not listed is refused as well; on `/v1/messages`, `/v1/responses`, `/v1/systemone` and below `/api` it is accepted,
counted in `omnibus_unknown_fields_total` and logged, because their clients send new ones at any time. `null` counts as absent.

What differs from the originals:

- On `/v1/messages`, `/v1/responses` and `/v1/systemone`, any model name is served by the loaded model, unless
  `--strict-model-names` is set.
- Models that read text only get a note in the place of a file and of an image in a tool's result; other images are refused
  by name. [Media](media.md) has what may be sent to the others.
- `signature` of thinking and `encrypted_content` of reasoning hold the text itself, encoded and not encrypted, so that
  reasoning which is not displayed comes back with the history.
- Stop strings and `stop_sequences` end the answer's text; reasoning and the arguments of calls may hold them.
- A call whose JSON was cut by the token limit or is malformed stays as it is in chat completions and Responses, where
  its item is `incomplete`; in a full Anthropic message its input is empty.
- Every path that begins with `/v1` answers without it, too.
- Below `/api`, bodies are JSON whatever their content type says, and errors are `{\"error\": TEXT}`;
  [its fields](api-ollama.md) have a page of their own.
- `GET /v1/models` has Anthropic's shape for requests with the header `anthropic-version`; others get OpenAI's `data` and
  TypeSafe's `models`.
- Bodies may be compressed: `Content-Encoding: zstd`.
- Errors of `/v1/systemone` are TypeSafe's, and an invalid request is a 422. [Decisions](decisions-api.md) have a page of their own.
- The events of a response with `background` and `stream` are kept in memory, for the last 256 of them: `?stream=true` and
  `starting_after` read them again.
- `GET /v1/responses` is a WebSocket: each message is `response.create` with the fields of a request, and its events are the
  messages back, one response at a time. The last response of a connection can be continued on it though `store` is false,
  until a request that continues it fails. `stream_id` is repeated in the events of its response. A message may have what
  a body may (`--max-body-size`), and waits for room in memory as bodies do; a longer one ends the connection with code 1009. While
  a response runs, a message of more than 64 KiB stays in the connection with all that follows it, pings too.
- `POST /v1/responses/compact` returns the user's messages and an item of type `compaction`, whose `encrypted_content` is a
  summary that the model wrote. Sent back in `input`, it stands for the conversation. It is encoded and not encrypted.
- `GET /v1/status/stream` sends what `/v1/status` has each second, the unfinished requests, and for operators each step as it
  happens ([its events](page.md#live-data)).
- Conversations share the memory of stored responses, and `--state-dir`. One has at most 4096 items and 32 MiB.

## Routes

| route | methods |
| --- | --- |
";

/// Folders of wire modules with a page of their own.
const OWN_PAGES: &[&str] = &[MESSAGES, RESPONSES, OLLAMA, POOLING, DECISIONS];
const POOLING: &str = "crates/server/src/wire/pooling/";
const DECISIONS: &str = "crates/server/src/wire/decisions/";
const MESSAGES: &str = "crates/server/src/wire/anthropic/";
const RESPONSES: &str = "crates/server/src/wire/responses/";

const MESSAGES_HEAD: &str = "\
# Fields of Anthropic's API

<!-- Made from the tables in crates/server: `cargo xtask docs` writes it. -->

[The HTTP API](api.md) says how to read these tables.
";

const RESPONSES_HEAD: &str = "\
# Fields of the Responses API

<!-- Made from the tables in crates/server: `cargo xtask docs` writes it. -->

[The HTTP API](api.md) says how to read these tables.
";

const POOLING_HEAD: &str = "\
# Fields of vectors, ranking, labels and decisions

<!-- Made from the tables in crates/server: `cargo xtask docs` writes it. -->

[The HTTP API](api.md) says how to read these tables; [vectors, ranking and labels](embeddings.md) and [decisions](decisions-api.md) say
what the routes are for.
";

const OLLAMA_HEAD: &str = "\
# Fields of Ollama's API

<!-- Made from the tables in crates/server: `cargo xtask docs` writes it. -->

[The HTTP API](api.md) has the routes. A field that is not listed is accepted, counted and logged, as Ollama accepts it; one that is
listed must have its type. [Clients](clients.md) has what differs from Ollama.
";

/// The page of the fields of Ollama's API.
pub fn ollama_page(tree: &Tree) -> Result<String, String> {
    Ok(OLLAMA_HEAD.to_owned() + &sections(tree, |path| path.starts_with(OLLAMA))?)
}

/// The page of texts that become numbers.
pub fn pooling_page(tree: &Tree) -> Result<String, String> {
    let is_here = |path: &str| path.starts_with(POOLING) || path.starts_with(DECISIONS);
    Ok(POOLING_HEAD.to_owned() + &sections(tree, is_here)?)
}

/// The page of Anthropic's API.
pub fn messages_page(tree: &Tree) -> Result<String, String> {
    Ok(MESSAGES_HEAD.to_owned() + &sections(tree, |path| path.starts_with(MESSAGES))?)
}

/// The page of OpenAI's Responses API.
pub fn responses_page(tree: &Tree) -> Result<String, String> {
    Ok(RESPONSES_HEAD.to_owned() + &sections(tree, |path| path.starts_with(RESPONSES))?)
}

/// The page of the routes, and of all other fields.
pub fn page(tree: &Tree) -> Result<String, String> {
    let routes = tree.sources.iter().find(|source| source.path == ROUTES);
    let routes = routes_of(routes.ok_or_else(|| format!("{ROUTES} does not exist"))?)?;
    let is_here = |path: &str| path.starts_with(WIRE) && !OWN_PAGES.iter().any(|own| path.starts_with(own));
    Ok(HEAD.to_owned() + &routes + &sections(tree, is_here)?)
}

/// The tables of the files that a page has.
fn sections(tree: &Tree, is_here: impl Fn(&str) -> bool) -> Result<String, String> {
    let mut text = String::new();
    for source in tree.sources.iter().filter(|source| is_here(&source.path)) {
        let tables = tables_of(source)?;
        if tables.is_empty() {
            continue;
        }
        text += &format!("\n## {}\n", title(source));
        for table in tables {
            text += &format!(
                "\n{}\n\n| field | honoured | what it does, or why not |\n| --- | --- | --- |\n",
                table.about
            );
            text.extend(table.rows);
        }
    }
    Ok(text)
}

/// Rows of `METHOD("PATH", …)`, which are neighbours if their paths are equal.
fn routes_of(source: &Source) -> Result<String, String> {
    const METHODS: &[&str] = &["get", "post", "put", "patch", "delete"];
    let text = source.text.join("\n");
    let mut routes: Vec<(String, Vec<String>)> = Vec::new();
    for (at, _) in text.match_indices('(') {
        let word = text[..at].rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        let path = literal(&text[at + 1..]).map(|(path, _)| path).filter(|path| path.starts_with('/'));
        let Some(path) = path.filter(|_| METHODS.contains(&word)) else { continue };
        match routes.last_mut() {
            Some((last, methods)) if *last == path => methods.push(word.to_uppercase()),
            _ => routes.push((path, vec![word.to_uppercase()])),
        }
    }
    let rows = routes.iter().map(|(path, methods)| format!("| `{path}` | {} |\n", methods.join(", ")));
    if routes.is_empty() { Err(format!("{ROUTES} has no routes")) } else { Ok(rows.collect()) }
}

struct FieldTable {
    about: String,
    rows: Vec<String>,
}

/// Every `const NAME: &[Field]` of a file.
fn tables_of(source: &Source) -> Result<Vec<FieldTable>, String> {
    let begins = |line: &String| line.contains("const ") && line.contains(": &[Field] =");
    let starts: Vec<usize> =
        source.text.iter().enumerate().filter(|(_, line)| begins(line)).map(|(index, _)| index).collect();
    starts.into_iter().map(|start| table_at(source, start)).collect()
}

fn table_at(source: &Source, start: usize) -> Result<FieldTable, String> {
    let docs = source.text[..start].iter().rev().map_while(|line| line.trim().strip_prefix("/// "));
    let mut docs: Vec<&str> = docs.collect();
    docs.reverse();
    let rest = source.text[start..].join("\n");
    let value = rest.split_once(": &[Field] =").map_or("", |(_, value)| value);
    let body =
        value.split_once("&[").and_then(|(_, body)| body.split_once("];")).map_or("", |(body, _)| body);
    let mut rows = Vec::new();
    let mut left = body.trim_start();
    while !left.is_empty() {
        let (row, after) = row(left).ok_or_else(|| {
            let line = left.lines().next().unwrap_or_default();
            format!("{}: a row of a table of fields is not `honoured(\"…\", \"…\")`: {line}", source.path)
        })?;
        rows.push(row);
        left = after.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
    }
    if rows.is_empty() {
        return Err(format!("{}:{}: a table of fields has no rows", source.path, start + 1));
    }
    Ok(FieldTable { about: plain(&docs.join(" ")), rows })
}

/// One row, and the text after it.
fn row(text: &str) -> Option<(String, &str)> {
    let (handling, says) = HANDLINGS
        .iter()
        .find(|(word, _)| text.strip_prefix(word).is_some_and(|rest| rest.starts_with('(')))?;
    let (name, rest) = literal(&text[handling.len() + 1..])?;
    let (note, rest) = literal(rest.trim_start().strip_prefix(',')?)?;
    let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',').strip_prefix(')')?;
    Some((format!("| `{name}` | {says} | {} |\n", note.replace('|', "\\|")), rest))
}

/// A string literal at the beginning, and the text after it.
fn literal(text: &str) -> Option<(String, &str)> {
    let inside = text.trim_start().strip_prefix('"')?;
    let (mut value, mut chars) = (String::new(), inside.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &inside[at + 1..])),
            '\\' => match chars.next()?.1 {
                escaped @ ('"' | '\\') => value.push(escaped),
                // An escaped line break: neither the break nor the indent is part of the text.
                '\n' => {
                    let rest = chars.as_str().trim_start();
                    let skipped = chars.as_str().len() - rest.len();
                    (0..skipped).for_each(|_| _ = chars.next());
                }
                _ => return None,
            },
            c => value.push(c),
        }
    }
    None
}

/// The first sentence of a file.
fn title(source: &Source) -> String {
    let lines = source.text.iter().map_while(|line| line.strip_prefix("//! "));
    let text = lines.collect::<Vec<_>>().join(" ");
    plain(text.split(". ").next().unwrap_or_default()).trim_end_matches('.').to_owned()
}

/// Rustdoc links as code.
fn plain(doc: &str) -> String {
    doc.replace("[`", "`").replace("`]", "`")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOD: &str = "const ROUTES: &[Operation] = &[\n    get(\"/a\", \"A.\", || routing::get(x)),\n    post(\n        \"/a\",\n        \"B.\",\n        Body::None,\n        || routing::post(y),\n    ),\n    delete(\"/b/{id}\", \"C.\", || routing::delete(z)),\n];\n";

    fn made(wire: &str) -> Result<String, String> {
        page(&Tree::of(&[(ROUTES, MOD), ("crates/server/src/wire/chat.rs", wire)]))
    }

    #[test]
    fn field_tables_are_rendered() {
        let page = made(
            "//! `POST /a`, as documented. More.\n/// What happens, besides [`B`].\npub const FIELDS: &[Field] = &[\n    \
             honoured(\"x\", \"a \\\"b\\\" | c\"),\n    refused(\n        \"y\",\n        \"never \\\n         mind\",\n    ),\n];\n",
        );
        assert_eq!(
            page.unwrap().strip_prefix(HEAD),
            Some(
                "| `/a` | GET, POST |\n| `/b/{id}` | DELETE |\n\n## `POST /a`, as documented\n\nWhat happens, besides `B`.\n\n\
                 | field | honoured | what it does, or why not |\n| --- | --- | --- |\n\
                 | `x` | yes | a \"b\" \\| c |\n| `y` | 400 | never mind |\n"
            )
        );
    }

    #[test]
    fn an_api_with_a_folder_has_a_page_of_its_own() {
        let wire = "//! The items.\n/// B.\nconst NAMES: &[Field] = &[harmless(\"x\", \"y\")];\n";
        let tree = Tree::of(&[(ROUTES, MOD), ("crates/server/src/wire/responses/items.rs", wire)]);
        assert!(responses_page(&tree).unwrap().contains("## The items"));
        assert!(!page(&tree).unwrap().contains("## The items"));
        assert_eq!(messages_page(&tree).unwrap(), MESSAGES_HEAD);
    }

    #[test]
    fn a_table_may_begin_on_the_next_line() {
        let page = made("//! A.\n/// B.\nconst NAMES: &[Field] =\n    &[harmless(\"x\", \"y\")];\n").unwrap();
        assert!(page.ends_with("| `x` | accepted, no effect | y |\n"), "{page}");
    }

    #[test]
    fn a_row_that_cannot_be_read_is_an_error() {
        let error = made("//! A.\npub const FIELDS: &[Field] = &[honoured(NAME, \"note\")];\n").unwrap_err();
        assert!(error.contains("honoured(NAME"), "{error}");
        let error = made("//! A.\npub const FIELDS: &[Field] = other();\n").unwrap_err();
        assert!(error.contains("no rows"), "{error}");
    }
}
