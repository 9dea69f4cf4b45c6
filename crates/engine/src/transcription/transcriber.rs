//! Generates the windows of a sound, one after the other.

mod word_times;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::segments::{TokenSegment, WindowSegments, divide};
use super::{
    Language, SpeechSegment, SpeechSummary, SpeechTask, SpeechTimes, TranscriptionEvent, WindowQuality,
};
use super::{chat, quality, windows};
use crate::alignment::AlignedTokens;
use crate::error::Failure;
use crate::event::{Delta, Event, TokenInfo, Usage};
use crate::front::{Admission, EventStream, LoadedModel, SpeechWindow};
use crate::media::Sound;
use crate::request::{Input, OutputMode, Request, Sampling};
use crate::whisper::rules::SPEECH_RULES;
use crate::whisper::tokens::{SpeechTokens, TIME_STEP_S};

/// Added to the logits of tokens of which one must come.
const CERTAIN: f32 = 100.0;

/// A transcription that goes on as long as its events are taken. Dropping it cancels it.
pub struct TranscriptionStream {
    transcriber: Transcriber,
    ready: VecDeque<TranscriptionEvent>,
    has_ended: bool,
}

impl TranscriptionStream {
    pub(crate) fn new(transcriber: Transcriber) -> Self {
        Self { transcriber, ready: VecDeque::new(), has_ended: false }
    }

    /// The next event; `None` after the last. Needs a tokio runtime.
    pub async fn next(&mut self) -> Option<TranscriptionEvent> {
        while self.ready.is_empty() && !self.has_ended {
            if self.transcriber.is_done() {
                self.ready.push_back(TranscriptionEvent::Finished(self.transcriber.summary()));
                self.has_ended = true;
                continue;
            }
            match self.transcriber.next_window().await {
                Ok(segments) => self.ready.extend(segments.into_iter().map(TranscriptionEvent::Segment)),
                Err(failure) => {
                    self.ready.push_back(TranscriptionEvent::Failed(failure));
                    self.has_ended = true;
                }
            }
        }
        self.ready.pop_front()
    }
}

/// What is written down so far, and how to go on.
pub(crate) struct Transcriber {
    pub(crate) model: Arc<LoadedModel>,
    /// What each window's request begins from.
    pub(crate) request: Request,
    /// The API's field of the sound.
    pub(crate) field: String,
    pub(crate) sound: Sound,
    /// Most samples of a window.
    pub(crate) window: usize,
    /// Of a model that reads windows by cross attention.
    pub(crate) speech: Option<Arc<SpeechTokens>>,
    pub(crate) task: SpeechTask,
    pub(crate) language: Option<Language>,
    pub(crate) prompt: Option<String>,
    /// The text before the window, in tokens: the prompt's, then what was written.
    pub(crate) before: Vec<u32>,
    pub(crate) temperature: f32,
    /// Longest sequence, in tokens.
    pub(crate) context: usize,
    /// Samples that are written down.
    pub(crate) done: usize,
    /// Segments so far.
    pub(crate) segments: usize,
    pub(crate) times: SpeechTimes,
    /// In the queue, until the first window is there itself.
    pub(crate) place: Admission,
    pub(crate) usage: Usage,
}

/// What a generation gave.
struct Generated {
    tokens: Vec<TokenInfo>,
    text: String,
    /// Of the prompt, where that was requested.
    aligned: Vec<AlignedTokens>,
}

impl Transcriber {
    fn is_done(&self) -> bool {
        self.done >= self.sound.samples().len()
    }

    fn summary(&self) -> SpeechSummary {
        SpeechSummary {
            language: self.language.clone(),
            duration_s: self.seconds(self.sound.samples().len()),
            usage: self.usage,
        }
    }

    fn seconds(&self, samples: usize) -> f64 {
        samples as f64 / f64::from(self.sound.rate())
    }

    async fn next_window(&mut self) -> Result<Vec<SpeechSegment>, Failure> {
        match self.speech.clone() {
            Some(speech) => self.next_by_cross_attention(&speech).await,
            None => self.next_by_conversation().await,
        }
    }

    /// Writes down the next window in a conversation.
    async fn next_by_conversation(&mut self) -> Result<Vec<SpeechSegment>, Failure> {
        let rest = self.sound.samples().get(self.done..).unwrap_or_default();
        let range = self.done..self.done + windows::first_window(rest, self.window, self.sound.rate());
        let input = {
            let samples = self.sound.samples().get(range.clone()).unwrap_or_default();
            let window = (samples, self.sound.rate());
            chat::input(window, &self.field, self.task, self.language.as_ref(), self.prompt.as_deref())
        };
        let sampling = Sampling { temperature: self.temperature, ..self.request.sampling.clone() };
        let output = OutputMode::Message { calls: None };
        let request = Request { output, logprobs: Some(0), ..self.window_request(input, sampling) };
        let (model, place) = (Arc::clone(&self.model), std::mem::take(&mut self.place));
        let stream = blocking(move || model.submit_admitted(request, place)).await?;
        let Generated { tokens, text, .. } = self.collect(stream).await?;
        let quality = quality_of(&tokens, &text, self.temperature, 0.0);
        self.done = range.end;
        // As Whisper writes it.
        let text = if text.trim().is_empty() { String::new() } else { format!(" {}", text.trim()) };
        let tokens: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let segment = (!text.is_empty())
            .then(|| self.segment(&range, [range.start, range.end], (text, tokens), quality));
        Ok(segment.into_iter().collect())
    }

