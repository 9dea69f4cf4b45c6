//! Chat templates: what Jinja means, what a conversation may set, and what a hostile template may not do.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::path::{Path, PathBuf};

use expect_test::{Expect, expect};
use jiff::civil::{DateTime, date};
use omnibus_text::{ChatTemplate, Error, GenerationPrompt, Limits, RenderInput, TemplateName};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn now() -> DateTime {
    date(2026, 3, 9).at(7, 5, 2, 0)
}

fn render_with(template: &ChatTemplate, kwargs: &Map<String, Value>) -> Result<String, Error> {
    let mut kwargs = kwargs.clone();
    let messages = kwargs.remove("messages").unwrap_or(json!([{"role": "user", "content": "Hi"}]));
    template.render(&RenderInput {
        messages: &messages,
        tools: None,
        documents: None,
        generation_prompt: GenerationPrompt::Add,
        special_tokens: &[("bos_token".to_owned(), "<s>".to_owned())],
        kwargs: &kwargs,
        now: now(),
    })
}

fn render(source: &str) -> Result<String, Error> {
    render_with(&ChatTemplate::new(source)?, &Map::new())
}

fn check(source: &str, expected: Expect) {
    expected.assert_eq(&render(source).unwrap_or_else(|error| format!("error: {error}")));
}

