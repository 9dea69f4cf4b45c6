//! The framer of transcriptions, and the formats of their bodies.

use std::fmt::Write as _;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use omnibus_engine::{SpeechSegment, SpeechTask, SpeechWord, TranscriptionEvent, Usage};

use crate::error::ApiError;
use crate::response::{Completion, Event, Framer, Frames, JsonBody, Transcript};
use crate::wire::transcription::{
    self as wire, Segment, SpeechUsage, TranscriptFormat, TranscriptFrame, VerboseTranscript, Word,
};

/// A body of one of the formats.
pub enum TranscriptBody {
    #[allow(missing_docs)]
    Json(JsonBody),
    /// Text of this content type.
    Text(&'static str, String),
}

impl IntoResponse for TranscriptBody {
    fn into_response(self) -> Response {
        match self {
            Self::Json(body) => body.into_response(),
            Self::Text(kind, text) => ([(CONTENT_TYPE, kind)], text).into_response(),
        }
    }
}

/// Frames transcriptions.
#[derive(Debug)]
pub struct TranscriptFramer {
    format: TranscriptFormat,
    task: SpeechTask,
    /// The text that was sent.
    text: String,
    /// Once it is finished.
    duration_s: f64,
}

impl TranscriptFramer {
    /// The framer of one response.
    pub fn new(format: TranscriptFormat, task: SpeechTask) -> Self {
        Self { format, task, text: String::new(), duration_s: 0.0 }
    }
}

impl Framer for TranscriptFramer {
    type Body = TranscriptBody;

    fn start(&mut self, _frames: &mut Frames) {}

    fn event(&mut self, _choice: usize, event: Event, frames: &mut Frames) {
        match event {
            Event::Speech(TranscriptionEvent::Segment(segment)) => {
                let delta = new_text(&self.text, &segment);
                frames.data(&TranscriptFrame::Delta { delta });
                self.text.push_str(delta);
            }
            Event::Speech(TranscriptionEvent::Finished(summary)) => self.duration_s = summary.duration_s,
            Event::Speech(TranscriptionEvent::Failed(_))
            | Event::Engine(_)
            | Event::Tool(_)
            | Event::Failed(_) => {}
        }
    }

    fn finish(&mut self, _usage: Usage, frames: &mut Frames) {
        let text = self.text.trim_end();
        frames.data(&TranscriptFrame::Done { text, usage: usage(self.duration_s) });
        super::done(frames);
    }

    fn fail(&mut self, error: &ApiError, frames: &mut Frames) {
        super::failed(error, frames);
    }

    fn full(self, completions: Vec<Completion>, _usage: Usage) -> TranscriptBody {
        let completion = completions.into_iter().next().unwrap_or_default();
        body(&completion.transcript, self.format, self.task)
    }
}

/// What a segment adds to the text so far.
fn new_text<'a>(text: &str, segment: &'a SpeechSegment) -> &'a str {
    if text.is_empty() { segment.text.trim_start() } else { &segment.text }
}

/// The whole body.
fn body(transcript: &Transcript, format: TranscriptFormat, task: SpeechTask) -> TranscriptBody {
    let text = transcript.text();
    let text = text.trim_end();
    let summary = transcript.summary.as_ref();
    let duration_s = summary.map_or(0.0, |summary| summary.duration_s);
    match format {
        TranscriptFormat::Json => {
            TranscriptBody::Json(JsonBody::of(&wire::Transcript { text, usage: usage(duration_s) }))
        }
        TranscriptFormat::Text => TranscriptBody::Text("text/plain; charset=utf-8", format!("{text}\n")),
        TranscriptFormat::Srt => {
            TranscriptBody::Text("application/x-subrip; charset=utf-8", transcript.srt())
        }
        TranscriptFormat::Vtt => TranscriptBody::Text("text/vtt; charset=utf-8", transcript.vtt()),
        TranscriptFormat::VerboseJson(timed) => TranscriptBody::Json(JsonBody::of(&VerboseTranscript {
            task: match task {
                SpeechTask::Transcribe => "transcribe",
                SpeechTask::Translate => "translate",
            },
            language: summary.and_then(|summary| Some(summary.language.as_ref()?.name.as_str())),
            duration: rounded(duration_s),
            text,
            words: timed.lists_words().then(|| transcript.words().map(word).collect()),
            segments: timed.lists_segments().then(|| transcript.segments.iter().map(segment).collect()),
            usage: usage(duration_s),
        })),
    }
}