    /// Writes down the next window, and finds out where the next one begins.
    async fn next_by_cross_attention(
        &mut self,
        speech: &SpeechTokens,
    ) -> Result<Vec<SpeechSegment>, Failure> {
        let range = self.done..(self.done + self.window).min(self.sound.samples().len());
        let (model, sound, of_window) = (Arc::clone(&self.model), self.sound.clone(), range.clone());
        let request = self.request.clone();
        let window = blocking(move || {
            let samples = sound.samples().get(of_window).unwrap_or_default();
            model.speech_window(&request, samples)
        })
        .await?;
        if self.language.is_none() && !speech.languages.is_empty() {
            let token =
                self.forced(&window, speech, &speech.languages.values().copied().collect::<Vec<_>>()).await?;
            let code =
                speech.languages.iter().find(|(_, id)| Some(**id) == token.as_ref().map(|token| token.id));
            self.language = code.map(|(code, _)| Language::find(code));
        }
        let silence = match speech.no_speech {
            Some(no_speech) => self.forced(&window, speech, &[no_speech]).await?,
            None => None,
        };
        let no_speech_prob = silence.and_then(|token| token.logprob).map_or(0.0, f32::exp);
        let prompt = self.prompt_tokens(speech);
        let mut found = None;
        for temperature in quality::temperatures(self.temperature) {
            let sampling = Sampling {
                temperature,
                processors: vec![SPEECH_RULES.to_owned()],
                ..self.request.sampling.clone()
            };
            let most = (self.context / 2).min(self.context.saturating_sub(prompt.len())).max(1);
            let request = Request {
                max_new_tokens: Some(most),
                logprobs: Some(0),
                ..self.window_request(Input::Tokens(prompt.clone()), sampling)
            };
            let stream = self.submit(request, &window)?;
            let mut generated = self.collect(stream).await?;
            generated.tokens.retain(|token| token.id != speech.end);
            let text =
                self.text(&generated.tokens.iter().map(|token| token.id).collect::<Vec<_>>(), speech)?;
            let quality = quality_of(&generated.tokens, &text, temperature, no_speech_prob);
            let is_doubtful = quality.is_doubtful();
            found = Some((generated.tokens, quality));
            if !is_doubtful {
                break;
            }
        }
        let (tokens, quality) = found.unwrap_or_default();
        if quality.is_silent() {
            self.done = range.end;
            return Ok(Vec::new());
        }
        let tokens: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let segments = self.divide(&range, &tokens, quality, speech)?;
        match self.times {
            SpeechTimes::OfWords { .. } => self.with_words(segments, &window, &range, speech).await,
            SpeechTimes::OfSegments { .. } | SpeechTimes::Optional => Ok(segments),
        }
    }

    /// Samples between two tokens of time, and of a row of the encoder.
    fn samples_of_step(&self) -> f64 {
        TIME_STEP_S * f64::from(self.sound.rate())
    }

    fn steps(&self, range: &Range<usize>) -> usize {
        (range.len() as f64 / self.samples_of_step()).ceil() as usize
    }

    /// The segments of a window that was written down.
    fn divide(
        &mut self,
        range: &Range<usize>,
        tokens: &[u32],
        quality: WindowQuality,
        speech: &SpeechTokens,
    ) -> Result<Vec<SpeechSegment>, Failure> {
        let (step, length) = (self.samples_of_step(), self.steps(range) as u32);
        let WindowSegments { segments, done } = divide(tokens, length, speech);
        let at = |steps: u32| range.start + (f64::from(steps) * step).round() as usize;
        let mut found = Vec::with_capacity(segments.len());
        for TokenSegment { start, end, tokens } in segments {
            let text = self.text(&tokens, speech)?;
            self.before.extend(&tokens);
            if start < end && !text.trim().is_empty() {
                let times = [at(start), at(end).min(range.end)];
                found.push(self.segment(range, times, (text, tokens), quality));
            }
        }
        if !quality.is_continued() {
            self.before.clear();
        }
        self.done = done.map_or(range.end, at).min(range.end);
        Ok(found)
    }

    fn segment(
        &mut self,
        window: &Range<usize>,
        [start, end]: [usize; 2],
        (text, tokens): (String, Vec<u32>),
        quality: WindowQuality,
    ) -> SpeechSegment {
        let number = self.segments;
        self.segments += 1;
        let [window_s, start_s, end_s] = [window.start, start, end].map(|samples| self.seconds(samples));
        SpeechSegment { number, window_s, start_s, end_s, text, tokens, words: Vec::new(), quality }
    }

