//! Scripted loops: each line of a script is a generation's calls.

use expect_test::{Expect, expect};

use super::*;

fn limits() -> LoopLimits {
    LoopLimits { rounds: 3, calls: 4, time: Duration::from_secs(10), result_bytes: 40, tokens: 100 }
}

fn call(text: &str) -> LoopCall {
    // `name(arguments)` with marks: `!` for the client's, `?` for an approval, `#` for wrong arguments.
    let name = text.split('(').next().unwrap_or_default();
    let arguments = text.split_once('(').map(|(_, rest)| rest.trim_end_matches(')')).unwrap_or_default();
    LoopCall {
        call: Call {
            id: text.to_owned(),
            name: name.trim_start_matches(['!', '?', '#']).to_owned(),
            arguments: arguments.to_owned(),
        },
        is_clients: name.starts_with('!'),
        needs_approval: name.starts_with('?'),
        refusal: name.starts_with('#').then(|| "wrong arguments".to_owned()),
    }
}

/// Runs generations of calls, each of which gets its name as result, and shows what becomes of them.
fn check(limits: LoopLimits, script: &[&str], spent: &[Spent], expected: &Expect) {
    let mut tool_loop = ToolLoop::new(limits, None);
    let mut shown = String::new();
    for (index, line) in script.iter().enumerate() {
        let calls = line.split(' ').filter(|call| !call.is_empty()).map(call).collect();
        let plan = tool_loop.plan(calls, spent.get(index).copied().unwrap_or_default());
        for (call, action) in &plan.actions {
            let action = match action {
                Action::Run => {
                    let outcome = Outcome { text: call.name.clone(), ..Outcome::default() };
                    format!("run -> {}", tool_loop.result(call, outcome).text)
                }
                Action::AskApproval => "ask".to_owned(),
                Action::Answer(text) => text.split(['.', ',']).next().unwrap_or_default().to_owned(),
                Action::LeaveToClient => "client".to_owned(),
            };
            shown += &format!("{}: {action}\n", call.id);
        }
        shown += &format!("{:?}\n", plan.after);
        if matches!(plan.after, After::End | After::EndAt(_)) {
            break;
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn parallel_calls_run_and_another_generation_follows() {
    check(
        limits(),
        &["a(1) b(2)", "a(3)"],
        &[],
        &expect![[r#"
        a(1): run -> a
        b(2): run -> b
        Generate
        a(3): run -> a
        Generate
    "#]],
    );
}

#[test]
fn the_client_and_approvals_end_a_loop_after_the_other_calls_ran() {
    check(
        limits(),
        &["a(1) !b(2) ?c(3)", "a(4)"],
        &[],
        &expect![[r#"
        a(1): run -> a
        !b(2): client
        ?c(3): ask
        End
    "#]],
    );
}

#[test]
fn wrong_arguments_are_answered_and_count() {
    check(
        limits(),
        &["#a(1)", "#a(1)", "#a(1) #a(1)", "a(1)"],
        &[],
        &expect![[r#"
        #a(1): wrong arguments
        Generate
        #a(1): wrong arguments
        Generate
        #a(1): wrong arguments
        #a(1): wrong arguments
        Generate
        a(1): This call was not made: the limit of tool calls of this request is reached
        GenerateLast(Rounds)
    "#]],
    );
}

#[test]
fn a_limit_is_said_once_and_the_next_generation_is_the_last() {
    check(
        limits(),
        &["a(1)", "a(2)", "a(3)", "a(4)", "a(5)", "a(6)"],
        &[],
        &expect![[r#"
        a(1): run -> a
        Generate
        a(2): run -> a
        Generate
        a(3): run -> a
        Generate
        a(4): This call was not made: the limit of tool calls of this request is reached
        GenerateLast(Rounds)
        a(5): This call was not made: the limit of tool calls of this request is reached
        EndAt(Rounds)
    "#]],
    );
}

#[test]
fn calls_have_a_limit_that_a_request_may_lower() {
    check(
        limits(),
        &["a(1) a(2) a(3) a(4) a(5)"],
        &[],
        &expect![[r#"
        a(1): run -> a
        a(2): run -> a
        a(3): run -> a
        a(4): run -> a
        a(5): This call was not made: the limit of tool calls of this request is reached
        GenerateLast(Calls)
    "#]],
    );
    let mut none = ToolLoop::new(limits(), Some(0));
    assert_eq!(none.plan(vec![call("a(1)")], Spent::default()).after, After::GenerateLast(StopReason::Calls));
    let mut most = ToolLoop::new(limits(), Some(1000));
    let plan = most.plan(vec![call("a(1)"); 5], Spent::default());
    assert_eq!(plan.after, After::GenerateLast(StopReason::Calls));
}

#[test]
fn a_call_that_gives_the_same_again_ends_the_loop() {
    check(
        LoopLimits { rounds: 9, ..limits() },
        &[r#"a({"x":1})"#, r#"a({"x":1})"#, r#"a({"x":1})"#],
        &[],
        &expect![[r#"
        a({"x":1}): run -> a
        Generate
        a({"x":1}): run -> a
        Generate
        a({"x":1}): This call was not made: this call was made before
        GenerateLast(Repetition)
    "#]],
    );
    assert_eq!(same_arguments(r#"{ "x" : 1 }"#), same_arguments(r#"{"x":1}"#));
}

#[test]
fn time_and_tokens_are_limits() {
    let late = Spent { time: Duration::from_secs(10), tokens: 0 };
    let many = Spent { time: Duration::ZERO, tokens: 100 };
    check(
        limits(),
        &["a(1)", "a(2)"],
        &[Spent::default(), late],
        &expect![[r#"
        a(1): run -> a
        Generate
        a(2): This call was not made: the limit of tool calls of this request is reached
        GenerateLast(Time)
    "#]],
    );
    check(
        limits(),
        &["a(1)"],
        &[many],
        &expect![[r#"
        a(1): This call was not made: the limit of tool calls of this request is reached
        GenerateLast(Tokens)
    "#]],
    );
}

#[test]
fn results_are_cut_to_what_is_left_of_their_bytes() {
    let mut tool_loop = ToolLoop::new(limits(), None);
    let long = || Outcome { text: "x".repeat(30), ..Outcome::default() };
    let (one, two) = (call("a(1)").call, call("a(2)").call);
    assert_eq!(tool_loop.result(&one, long()).text.len(), 30);
    let second = tool_loop.result(&two, long()).text;
    assert!(
        second.starts_with("xxxxxxxxxx\n[cut: the result has 30 bytes, of which 10 are shown]"),
        "{second}"
    );
    let plan = tool_loop.plan(vec![call("a(3)")], Spent::default());
    assert_eq!(plan.after, After::GenerateLast(StopReason::ResultBytes));
}
