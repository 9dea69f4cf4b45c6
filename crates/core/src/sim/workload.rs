//! Traffic made from stated distributions, the same for the same seed.

use super::Rng;
use super::scenario::Arrival;
use crate::request::Tick;

/// Traffic made from stated distributions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// Lengths as in conversations that people share: prompts log-normal with median 80 and sigma 1.2 (mean 164),
    /// answers log-normal with median 220 and sigma 0.93 (mean 339), both at most 2048. Poisson arrivals.
    Sharegpt,
    /// Programs that call tools: conversations of eight requests. The first has 2000 tokens; each repeats all before
    /// it and adds a result, log-normal with median 300 and sigma 1; answers have 20 to 120 tokens. Two seconds and
    /// what the answer might take lie between the requests of a conversation.
    Agents,
    /// One tenant sends nine of ten requests, all at once; the others come one by one, from tenants of
    /// their own. Lengths as in `Sharegpt`.
    Flood,
    /// Lengths as in `Sharegpt`, in bursts: ten requests within a tenth of a second, then a pause that keeps the rate.
    Bursts,
    /// Lengths as in `Sharegpt`, and one in fifty prompts has 100,000 tokens.
    Long,
}

impl Workload {
    /// Every one, with the name a user types.
    pub const ALL: &[(&'static str, Self)] = &[
        ("sharegpt", Self::Sharegpt),
        ("agents", Self::Agents),
        ("flood", Self::Flood),
        ("bursts", Self::Bursts),
        ("long", Self::Long),
    ];

    /// So many requests, at so many a second on average.
    pub fn arrivals(self, seed: u64, requests: usize, rate: f64) -> Vec<Arrival> {
        let mut rng = Rng::new(seed);
        let mut clock = 0.0;
        let mut arrivals: Vec<Arrival> = (0..requests)
            .map(|index| {
                clock += -rng.unit().ln() / rate;
                match self {
                    Self::Agents => turn(seed, index, rate),
                    _ => self.arrival(&mut rng, index, clock, rate),
                }
            })
            .collect();
        arrivals.sort_by_key(|arrival| arrival.at);
        arrivals
    }

    fn arrival(self, rng: &mut Rng, index: usize, clock: f64, rate: f64) -> Arrival {
        let plain = chat(rng, ticks(clock));
        match self {
            Self::Sharegpt => plain,
            Self::Flood if !index.is_multiple_of(10) => Arrival { at: 0, tenant: 1, ..plain },
            Self::Flood => Arrival { tenant: 2 + index as u64, ..plain },
            Self::Bursts => {
                let burst = (index / 10 * 10) as f64 / rate;
                Arrival { at: ticks(burst + 0.1 * rng.unit()), ..plain }
            }
            Self::Long if index % 50 == 25 => Arrival { prompt: 100_000, ..plain },
            Self::Long | Self::Agents => plain,
        }
    }
}

fn chat(rng: &mut Rng, at: Tick) -> Arrival {
    let prompt = (rng.log_normal(80.0, 1.2) as usize).clamp(1, 2048);
    let answer = (rng.log_normal(220.0, 0.93) as usize).clamp(1, 2048);
    Arrival { at, prompt, max_new_tokens: answer, answer, ..Arrival::default() }
}

/// One request of a conversation, whose earlier ones are drawn again so that it repeats them.
fn turn(seed: u64, index: usize, rate: f64) -> Arrival {
    const TURNS: usize = 8;
    let (conversation, turn) = (index / TURNS, index % TURNS);
    let mut rng = Rng::new(seed ^ ((conversation as u64 + 1) << 20));
    let began = rng.unit() + (conversation * TURNS) as f64 / rate;
    let (mut prompt, mut at, mut answer) = (2000, began, 0);
    for earlier in 0..=turn {
        if earlier > 0 {
            prompt += answer + (rng.log_normal(300.0, 1.0) as usize).clamp(1, 4000);
            at += 2.0 + 0.05 * answer as f64;
        }
        answer = rng.within(20..=120);
    }
    Arrival {
        at: ticks(at),
        prompt,
        max_new_tokens: answer,
        answer,
        conversation: conversation as u64,
        alike: usize::MAX,
        ..Arrival::default()
    }
}

fn ticks(seconds: f64) -> Tick {
    (seconds * 1e6) as Tick
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(values: impl Iterator<Item = usize>) -> f64 {
        let values: Vec<_> = values.collect();
        values.iter().sum::<usize>() as f64 / values.len() as f64
    }

    #[test]
    fn lengths_and_rates_are_as_stated() {
        let arrivals = Workload::Sharegpt.arrivals(1, 4000, 2.0);
        let (prompt, answer) =
            (mean(arrivals.iter().map(|a| a.prompt)), mean(arrivals.iter().map(|a| a.answer)));
        assert!((140.0..180.0).contains(&prompt) && (300.0..360.0).contains(&answer), "{prompt} {answer}");
        let seconds = arrivals.last().map_or(0, |last| last.at) as f64 / 1e6;
        assert!((1850.0..2150.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn every_request_of_an_agent_repeats_the_one_before_it() {
        let arrivals = Workload::Agents.arrivals(1, 16, 1.0);
        for conversation in 0..2 {
            let turns: Vec<_> = arrivals.iter().filter(|a| a.conversation == conversation).collect();
            assert_eq!(turns.len(), 8);
            for pair in turns.windows(2) {
                assert!(pair[1].prompt > pair[0].prompt + pair[0].answer && pair[1].at > pair[0].at);
            }
        }
    }

    #[test]
    fn a_flood_has_one_source() {
        let arrivals = Workload::Flood.arrivals(1, 100, 1.0);
        assert_eq!(arrivals.iter().filter(|a| a.tenant == 1 && a.at == 0).count(), 90);
        assert!(Workload::ALL.iter().all(|(_, load)| load.arrivals(3, 30, 1.0) == load.arrivals(3, 30, 1.0)));
    }
}