    /// The text among tokens.
    fn text(&self, tokens: &[u32], speech: &SpeechTokens) -> Result<String, Failure> {
        let text: Vec<u32> = tokens.iter().copied().filter(|token| speech.is_text(*token)).collect();
        self.model.text_of(self.request.model.as_deref())?.detokenize(&text)
    }

    /// What a window's answer continues: the text before it, the start, the language and the task.
    fn prompt_tokens(&self, speech: &SpeechTokens) -> Vec<u32> {
        let most = (self.context / 2).saturating_sub(1);
        let before = self.before.get(self.before.len().saturating_sub(most)..).unwrap_or_default();
        let before = speech
            .previous
            .filter(|_| !before.is_empty())
            .into_iter()
            .flat_map(|mark| std::iter::once(mark).chain(before.iter().copied()));
        before.chain(self.start_tokens(speech)).collect()
    }

    /// The start, the language and the task.
    fn start_tokens(&self, speech: &SpeechTokens) -> Vec<u32> {
        let code = self.language.as_ref().map(|language| language.code.as_str());
        let language = code.and_then(|code| speech.languages.get(code)).copied();
        let task = match self.task {
            SpeechTask::Transcribe => speech.transcribe,
            SpeechTask::Translate => speech.translate,
        };
        // A model of English alone has no tasks.
        let task = task.filter(|_| !speech.languages.is_empty());
        std::iter::once(speech.start).chain(language).chain(task).collect()
    }

    /// The most likely of some tokens right after the start, with its log-probability among all tokens.
    async fn forced(
        &mut self,
        window: &SpeechWindow,
        speech: &SpeechTokens,
        tokens: &[u32],
    ) -> Result<Option<TokenInfo>, Failure> {
        let logit_bias: BTreeMap<u32, f32> = tokens.iter().map(|token| (*token, CERTAIN)).collect();
        let sampling = Sampling { logit_bias, ..Sampling::greedy() };
        let request = Request {
            max_new_tokens: Some(1),
            logprobs: Some(0),
            ..self.window_request(Input::Tokens(vec![speech.start]), sampling)
        };
        let stream = self.submit(request, window)?;
        Ok(self.collect(stream).await?.tokens.into_iter().next())
    }

    /// Queues a generation of a window. A transcription that has begun is not refused: it holds a place from then on.
    fn submit(&mut self, request: Request, window: &SpeechWindow) -> Result<EventStream, Failure> {
        let place = std::mem::take(&mut self.place);
        self.model.submit_speech(request, window.clone(), place)
    }

    fn window_request(&self, input: Input, sampling: Sampling) -> Request {
        let Request { id, origin, model, class, priority, tenant, cache_salt, session_id, timeout_s, .. } =
            self.request.clone();
        let fresh = Request::new(id, input);
        Request {
            origin,
            model,
            sampling,
            class,
            priority,
            tenant,
            cache_salt,
            session_id,
            timeout_s,
            ..fresh
        }
    }

    async fn collect(&mut self, mut stream: EventStream) -> Result<Generated, Failure> {
        let mut generated = Generated { tokens: Vec::new(), text: String::new(), aligned: Vec::new() };
        while let Some(event) = stream.next().await {
            match event {
                Event::Delta { delta, tokens } => {
                    generated.tokens.extend(tokens);
                    if let Delta::Text(text) = delta {
                        generated.text.push_str(&text);
                    }
                }
                Event::Finished { usage, .. } => {
                    self.count(usage);
                    return Ok(generated);
                }
                Event::Failed(failure) => return Err(failure),
                Event::Alignment(aligned) => generated.aligned.push(aligned),
                Event::Started { .. }
                | Event::Prompt(_)
                | Event::Hidden(_)
                | Event::TokenLogits(_)
                | Event::Progress { .. } => {}
            }
        }
        Err(Failure::Engine { message: "the engine ended a window without its last event".to_owned() })
    }

    fn count(&mut self, usage: Usage) {
        self.usage.prompt_tokens += usage.prompt_tokens;
        self.usage.cached_tokens += usage.cached_tokens;
        self.usage.completion_tokens += usage.completion_tokens;
        self.usage.reasoning_tokens += usage.reasoning_tokens;
        self.usage.media.audio += usage.media.audio;
    }
}

fn quality_of(tokens: &[TokenInfo], text: &str, temperature: f32, no_speech_prob: f32) -> WindowQuality {
    let sum: f32 = tokens.iter().filter_map(|token| token.logprob).sum();
    WindowQuality {
        temperature,
        avg_logprob: sum / tokens.len().max(1) as f32,
        compression_ratio: quality::compression_ratio(text),
        no_speech_prob,
    }
}

/// Runs work of many milliseconds off the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let failed = |error| Failure::Engine { message: format!("a window of sound: {error}") };
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}
