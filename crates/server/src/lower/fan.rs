//! One request for each answer of a plan.

use omnibus_engine::Request;

use super::Plan;

/// The requests of a plan, prompt by prompt. Ids get the choice's index when there are several;
/// seeds are derived, so that answers differ and can be had again.
pub fn out(plan: Plan) -> Vec<Request> {
    let Plan { prompts, n } = plan;
    let several = prompts.len() * n > 1;
    let answers = prompts.into_iter().flat_map(|prompt| (0..n).map(move |answer| (prompt.clone(), answer)));
    let choice = |(index, (mut request, answer)): (usize, (Request, usize))| {
        if several {
            request.id = format!("{}-{index}", request.id);
        }
        request.sampling.seed = request.sampling.seed.map(|seed| derived(seed, answer as u64));
        request
    };
    answers.enumerate().map(choice).collect()
}

/// The first answer has the seed that was asked for. Source: splitmix64's finalizer.
fn derived(seed: u64, answer: u64) -> u64 {
    if answer == 0 {
        return seed;
    }
    let mut mixed = seed.wrapping_add(answer.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use omnibus_engine::Input;

    use super::*;

    fn fan(prompts: usize, n: usize) -> Vec<(String, Option<u64>)> {
        let mut request = Request::new("cmpl-1", Input::Text("a".into()));
        request.sampling.seed = Some(7);
        let requests = out(Plan { prompts: vec![request; prompts], n });
        requests.into_iter().map(|request| (request.id, request.sampling.seed)).collect()
    }

    #[test]
    fn a_single_answer_keeps_its_id_and_seed() {
        assert_eq!(fan(1, 1), [("cmpl-1".to_owned(), Some(7))]);
    }

    #[test]
    fn several_answers_differ_in_id_and_seed_and_every_prompt_in_its_id() {
        let choices = fan(2, 2);
        assert_eq!(
            choices.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(),
            ["cmpl-1-0", "cmpl-1-1", "cmpl-1-2", "cmpl-1-3"]
        );
        assert_eq!(choices[0].1, choices[2].1);
        assert_eq!(choices[1].1, choices[3].1);
        assert_ne!(choices[0].1, choices[1].1);
    }
}
