//! Prompts of random words, reproducible by seed.

use omnibus_engine::random::Rng;

use crate::settings::{BenchSettings, Dataset};

/// Short, common words, which most tokenizers encode as one token each.
const WORDS: &[&str] = &[
    "the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "with", "as", "his",
    "they", "at", "be", "this", "from", "have", "or", "by", "one", "had", "not", "but", "what", "all",
    "were", "when", "we", "there", "can", "an", "your", "which", "their", "said", "if", "do", "will", "each",
    "about", "how", "up", "out", "them", "then", "she", "many", "some", "so", "these", "would", "other",
    "into", "has", "more", "her", "two", "like", "him", "time",
];

/// The prompts of a benchmark.
pub fn prompts(settings: &BenchSettings) -> Vec<String> {
    let shared = match settings.dataset {
        Dataset::Random | Dataset::Turns | Dataset::Media => Vec::new(),
        Dataset::SharedPrefix => words(&mut Rng::new(!settings.seed), settings.input_len / 2),
    };
    if settings.dataset == Dataset::Turns {
        return turns(settings);
    }
    let mut random = Rng::new(settings.seed);
    let prompt = |_| {
        let own = words(&mut random, settings.input_len - shared.len());
        [shared.as_slice(), own.as_slice()].concat().join(" ")
    };
    (0..settings.num_warmups + settings.num_prompts).map(prompt).collect()
}

/// Turns of a conversation.
pub const TURNS: usize = 4;

/// Conversations beside each other: the first turns of all come first. A turn has as many words more as a prompt has.
fn turns(settings: &BenchSettings) -> Vec<String> {
    let count = settings.num_warmups + settings.num_prompts;
    let conversations = count.div_ceil(TURNS).max(1);
    let mut random = Rng::new(settings.seed);
    let mut histories: Vec<Vec<&str>> = vec![Vec::new(); conversations];
    let turn = |at: usize| {
        let history = &mut histories[at % conversations];
        history.extend(words(&mut random, settings.input_len));
        history.join(" ")
    };
    (0..count).map(turn).collect()
}

fn words(random: &mut Rng, count: usize) -> Vec<&'static str> {
    (0..count).map(|_| WORDS[(random.draw() % WORDS.len() as u64) as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dataset: Dataset, seed: u64) -> BenchSettings {
        BenchSettings { dataset, seed, num_prompts: 3, input_len: 8, ..BenchSettings::default() }
    }

    #[test]
    fn a_seed_gives_the_same_prompts_of_the_set_length() {
        let once = prompts(&settings(Dataset::Random, 1));
        assert_eq!(once, prompts(&settings(Dataset::Random, 1)));
        assert_ne!(once, prompts(&settings(Dataset::Random, 2)));
        assert!(once.iter().all(|prompt| prompt.split(' ').count() == 8));
        assert_ne!(once[0], once[1]);
    }

    #[test]
    fn a_turn_begins_with_the_one_before_it() {
        let all = prompts(&BenchSettings { num_prompts: 8, ..settings(Dataset::Turns, 1) });
        assert_eq!(all.len(), 8);
        for (before, after) in all.iter().zip(&all[2..]) {
            assert!(after.starts_with(before.as_str()), "{before} / {after}");
            assert_eq!(after.split(' ').count(), before.split(' ').count() + 8);
        }
        assert_ne!(all[0], all[1]);
    }

    #[test]
    fn prompts_can_share_their_first_half() {
        let all = prompts(&settings(Dataset::SharedPrefix, 1));
        let half = |prompt: &String| prompt.split(' ').take(4).map(str::to_owned).collect::<Vec<_>>();
        assert!(all.iter().all(|prompt| half(prompt) == half(&all[0])));
        assert_ne!(all[0], all[1]);
    }
}
