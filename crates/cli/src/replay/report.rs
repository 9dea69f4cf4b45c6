//! What a replay prints.

use omnibus_server::Record;
use serde_json::{Value, json};

use super::compare::{Outcome, Played};

const HEAD: [&str; 6] = ["#", "PATH", "STATUS", "TOKENS", "SECONDS", "ANSWER"];

/// The lines of a table, with what was recorded beside what was played.
pub fn table(records: &[Record], played: &[Played]) -> Vec<String> {
    let rows = records.iter().zip(played).enumerate().map(|(index, (record, played))| {
        let (then, was) =
            (&record.answer, |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() });
        let text = |count: Option<u64>| count.map(|count| count.to_string()).unwrap_or_default();
        [
            (index + 1).to_string(),
            record.path.clone(),
            pair(&then.status.to_string(), &was(&text(played.status.map(u64::from)))),
            pair(&was(&text(then.completion_tokens)), &was(&text(played.completion_tokens))),
            format!("{:.3} → {:.3}", then.total_s, played.total_s),
            words(&played.outcome),
        ]
    });
    let rows: Vec<[String; 6]> = std::iter::once(HEAD.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn pair(then: &str, now: &str) -> String {
    if then == now { now.to_owned() } else { format!("{then} → {now}") }
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Same => "same".to_owned(),
        Outcome::Differs(why) => format!("differs: {why}"),
        Outcome::NotCompared(why) => format!("not compared: {why}"),
    }
}

/// One object a request.
pub fn json(records: &[Record], played: &[Played]) -> Value {
    let row = |(record, played): (&Record, &Played)| {
        let (outcome, why) = match &played.outcome {
            Outcome::Same => ("same", None),
            Outcome::Differs(why) => ("differs", Some(why.as_str())),
            Outcome::NotCompared(why) => ("not compared", Some(*why)),
        };
        json!({
            "request_id": record.request_id,
            "path": record.path,
            "recorded": {
                "status": record.answer.status,
                "completion_tokens": record.answer.completion_tokens,
                "total_s": record.answer.total_s,
            },
            "played": {
                "status": played.status,
                "completion_tokens": played.completion_tokens,
                "total_s": played.total_s,
            },
            "answer": outcome,
            "why": why,
        })
    };
    records.iter().zip(played).map(row).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::replay::compare::tests::record;

    #[test]
    fn a_table_has_what_was_recorded_beside_what_was_played() {
        let records = [record(json!({"seed": 1})), record(json!({}))];
        let same =
            Played { status: Some(200), completion_tokens: Some(2), total_s: 0.25, outcome: Outcome::Same };
        let outcome = Outcome::Differs("no answer: closed".to_owned());
        let failed = Played { status: None, completion_tokens: None, total_s: 0.0, outcome };
        let lines = table(&records, &[same, failed]).join("\n");
        expect![[r#"
            #  PATH             STATUS   TOKENS  SECONDS        ANSWER
            1  /v1/completions  200      2       0.500 → 0.250  same
            2  /v1/completions  200 → -  2 → -   0.500 → 0.000  differs: no answer: closed"#]]
        .assert_eq(&lines);
    }
}