/// The expected texts are Python's: see `jinja/reference.py`.
#[test]
fn jinja_means_what_python_says() {
    let reference: Value = serde_json::from_str(include_str!("jinja/cases.json")).unwrap();
    let context = reference["context"].as_object().unwrap();
    let mut wrong = Vec::new();
    let cases = reference["cases"].as_array().unwrap();
    for case in cases {
        let source = case[0].as_str().unwrap();
        let rendered = ChatTemplate::new(source).and_then(|template| render_with(&template, context));
        match (&case[1], rendered) {
            (Value::String(wanted), Ok(text)) if *wanted == text => {}
            (Value::Object(_), Err(_)) => {}
            (wanted, rendered) => wrong.push(format!("{source:?}: {rendered:?} is not {wanted}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn a_conversation_is_written_turn_by_turn() {
    check(
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<bot>{% endif %}",
        expect!["<s><user>Hi<bot>"],
    );
}

#[test]
fn a_refusal_is_the_templates_own_words() {
    let error = render("{{ raise_exception('Roles must alternate!') }}").unwrap_err();
    assert_eq!(error, Error::TemplateRaised { message: "Roles must alternate!".to_owned() });
    assert_eq!(error.to_string(), "Roles must alternate!");
}

#[test]
fn errors_say_where() {
    check(
        "a\n{{ messages.x.y }}",
        expect!["error: the chat template failed in line 2: 'list object' has no attribute 'x'"],
    );
    check(
        "a\n\n{% for %}",
        expect!["error: chat template 'default', line 3: expected a name, found the end of the tag"],
    );
    check(
        "{% include 'secrets' %}",
        expect![
            "error: chat template 'default', line 1: 'include' needs another file, and a chat template has only itself"
        ],
    );
    check(
        "{{ x | shout }}",
        expect!["error: the chat template failed in line 1: No filter named 'shout' found."],
    );
    check(
        "{{ messages.append(1) }}",
        expect![
            "error: the chat template failed in line 1: access to attribute 'append' of 'list' object is unsafe."
        ],
    );
}

#[test]
fn kwargs_cannot_replace_what_the_server_sets() {
    let kwargs = json!({
        "bos_token": "!", "eos_token": "!", "tools": "!", "documents": "!", "add_generation_prompt": "!",
        "raise_exception": "!", "enable_thinking": false,
    });
    let template = ChatTemplate::new(
        "{{ bos_token }}{{ eos_token }}{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ raise_exception is callable }}{{ enable_thinking }}",
    );
    expect!["<s>NoneNoneTrueTrueFalse"]
        .assert_eq(&render_with(&template.unwrap(), kwargs.as_object().unwrap()).unwrap());
}

#[test]
fn the_date_is_the_callers() {
    check("{{ strftime_now('%d %b %Y') }}", expect!["09 Mar 2026"]);
    check(
        "{{ strftime_now('%Q') }}",
        expect![
            "error: the chat template failed in line 1: strftime_now: strftime formatting failed: %Q failed: requires IANA time zone identifier or time zone offset, but neither were present"
        ],
    );
}

/// A folder of a test, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Folder {
        let path = std::env::temp_dir().join(format!("omnibus-templates-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("additional_chat_templates")).unwrap();
        for (file, text) in files {
            std::fs::write(path.join(file), text).unwrap();
        }
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn in_folder(name: &str, files: &[(&str, &str)]) -> Result<Option<ChatTemplate>, Error> {
    ChatTemplate::from_dir(&Folder::new(name, files).0)
}

fn names(template: &ChatTemplate) -> Vec<String> {
    template.names().map(ToString::to_string).collect()
}

#[test]
fn a_template_file_wins_over_the_config() {
    let files =
        [("chat_template.jinja", "file"), ("tokenizer_config.json", r#"{"chat_template": "config"}"#)];
    let template = in_folder("file", &files).unwrap().unwrap();
    assert_eq!(template.source(false), "file");
    let template = in_folder("config", &files[1..]).unwrap().unwrap();
    assert_eq!(template.source(false), "config");
}

#[test]
fn a_model_without_a_template_has_none() {
    assert!(in_folder("without", &[("tokenizer_config.json", "{}")]).unwrap().is_none());
}

#[test]
fn tools_choose_the_template_for_tools() {
    let config = r#"{"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "rag"}]}"#;
    let template = in_folder("named", &[("tokenizer_config.json", config)]).unwrap().unwrap();
    assert_eq!(names(&template), ["default", "tool_use", "rag"]);
    assert_eq!((template.source(false), template.source(true)), ("plain", "tools"));
    let (messages, kwargs) = (json!([]), Map::new());
    let input = RenderInput {
        messages: &messages,
        tools: None,
        documents: None,
        generation_prompt: GenerationPrompt::Omit,
        special_tokens: &[],
        kwargs: &kwargs,
        now: now(),
    };
    assert_eq!(template.render(&input).unwrap(), "plain");
    let tools = json!([]);
    assert_eq!(template.render(&RenderInput { tools: Some(&tools), ..input.clone() }).unwrap(), "tools");
    assert_eq!(template.render_named(&TemplateName::from("rag"), &input).unwrap().unwrap(), "rag");
    assert!(template.render_named(&TemplateName::from("other"), &input).is_none());
}

#[test]
fn additional_templates_have_their_files_names() {
    let files = [("chat_template.jinja", "plain"), ("additional_chat_templates/tool_use.jinja", "tools")];
    let template = in_folder("additional", &files).unwrap().unwrap();
    assert_eq!(names(&template), ["default", "tool_use"]);
}

#[test]
fn a_broken_config_is_named() {
    let error = in_folder("broken", &[("tokenizer_config.json", r#"{"chat_template": 3}"#)]).unwrap_err();
    assert!(matches!(&error, Error::File { path, .. } if path.ends_with("tokenizer_config.json")), "{error}");
}

// What a hostile template may not do. Each would take minutes or gigabytes in Python.

#[derive(Debug, PartialEq)]
enum Stop {
    Limit,
    Failed,
    Syntax,
}

fn check_hostile(source: &str, stop: Stop) {
    let start = std::time::Instant::now();
    // A tenth of the default, for the sake of the test's time.
    let limits = Limits { steps: 2_000_000, ..Limits::default() };
    let template = ChatTemplate::new(source).map(|template| template.with_limits(limits));
    let found = match template.and_then(|template| render_with(&template, &Map::new())) {
        Ok(text) => panic!("rendered {} bytes: {source:.100}", text.len()),
        Err(Error::TemplateLimit { .. }) => Stop::Limit,
        Err(Error::TemplateFailed { .. }) => Stop::Failed,
        Err(Error::TemplateSyntax { .. }) => Stop::Syntax,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(found, stop, "{source:.200}");
    let seconds = start.elapsed().as_secs();
    assert!(seconds < 10, "{seconds} s: {source:.200}");
}

#[test]
fn loops_end() {
    let nested = |depth: usize, body: &str| {
        "{% for i in range(99999) %}".repeat(depth) + body + &"{% endfor %}".repeat(depth)
    };
    check_hostile(&nested(3, ""), Stop::Limit);
    check_hostile(&nested(2, "x"), Stop::Limit);
    check_hostile(&nested(2, "{% set x = messages == messages %}"), Stop::Limit);
    check_hostile(&nested(2, "{% if [1] in [[2], [3]] %}{% endif %}"), Stop::Limit);
    check_hostile("{% for i in range(100000000) %}{% endfor %}", Stop::Failed);
}

#[test]
fn cheap_looking_steps_on_large_values_are_paid_for() {
    let with_long = |step: &str| {
        format!(
            "{{% set a = 'ab' * 9000000 %}}{{% for i in range(99999) %}}{{% set b = {step} %}}{{% endfor %}}"
        )
    };
    for step in [
        "a | length",
        "a[5]",
        "a[-1]",
        "a[5:7]",
        "a[::2]",
        "a == a ~ ''",
        "a < a ~ ''",
        "'x' in a",
        "a.find('x')",
        "a.count('b')",
        "a.strip()",
        "a | trim",
        "a | upper",
        "a.split('b')",
        "a.replace('x', 'y')",
        "a | int",
        "a | float",
        "a.isalpha()",
        "a | wordcount",
        "a is lower",
        "a.startswith('b')",
        "a.title()",
        "a | e",
        "a | tojson",
        "'%s' % a",
        "a % ()",
        "'{}'.format(a)",
        "a.format()",
        "a.partition('x')",
        "a | truncate",
        "a | indent",
        "a.splitlines()",
        "a | list",
        "a | center(1)",
        "a.removeprefix('x')",
        "a | striptags",
        "a | urlencode",
        "a | capitalize",
        "a.zfill(3)",
        "a.expandtabs()",
        "a | replace('ab', '')",
        "a.strip('ab')",
    ] {
        check_hostile(&with_long(step), Stop::Limit);
    }
    let with_list = |step: &str| {
        format!(
            "{{% set a = range(99999) | list %}}{{% for i in range(99999) %}}{{% set b = {step} %}}{{% endfor %}}"
        )
    };
    for step in [
        "a + a",
        "a == a[:]",
        "-1 in a",
        "a[::-1]",
        "a | sort",
        "a | join",
        "a | tojson",
        "a | string",
        "a | reverse",
        "a | max",
        "a | sum",
        "a | unique",
        "a | map('string')",
        "a | select",
        "a | batch(1)",
        "a | slice(9999)",
        "a.index(99998)",
        "a.count(1)",
        "a < a[:]",
        "a * 2",
        "dict(a=a) == dict(a=a[:])",
    ] {
        check_hostile(&with_list(step), Stop::Limit);
    }
}

#[test]
fn values_stay_small() {
    let doubled = |start: &str, step: &str| {
        format!(
            "{{% set ns = namespace(x={start}) %}}{{% for i in range(99999) %}}{{% set ns.x = {step} %}}{{% endfor %}}"
        )
    };
    check_hostile(&doubled("'a'", "ns.x ~ ns.x"), Stop::Limit);
    check_hostile(&doubled("'a'", "ns.x + ns.x"), Stop::Limit);
    check_hostile(&doubled("'a'", "ns.x * 1000"), Stop::Limit);
    check_hostile(&doubled("'a'", "ns.x.replace('a', 'aaa')"), Stop::Limit);
    check_hostile(&doubled("'a'", "ns.x | replace('', 'aaa')"), Stop::Limit);
    check_hostile(&doubled("'a'", "[ns.x, ns.x] | join"), Stop::Limit);
    check_hostile(&doubled("'a'", "ns.x.join([ns.x, ns.x, ns.x])"), Stop::Limit);
    check_hostile(&doubled("'a'", "'{0}{0}'.format(ns.x)"), Stop::Limit);
    check_hostile(&doubled("'a'", "'%s%s' % (ns.x, ns.x)"), Stop::Limit);
    check_hostile(&doubled("'a'", "(ns.x, ns.x) | string"), Stop::Limit);
    check_hostile(&doubled("'\"'", "ns.x | tojson"), Stop::Limit);
    check_hostile(&doubled("'<'", "ns.x | forceescape"), Stop::Limit);
    check_hostile(&doubled("[1]", "ns.x + ns.x"), Stop::Limit);
    check_hostile(&doubled("[1]", "ns.x * 9"), Stop::Limit);
    check_hostile(&doubled("[1]", "[ns.x, ns.x]"), Stop::Limit);
    check_hostile(&doubled("1", "ns.x * 1000"), Stop::Limit);
    check_hostile("{{ 'a' * 99999999999999999999 }}", Stop::Limit);
    check_hostile("{{ [1] * 99999999999999999999 }}", Stop::Limit);
    check_hostile("{{ 'a'.center(99999999999) }}", Stop::Limit);
    check_hostile("{{ 'a' | center(99999999999) }}", Stop::Limit);
    check_hostile("{{ 'a'.zfill(99999999999) }}", Stop::Limit);
    check_hostile("{{ 'a\\tb'.expandtabs(99999999999) }}", Stop::Limit);
    check_hostile("{{ 'a\nb' | indent(99999999999) }}", Stop::Limit);
    check_hostile("{{ '%99999999999d' % 1 }}", Stop::Limit);
    check_hostile("{{ '{:99999999999}'.format(1) }}", Stop::Limit);
    check_hostile("{{ '{:.99999999999f}'.format(1.5) }}", Stop::Limit);
    check_hostile("{{ [1] | tojson(indent=99999999999) }}", Stop::Failed);
    check_hostile("{{ [1] | batch(99999999999, 0) | list }}", Stop::Limit);
    check_hostile("{{ [1] | slice(99999999999) | list }}", Stop::Limit);
    check_hostile("{{ 9 ** 9 ** 9 }}", Stop::Limit);
    check_hostile("{{ strftime_now('%999Y' * 500) }}", Stop::Limit);
}

#[test]
fn output_is_bounded() {
    check_hostile(
        "{% for i in range(99999) %}{% for j in range(99999) %}0123456789012345{% endfor %}{% endfor %}",
        Stop::Limit,
    );
    check_hostile("{% set x = 'a' * 1000000 %}{% for i in range(99999) %}{{ x }}{% endfor %}", Stop::Limit);
    check_hostile(
        "{% set ns = namespace(x='a') %}{% for i in range(99999) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
        Stop::Limit,
    );
    check_hostile(
        "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(x='a') %}{% for i in range(99999) %}{% set ns.x = m(ns.x) %}{% endfor %}",
        Stop::Limit,
    );
}

#[test]
fn the_stack_is_bounded() {
    check_hostile("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", Stop::Limit);
    check_hostile(
        "{% macro f(x) %}{% if true %}{% for i in [1] %}{{ [x(x)] | map('string') | join }}{% endfor %}{% endif %}{% endmacro %}{{ f(f) }}",
        Stop::Limit,
    );
    check_hostile(
        "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
        Stop::Limit,
    );
    check_hostile("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", Stop::Limit);
    check_hostile(&format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000)), Stop::Syntax);
    check_hostile(&format!("{{{{ {}1{} }}}}", "[".repeat(100_000), "]".repeat(100_000)), Stop::Syntax);
    check_hostile(&format!("{{{{ {}1 }}}}", "not ".repeat(100_000)), Stop::Syntax);
    check_hostile(&format!("{{{{ {}1 }}}}", "-".repeat(100_000)), Stop::Syntax);
    check_hostile(&format!("{{{{ {}1 }}}}", "1 if 1 else ".repeat(50_000)), Stop::Syntax);
    check_hostile(&"{% if 1 %}".repeat(50_000), Stop::Syntax);
    check_hostile(&"x".repeat(2 << 20), Stop::Syntax);
    let deep = "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = STEP %}{% endfor %}";
    for step in [
        "[ns.x]",
        "{'a': ns.x}",
        "(ns.x,)",
        "dict(a=ns.x).items()",
        "[ns.x] | map('string', 1)",
        "cycler(ns.x)",
    ] {
        let source = deep.replace("STEP", step);
        assert!(render(&source).is_err(), "{source}");
    }
}

#[test]
fn long_chains_are_no_nests() {
    let chain = |link: &str| format!("{{{{ 1{} }}}}", link.repeat(20_000));
    for link in [" + 1", " ~ 1", " or 1", " and 1", " == 1", " * 1", "| string | int", " ** 1"] {
        assert!(render(&chain(link)).is_ok(), "{link}");
    }
    let attributes = format!("{{{{ messages{} }}}}", "[0:]".repeat(20_000));
    assert!(render(&attributes).is_ok());
    let branches = format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(20_000));
    assert!(render(&branches).is_ok());
}

#[test]
fn namespaces_in_circles_are_freed_without_recursion() {
    check("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x | length }}", expect!["1"]);
    let chain = "{% set top = namespace(x=1) %}{% for i in range(99999) %}{% set top.x = namespace(y=top.x) %}{% endfor %}ok";
    check(chain, expect!["ok"]);
    let loops = "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% for j in [ns.x] %}{% set ns.x = loop %}{% endfor %}{% endfor %}ok";
    assert!(matches!(render(loops), Err(Error::TemplateLimit { .. })));
}

#[test]
fn a_deep_message_is_refused() {
    let mut messages = Value::Null;
    for _ in 0..100_000 {
        messages = Value::Array(vec![messages]);
    }
    let kwargs = Map::from_iter([("messages".to_owned(), Value::Null)]);
    let template = ChatTemplate::new("{{ messages }}").unwrap();
    let rendered = template.render(&RenderInput {
        messages: &messages,
        tools: None,
        documents: None,
        generation_prompt: GenerationPrompt::Add,
        special_tokens: &[],
        kwargs: &kwargs,
        now: now(),
    });
    assert!(matches!(rendered, Err(Error::TemplateLimit { .. })));
    // Dropping it would exhaust this test's own stack.
    std::mem::forget(messages);
}

#[test]
fn long_conversations_fit_in_the_limits() {
    let message = json!({"role": "user", "content": "word ".repeat(2_000)});
    let messages: Vec<Value> = std::iter::repeat_n(message, 2_000).collect();
    let kwargs = json!({ "messages": messages });
    let template =
        ChatTemplate::new("{% for m in messages %}{{ m.content | trim | replace('w', 'W') }}{% endfor %}");
    let text = render_with(&template.unwrap(), kwargs.as_object().unwrap()).unwrap();
    assert_eq!(text.len(), 2_000 * (5 * 2_000 - 1));
}

#[test]
fn limits_can_be_set() {
    let limits = Limits { output_bytes: 100, ..Limits::default() };
    let template = ChatTemplate::new("{{ 'x' * 10000 }}").unwrap().with_limits(limits);
    assert!(matches!(render_with(&template, &Map::new()), Err(Error::TemplateLimit { what: "output", .. })));
}

#[test]
fn no_directory_is_no_template() {
    assert!(ChatTemplate::from_dir(Path::new("/nonexistent")).unwrap().is_none());
}

/// Words that templates are made of, odd numbers and odd characters among them.
const FRAGMENTS: &str = "{% %} {%- -%} {{ }} {{- -}} {# #} for in if else elif endif endfor set endset macro endmacro call endcall \
    filter endfilter with endwith raw endraw break continue recursive generation endgeneration namespace( range( loop loop( \
    ( ) [ ] { } , : = == != < <= not and or is ~ + - * / // % ** | . a b ns ns. messages m( caller() 0 1 2 -1 7 1.5 1e308 \
    170141183460469231731687303715884105727 -170141183460469231731687303715884105727 18446744073709551615 none true 'a' 'é🚌' '' \
    '%s' '%5.2f' '{:>5}' '{0}' 'a b' .split( .replace( .format( .items() .get( .center( .zfill( .find( .strip( .title() [0] [-1] [1:] \
    [::-1] [::2] [-5:170141183460469231731687303715884105727] [::-170141183460469231731687303715884105727] |int |float |round( |abs \
    |length |list |join |tojson |tojson( |sort |first |last |map( |select |batch( |slice( |truncate( |indent( |center( |wordcount \
    |dictsort |groupby( |sum |min |max |unique |default( |string |safe |e |title |reverse |trim defined divisibleby string mapping \
    sameas odd lower strftime_now( '%Y%-d%e' raise_exception( joiner( cycler( dict( .append( *a **b";

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_source_makes_it_panic(picks in prop::collection::vec(any::<prop::sample::Index>(), 0..30), open in 0usize..3) {
        let fragments: Vec<&str> = FRAGMENTS.split_ascii_whitespace().collect();
        let words: Vec<&str> = picks.iter().map(|pick| *pick.get(&fragments)).collect();
        let inside = words.join(" ");
        let source = match open {
            0 => inside,
            1 => format!("{{{{ {inside} }}}}"),
            _ => format!("{{% set a = 'é🚌 x' %}}{{% set b = {{'k': [1, 2]}} %}}{{% set ns = namespace(x=a) %}}{{{{ {} }}}}", words.concat()),
        };
        let limits = Limits { steps: 100_000, ..Limits::default() };
        if let Ok(template) = ChatTemplate::new(&source) {
            let _ = render_with(&template.with_limits(limits), &Map::new());
        }
    }

    #[test]
    fn methods_take_any_arguments(
        value in prop::sample::select(vec!["'a b,é🚌'", "''", "[3, 1]", "{'a': 1}", "(1, 2)", "-7", "2.5", "none", "x"]),
        name in prop::sample::select(FRAGMENTS.split_ascii_whitespace().filter(|word| word.len() > 2 && word.starts_with(['.', '|'])).collect::<Vec<_>>()),
        arguments in prop::collection::vec(prop::sample::select(vec![
            "0", "1", "-1", "5", "170141183460469231731687303715884105727", "-170141183460469231731687303715884105727", "1e308", "'a'", "'é'", "''",
            "none", "true", "[1]", "('a', 'b')", "x", "attribute='a'", "default=1", "width=3", "reverse=true",
        ]), 0..4),
    ) {
        let call = name.trim_end_matches("()").trim_end_matches('(');
        let source = format!("{{{{ {value}{call}({}) }}}}", arguments.join(", "));
        if let Ok(template) = ChatTemplate::new(&source) {
            let _ = render_with(&template, &Map::new());
        }
    }
}
