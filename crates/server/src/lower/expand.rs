//! Expands `n`: one engine request per completion.

use omnibus_engine::{Request, random};

use super::GenerationBatch;

/// The engine requests of a batch, prompt by prompt. With several choices, ids get the choice's index;
/// seeds are derived from the request's seed, so that completions differ and are reproducible.
pub fn expand_n(batch: GenerationBatch) -> Vec<Request> {
    let GenerationBatch { prompts, n } = batch;
    let several = prompts.len() * n > 1;
    let completions =
        prompts.into_iter().flat_map(|prompt| (0..n).map(move |sample| (prompt.clone(), sample)));
    let choice = |(index, (mut request, sample)): (usize, (Request, usize))| {
        if several {
            request.id = format!("{}-{index}", request.id);
        }
        request.sampling.seed = request.sampling.seed.map(|seed| derived(seed, sample as u64));
        request
    };
    completions.enumerate().map(choice).collect()
}

/// The seed of a completion. The first has the request's own seed, so that `n` does not change it.
fn derived(seed: u64, sample: u64) -> u64 {
    if sample == 0 { seed } else { random::nth(seed, sample) }
}

#[cfg(test)]
mod tests {
    use omnibus_engine::Input;

    use super::*;

    fn expanded(prompts: usize, n: usize) -> Vec<(String, Option<u64>)> {
        let mut request = Request::new("cmpl-1", Input::Text("a".into()));
        request.sampling.seed = Some(7);
        let requests = expand_n(GenerationBatch { prompts: vec![request; prompts], n });
        requests.into_iter().map(|request| (request.id, request.sampling.seed)).collect()
    }

    #[test]
    fn a_single_completion_keeps_its_id_and_seed() {
        assert_eq!(expanded(1, 1), [("cmpl-1".to_owned(), Some(7))]);
    }

    #[test]
    fn several_completions_differ_in_id_and_seed() {
        let choices = expanded(2, 2);
        assert_eq!(
            choices.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(),
            ["cmpl-1-0", "cmpl-1-1", "cmpl-1-2", "cmpl-1-3"]
        );
        assert_eq!(choices[0].1, choices[2].1);
        assert_eq!(choices[1].1, choices[3].1);
        assert_ne!(choices[0].1, choices[1].1);
    }
}