impl Transcript {
    /// The segments' texts, one after the other.
    fn text(&self) -> String {
        let mut text = String::new();
        for segment in &self.segments {
            let new = new_text(&text, segment).to_owned();
            text.push_str(&new);
        }
        text
    }

    fn words(&self) -> impl Iterator<Item = &SpeechWord> {
        self.segments.iter().flat_map(|segment| &segment.words)
    }

    fn srt(&self) -> String {
        let mut file = String::new();
        for (index, SpeechSegment { start_s, end_s, text, .. }) in self.segments.iter().enumerate() {
            let (start, end) = (clock(*start_s, ','), clock(*end_s, ','));
            let _infallible = write!(file, "{}\n{start} --> {end}\n{}\n\n", index + 1, cue(text));
        }
        file
    }

    fn vtt(&self) -> String {
        let mut file = "WEBVTT\n\n".to_owned();
        for SpeechSegment { start_s, end_s, text, .. } in &self.segments {
            let (start, end) = (clock(*start_s, '.'), clock(*end_s, '.'));
            let _infallible = write!(file, "{start} --> {end}\n{}\n\n", cue(text));
        }
        file
    }
}

fn usage(duration_s: f64) -> SpeechUsage {
    SpeechUsage { r#type: "duration", seconds: duration_s.ceil() as u64 }
}

fn segment(of: &SpeechSegment) -> Segment<'_> {
    Segment {
        id: of.number,
        seek: (of.window_s * 100.0).round() as u64,
        start: rounded(of.start_s),
        end: rounded(of.end_s),
        text: &of.text,
        tokens: &of.tokens,
        temperature: of.quality.temperature,
        avg_logprob: of.quality.avg_logprob,
        compression_ratio: of.quality.compression_ratio,
        no_speech_prob: of.quality.no_speech_prob,
    }
}

fn word(of: &SpeechWord) -> Word<'_> {
    Word { word: &of.text, start: rounded(of.start_s), end: rounded(of.end_s) }
}

/// To the millisecond.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

/// `hh:mm:ss` and milliseconds after a mark.
fn clock(seconds: f64, mark: char) -> String {
    let ms = (seconds * 1000.0).round() as u64;
    let (hours, minutes) = (ms / 3_600_000, ms / 60_000 % 60);
    format!("{hours:02}:{minutes:02}:{:02}{mark}{:03}", ms / 1000 % 60, ms % 1000)
}

/// Text that cannot be taken for a time or for the end of a cue.
fn cue(text: &str) -> String {
    let lines = text.trim().lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n").replace("-->", "->")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: usize, start_s: f64, end_s: f64, text: &str) -> SpeechSegment {
        let (tokens, quality) = (Vec::new(), omnibus_engine::WindowQuality::default());
        let text = text.to_owned();
        SpeechSegment { number, window_s: 0.0, start_s, end_s, text, tokens, words: Vec::new(), quality }
    }

    fn written() -> Transcript {
        let segments = vec![
            segment(0, 0.0, 2.5, " Hello --> there,\n\n world"),
            segment(1, 3661.04, 3662.0, " and so on."),
        ];
        Transcript { segments, summary: None }
    }

    #[test]
    fn subtitles_have_times_and_safe_text() {
        let expected = "1\n00:00:00,000 --> 00:00:02,500\nHello -> there,\nworld\n\n\
                        2\n01:01:01,040 --> 01:01:02,000\nand so on.\n\n";
        assert_eq!(written().srt(), expected);
        assert!(written().vtt().starts_with("WEBVTT\n\n00:00:00.000 --> 00:00:02.500\nHello"));
    }

    #[test]
    fn texts_follow_one_another_as_the_model_wrote_them() {
        assert_eq!(written().text(), "Hello --> there,\n\n world and so on.");
    }
}
