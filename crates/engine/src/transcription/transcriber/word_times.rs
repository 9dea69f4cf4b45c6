//! The words of a window that was written down, and when they are spoken.

use std::ops::Range;

use super::{Generated, Transcriber};
use crate::alignment::Alignment;
use crate::error::Failure;
use crate::front::SpeechWindow;
use crate::request::{Input, Request, Sampling};
use crate::transcription::alignment::HeadWeights;
use crate::transcription::words::{SegmentWords, TimedWord};
use crate::transcription::{SpeechSegment, SpeechWord, words};
use crate::whisper::tokens::SpeechTokens;

/// Most bytes of the weights of a window: one message has them. Text after these is spoken where they end.
const WEIGHTS_BYTES_MAX: usize = 128 << 20;

impl Transcriber {
    /// Adds the words of segments.
    pub(super) async fn with_words(
        &mut self,
        mut segments: Vec<SpeechSegment>,
        window: &SpeechWindow,
        range: &Range<usize>,
        speech: &SpeechTokens,
    ) -> Result<Vec<SpeechSegment>, Failure> {
        let texts: Vec<Vec<u32>> = segments.iter().map(|segment| text_of(segment, speech)).collect();
        let text = texts.concat();
        if text.is_empty() {
            return Ok(segments);
        }
        let frames = self.first_frames(&text, window, self.steps(range), speech).await?;
        let (offset, code) = (self.seconds(range.start), self.language.as_ref().map(|of| of.code.clone()));
        let (mut of_segments, mut first) = (Vec::with_capacity(segments.len()), 0);
        for (segment, text) in segments.iter().zip(&texts) {
            let words = words::divide(text, code.as_deref(), |tokens| self.text(tokens, speech))?;
            let spoken = [segment.start_s, segment.end_s].map(|at| at - offset);
            of_segments.push(SegmentWords::new(words, first, spoken));
            first += text.len();
        }
        for (segment, words) in segments.iter_mut().zip(words::times(&of_segments, &frames)) {
            let word = |TimedWord { text, start_s, end_s }| SpeechWord {
                text,
                start_s: offset + start_s,
                end_s: offset + end_s,
            };
            segment.words = words.into_iter().map(word).collect();
        }
        Ok(segments)
    }

    /// The frame of the window where each token of a text begins, and where the last one ends: the text is read once more
    /// beside the window, by the heads that follow the sound. `frames`: those of the window.
    async fn first_frames(
        &mut self,
        text: &[u32],
        window: &SpeechWindow,
        frames: usize,
        speech: &SpeechTokens,
    ) -> Result<Vec<usize>, Failure> {
        let mut prompt = self.start_tokens(speech);
        prompt.push(speech.no_times);
        // A row predicts the token after it, so the first of the text has the row before it.
        let first = prompt.len() - 1;
        let of_token = speech.aligned_heads.len() * frames * size_of::<f32>();
        let most = self.context.min(WEIGHTS_BYTES_MAX / of_token.max(1));
        let most = most.saturating_sub(prompt.len() + 2);
        prompt.extend(text.iter().take(most));
        let rows = first..prompt.len();
        prompt.push(speech.end);
        let alignment = Alignment { heads: speech.aligned_heads.clone(), frames };
        let mut weights = HeadWeights::new(alignment.heads.len(), prompt.len(), frames);
        let request = Request {
            max_new_tokens: Some(0),
            alignment: Some(alignment),
            ..self.window_request(Input::Tokens(prompt), Sampling::greedy())
        };
        let stream = self.submit(request, window)?;
        let Generated { aligned, .. } = self.collect(stream).await?;
        let found = move || {
            aligned.iter().for_each(|tokens| weights.add(tokens));
            let missing =
                || Failure::Engine { message: "the engine reported no alignment of a window".to_owned() };
            weights.first_frames(rows).ok_or_else(missing)
        };
        super::blocking(found).await
    }
}

fn text_of(segment: &SpeechSegment, speech: &SpeechTokens) -> Vec<u32> {
    segment.tokens.iter().copied().filter(|token| speech.is_text(*token)).collect()
}
