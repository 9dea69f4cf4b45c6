//! Requests as TypeSafe's clients send them, and each that is refused.

use serde_json::json;

use super::*;

fn read(body: Value) -> Result<SystemOneRequest, (String, String)> {
    SystemOneRequest::read(body)
        .map_err(|error| (error.param().unwrap_or_default().to_owned(), error.message().to_owned()))
}

fn question_of(value: Value) -> Result<Question, (String, String)> {
    let request = read(json!({"model": "jev-latest", "state": "s", "questions": {"q": value}}))?;
    Ok(request.questions.into_iter().next().unwrap().question)
}

#[test]
fn states_and_texts_may_be_values() {
    let state = |state: Value| {
        let questions = json!({"질문": {"type": "noul", "instructions": ["a", {"b": 1}]}});
        let request = read(json!({"state": state, "questions": questions, "seed": 7})).unwrap();
        assert_eq!(request.questions[0].key, "질문");
        assert_eq!(request.questions[0].question.instructions.as_deref(), Some(r#"["a",{"b":1}]"#));
        request.state
    };
    assert_eq!(state(json!("a \"b\"")), "a \"b\"");
    assert_eq!(state(json!({"b": 1, "a": [true]})), r#"{"b":1,"a":[true]}"#);
    assert_eq!(state(json!(["x", "y"])), r#"["x","y"]"#);
}

#[test]
fn the_three_types_have_their_criteria() {
    let noul =
        |criteria: Value| question_of(json!({"type": "noul", "instructions": "i", "criteria": criteria}));
    let sides = |yes: Option<&str>, no: Option<&str>| QuestionKind::Noul {
        yes: yes.map(str::to_owned),
        no: no.map(str::to_owned),
    };
    assert_eq!(noul(json!(null)).unwrap().kind, sides(None, None));
    assert_eq!(
        noul(json!({"true": "y", "false": {"n": 1}})).unwrap().kind,
        sides(Some("y"), Some(r#"{"n":1}"#))
    );
    assert_eq!(noul(json!({"false": ["n"], "true": null})).unwrap().kind, sides(None, Some(r#"["n"]"#)));
    let no_instructions = question_of(json!({"type": "noul", "criteria": {"true": "y"}})).unwrap();
    assert_eq!(no_instructions.instructions, None);
    let choice = question_of(json!({"type": "choice", "criteria": {"b": null, "a": "A", "c": {"x": [1]}}}));
    let QuestionKind::Choice(options) = choice.unwrap().kind else { panic!("it is a choice") };
    let options: Vec<_> =
        options.iter().map(|option| (option.name.as_str(), option.description.as_deref())).collect();
    assert_eq!(options, [("b", None), ("a", Some("A")), ("c", Some(r#"{"x":[1]}"#))]);
    let score = question_of(json!({"type": "score", "criteria": ["low", {"label": "high"}]}));
    let levels = ["low".to_owned(), r#"{"label":"high"}"#.to_owned()];
    assert_eq!(score.unwrap().kind, QuestionKind::Score(levels.into()));
}

#[test]
fn what_is_refused_names_its_field() {
    let options: Map<String, Value> = (0..256).map(|number| (format!("o{number}"), Value::Null)).collect();
    for (question, field) in [
        (json!("x"), "questions.q"),
        (json!({"instructions": "i"}), "questions.q.type"),
        (json!({"type": "box", "instructions": "i"}), "questions.q.type"),
        (json!({"type": "boolean", "instructions": "i"}), "questions.q.type"),
        (json!({"type": "noul"}), "questions.q.instructions"),
        (json!({"type": "noul", "criteria": {"true": null}}), "questions.q.instructions"),
        (json!({"type": "noul", "instructions": 5}), "questions.q.instructions"),
        (json!({"type": "noul", "instructions": "i", "criteria": {"yes": "y"}}), "questions.q.criteria.yes"),
        (json!({"type": "noul", "instructions": "i", "criteria": {"true": 1}}), "questions.q.criteria.true"),
        (json!({"type": "noul", "instructions": "i", "weight": 2}), "questions.q.weight"),
        (json!({"type": "choice", "instructions": "i"}), "questions.q.criteria"),
        (json!({"type": "choice", "criteria": {}}), "questions.q.criteria"),
        (json!({"type": "choice", "criteria": ["a", "b"]}), "questions.q.criteria"),
        (json!({"type": "choice", "criteria": {"a": 1}}), "questions.q.criteria.a"),
        (json!({"type": "choice", "criteria": options}), "questions.q.criteria"),
        (json!({"type": "score", "criteria": {"0": "low"}}), "questions.q.criteria"),
        (json!({"type": "score", "criteria": []}), "questions.q.criteria"),
        (json!({"type": "score", "criteria": ["low", null]}), "questions.q.criteria[1]"),
        (json!({"type": "score", "criteria": vec!["x"; 11]}), "questions.q.criteria"),
    ] {
        assert_eq!(
            question_of(question.clone()).map_err(|(field, _)| field),
            Err(field.into()),
            "{question}"
        );
    }
    let noul = json!({"q": {"type": "noul", "instructions": "i"}});
    let many: Map<String, Value> =
        (0..401).map(|number| (format!("q{number}"), json!({"type": "noul", "instructions": "i"}))).collect();
    for (body, field) in [
        (json!({"questions": noul}), "state"),
        (json!({"state": null, "questions": noul}), "state"),
        (json!({"state": 5, "questions": noul}), "state"),
        (json!({"state": "s"}), "questions"),
        (json!({"state": "s", "questions": {}}), "questions"),
        (json!({"state": "s", "questions": []}), "questions"),
        (json!({"state": "s", "questions": many}), "questions"),
        (json!({"state": "s", "questions": {"": {"type": "noul", "instructions": "i"}}}), "questions"),
        (json!({"model": 5, "state": "s", "questions": noul}), "model"),
        (json!({"state": "s", "questions": noul, "assets": {}}), "assets"),
        (json!({"state": "s", "questions": noul, "x_readout": "tokens"}), "x_readout"),
    ] {
        assert_eq!(read(body.clone()).map(|_| ()).map_err(|(field, _)| field), Err(field.into()), "{body}");
    }
}
