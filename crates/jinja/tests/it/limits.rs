//! What a hostile template may use: steps, memory, output and stack are bounded, and no source makes the crate panic.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use crate::common::{check, render, render_with};
use expect_test::expect;
use omnibus_jinja::{Error, Limits, Template};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

// Each of these would take minutes or gigabytes in Python.

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
    let found = match render_with(source, &Map::new(), &limits) {
        Ok(text) => panic!("rendered {} bytes: {source:.100}", text.len()),
        Err(Error::Limit { .. }) => Stop::Limit,
        Err(Error::Failed { .. }) => Stop::Failed,
        Err(Error::Syntax { .. }) => Stop::Syntax,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(found, stop, "{source:.200}");
    let seconds = start.elapsed().as_secs();
    assert!(seconds < 10, "{seconds} s: {source:.200}");
}

#[test]
fn endless_loops_exceed_the_step_limit() {
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
fn operations_on_large_values_count_as_many_steps() {
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
fn growing_values_exceed_the_memory_limit() {
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
fn long_output_exceeds_a_limit() {
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
fn deep_nesting_exceeds_a_limit() {
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
fn long_operator_chains_do_not_nest() {
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
fn cyclic_namespaces_are_freed_without_recursion() {
    check("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x | length }}", expect!["1"]);
    let chain = "{% set top = namespace(x=1) %}{% for i in range(99999) %}{% set top.x = namespace(y=top.x) %}{% endfor %}ok";
    check(chain, expect!["ok"]);
    let loops = "{% set ns = namespace(x=1) %}{% for i in range(9999) %}{% for j in [ns.x] %}{% set ns.x = loop %}{% endfor %}{% endfor %}ok";
    assert!(matches!(render(loops), Err(Error::Limit { .. })));
}

#[test]
fn a_deeply_nested_input_exceeds_a_limit() {
    let mut messages = Value::Null;
    for _ in 0..100_000 {
        messages = Value::Array(vec![messages]);
    }
    let names = Map::from_iter([("messages".to_owned(), messages)]);
    let rendered = render_with("{{ messages }}", &names, &Limits::default());
    assert!(matches!(rendered, Err(Error::Limit { .. })));
    // Dropping it would exhaust this test's own stack.
    std::mem::forget(names);
}

#[test]
fn a_large_input_raises_the_limits() {
    let message = json!({"role": "user", "content": "word ".repeat(2_000)});
    let messages: Vec<Value> = std::iter::repeat_n(message, 2_000).collect();
    let names = Map::from_iter([("messages".to_owned(), messages.into())]);
    let source = "{% for m in messages %}{{ m.content | trim | replace('w', 'W') }}{% endfor %}";
    let limits = Limits::default().for_input(2_000 * 10_000);
    assert_eq!(render_with(source, &names, &limits).unwrap().len(), 2_000 * (5 * 2_000 - 1));
}

#[test]
fn each_limit_is_the_callers() {
    let stops = |limits: Limits, source: &str, expected: &str| match render_with(source, &Map::new(), &limits)
    {
        Err(Error::Limit { what, .. }) => assert_eq!(what, expected),
        other => panic!("{source}: {other:?}"),
    };
    let limits = Limits::default();
    stops(Limits { output_bytes: 100, ..limits }, "{{ 'x' * 10000 }}", "output");
    stops(Limits { memory_bytes: 5_000, ..limits }, "{{ 'x' * 10000 }}", "memory");
    stops(Limits { steps: 100, ..limits }, "{% for i in range(1000) %}{% endfor %}", "steps");
    stops(Limits { depth: 5, ..limits }, "{{ [[[[[[1]]]]]] }}", "recursion");
    stops(Limits { value_depth: 5, ..limits }, "{{ [[[[[[1]]]]]] }}", "nesting of lists and dicts");
    let parses = |limits: Limits, source: &str| Template::parse(source, &limits).is_ok();
    assert!(!parses(Limits { source_bytes: 10, ..limits }, "longer than ten bytes"));
    assert!(!parses(Limits { source_depth: 5, ..limits }, "{{ [[[[[[1]]]]]] }}"));
}

/// Tokens of templates, with extreme numbers and unusual characters.
const FRAGMENTS: &str = "{% %} {%- -%} {{ }} {{- -}} {# #} for in if else elif endif endfor set endset macro endmacro call endcall \
    filter endfilter with endwith raw endraw break continue recursive generation endgeneration namespace( range( loop loop( \
    ( ) [ ] { } , : = == != < <= not and or is ~ + - * / // % ** | . a b ns ns. messages m( caller() 0 1 2 -1 7 1.5 1e308 \
    170141183460469231731687303715884105727 -170141183460469231731687303715884105727 18446744073709551615 none true 'a' 'é🚌' '' \
    '%s' '%5.2f' '{:>5}' '{0}' 'a b' .split( .replace( .format( .items() .get( .center( .zfill( .find( .strip( .title() [0] [-1] [1:] \
    [::-1] [::2] [-5:170141183460469231731687303715884105727] [::-170141183460469231731687303715884105727] |int |float |round( |abs \
    |length |list |join |tojson |tojson( |sort |first |last |map( |select |batch( |slice( |truncate( |indent( |center( |wordcount \
    |dictsort |groupby( |sum |min |max |unique |default( |string |safe |e |title |reverse |trim defined divisibleby string mapping \
    sameas odd lower strftime_now( '%Y%-d%e' raise_exception( joiner( cycler( dict( .append( *a **b";

/// Random templates of each kind.
fn cases() -> u32 {
    omnibus_testing::environment::variable("OMNIBUS_FUZZ_TEMPLATES")
        .and_then(|count| count.parse().ok())
        .unwrap_or(2_000)
}

/// A template renders the same each time, within the limit of the output, or ends in the same error, whose message is a line
/// that is not too long for a log.
fn check_outcome(source: &str, limits: &Limits) -> Result<(), TestCaseError> {
    let [one, other] = [(); 2].map(|()| render_with(source, &Map::new(), limits));
    match (one, other) {
        (Ok(one), Ok(other)) => {
            prop_assert_eq!(&one, &other);
            prop_assert!(one.len() <= limits.output_bytes, "{} bytes", one.len());
        }
        (Err(one), Err(other)) => {
            let message = one.to_string();
            prop_assert_eq!(&message, &other.to_string());
            prop_assert!(!message.trim().is_empty());
            prop_assert!(matches!(one, Error::Raised { .. }) || message.lines().count() == 1, "{}", message);
            prop_assert!(message.len() < 4096, "{} bytes of message", message.len());
        }
        (one, other) => prop_assert!(false, "{one:?}, then {other:?}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_random_source_renders_or_fails_in_one_line(picks in prop::collection::vec(any::<prop::sample::Index>(), 0..30), open in 0usize..3) {
        let fragments: Vec<&str> = FRAGMENTS.split_ascii_whitespace().collect();
        let words: Vec<&str> = picks.iter().map(|pick| *pick.get(&fragments)).collect();
        let inside = words.join(" ");
        let source = match open {
            0 => inside,
            1 => format!("{{{{ {inside} }}}}"),
            _ => format!("{{% set a = 'é🚌 x' %}}{{% set b = {{'k': [1, 2]}} %}}{{% set ns = namespace(x=a) %}}{{{{ {} }}}}", words.concat()),
        };
        let limits = Limits { steps: 100_000, ..Limits::default() };
        check_outcome(&source, &limits)?;
    }

    #[test]
    fn random_arguments_render_or_fail_in_one_line(
        value in prop::sample::select(vec!["'a b,é🚌'", "''", "[3, 1]", "{'a': 1}", "(1, 2)", "-7", "2.5", "none", "x"]),
        name in prop::sample::select(FRAGMENTS.split_ascii_whitespace().filter(|word| word.len() > 2 && word.starts_with(['.', '|'])).collect::<Vec<_>>()),
        arguments in prop::collection::vec(prop::sample::select(vec![
            "0", "1", "-1", "5", "170141183460469231731687303715884105727", "-170141183460469231731687303715884105727", "1e308", "'a'", "'é'", "''",
            "none", "true", "[1]", "('a', 'b')", "x", "attribute='a'", "default=1", "width=3", "reverse=true",
        ]), 0..4),
    ) {
        let call = name.trim_end_matches("()").trim_end_matches('(');
        let source = format!("{{{{ {value}{call}({}) }}}}", arguments.join(", "));
        check_outcome(&source, &Limits::default())?;
    }
}
