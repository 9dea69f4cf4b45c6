//! Draft tokens of the sequences: proposed after each step, for the next one.

use omnibus_core::{DraftOffer, Goal, Plan, Tick};

use super::in_flight::{InFlightStep, SampledSequence};
use super::{ActiveJob, EngineLoop};
use crate::message::{Job, JobReport, JobUpdate};
use crate::sampler::needs_history;
use crate::speculation::{DraftUsage, Speculation};
use crate::worker::catch_panic::catch_panic;
use crate::worker::device_call::DraftRead;
use crate::worker::drafts::Drafted;
use crate::worker::proposer::{DraftContext, Promised};

impl EngineLoop {
    /// Offers the scheduler draft tokens for the sequences that a step gave tokens. A proposer that panics is not asked
    /// again.
    pub(super) fn offer_drafts(&mut self, step: &InFlightStep) {
        let Some(mut drafts) = self.drafts.take() else { return };
        let Self { jobs, scheduler, grammars, .. } = self;
        let offered = catch_panic(|| {
            let sampled = step.samples.iter().filter_map(|(id, _)| Some((*id, jobs.get(id)?)));
            let drafted = sampled.filter(|(_, active)| may_draft(&active.job));
            let offers: Vec<DraftOffer> = drafted
                .filter_map(|(sequence, active)| {
                    let context = DraftContext {
                        sequence,
                        tokens: scheduler.tokens(sequence),
                        prompt: active.job.prompt,
                        salt: (active.job.request.cache_salt, active.job.request.adapter),
                        prediction: drafts.prediction(&active.job.prediction),
                        most: drafts.most(),
                    };
                    let valid = |tokens: &[u32]| grammars.valid_drafts(sequence, tokens);
                    drafts.propose(&context, valid, |offers| scheduler.fastest_offer(offers))
                })
                .collect();
            Ok(offers)
        });
        match offered {
            Ok(offers) => {
                self.scheduler.set_host_us(drafts.host_us());
                self.scheduler.offer_drafts(&offers);
                self.drafts = Some(drafts);
            }
            Err(error) => self.switch_drafts_off(&error),
        }
    }

    /// Computes the draft tokens of a plan that were promised. A proposer that fails is not asked again. Gives how long the device
    /// is expected to compute what is read with the step.
    pub(super) fn compute_drafts(&mut self, plan: &Plan) -> Option<Tick> {
        let mut drafts = self.drafts.take()?;
        let read = self.drafts_are_read(plan);
        let computed = catch_panic(|| {
            let promised = plan.scheduled.iter().filter_map(|work| {
                let job = &self.jobs.get(&work.sequence)?.job;
                may_draft(job).then_some(())?;
                Some(Promised {
                    sequence: work.sequence,
                    tokens: self.scheduler.tokens(work.sequence),
                    planned: work.positions.clone(),
                    is_decode: work.is_decode(),
                    prompt: job.prompt,
                    table: self
                        .scheduler
                        .block_table(work.sequence, self.device.traits().kv.full_attention_group?),
                    count: work.draft_tokens(),
                })
            });
            let promised: Vec<Promised<'_>> = promised.collect();
            drafts.compute(&promised, read, &mut self.device)
        });
        let drafted = match computed {
            Ok(drafted) => drafted,
            Err(error) => {
                self.switch_drafts_off(&error);
                return None;
            }
        };
        self.drafts = Some(drafts);
        let Drafted { load, took, read } = drafted?;
        if let Some(took) = took {
            self.scheduler.learn_drafts(load, took.as_micros() as Tick);
        }
        (read == DraftRead::WithStep).then(|| self.scheduler.cost().drafts.predict(load) as Tick)
    }

    /// When the draft tokens of a plan have to be known: before a step that the host makes masks or penalties for, and where the
    /// host has to wait for each step.
    fn drafts_are_read(&self, plan: &Plan) -> DraftRead {
        let needs_tokens = |sequence| {
            let of = self.jobs.get(&sequence);
            self.grammars.contains(sequence) || of.is_some_and(|of| needs_history(&of.job.sampling))
        };
        let drafting = plan.scheduled.iter().filter(|work| work.draft_tokens() > 0);
        match self.device.traits().depth > 1 && !drafting.map(|work| work.sequence).any(needs_tokens) {
            true => DraftRead::WithStep,
            false => DraftRead::Now,
        }
    }

    fn switch_drafts_off(&mut self, error: &mlx::Error) {
        tracing::warn!(%error, "the proposer of draft tokens failed and is switched off");
        self.jobs.keys().for_each(|sequence| self.scheduler.set_draft_tokens(*sequence, 0));
    }

    /// The draft tokens of a step, of sequences whose logits depend on the tokens before them.
    pub(super) fn counted_drafts(&self, samples: &[SampledSequence]) -> Vec<SampledSequence> {
        let counts = |sequence| self.jobs.get(sequence).is_some_and(|of| needs_history(&of.job.sampling));
        let counted = samples.iter().filter(|(sequence, drafts)| !drafts.is_empty() && counts(sequence));
        counted.cloned().collect()
    }

    /// Reports what became of a job's draft tokens, if it had any.
    pub(super) fn report_drafts(&mut self, active: &ActiveJob) {
        if active.drafts != DraftUsage::default() {
            let update = JobUpdate::Drafted(active.drafts);
            self.reports.push(JobReport { job: active.job.id, update });
        }
    }
}

/// Whether a job has draft tokens.
pub(super) fn may_draft(job: &Job) -> bool {
    job.speculation == Speculation::Allowed && job.request.goal != Goal::Compute
}
