//! Frames and bodies of transcriptions.

use std::fmt::Write as _;

use omnibus_engine::{SpeechSegment, SpeechSummary, SpeechTask, SpeechWord};

use crate::error::ApiError;
use crate::response::{Frames, JsonBody};
use crate::wire::transcription::{
    Segment, SpeechUsage, Transcript, TranscriptFormat, TranscriptFrame, VerboseTranscript, Word,
};

/// A body of one of the formats.
pub enum TranscriptBody {
    #[allow(missing_docs)]
    Json(JsonBody),
    /// Text of this content type.
    Text(&'static str, String),
}

/// What was written so far.
#[derive(Debug, Default)]
pub struct TranscriptSoFar {
    segments: Vec<SpeechSegment>,
    text: String,
}

impl TranscriptSoFar {
    /// Adds a segment. Gives the text that is new.
    pub fn add(&mut self, segment: SpeechSegment) -> String {
        let is_first = self.text.is_empty();
        let new = if is_first { segment.text.trim_start() } else { segment.text.as_str() }.to_owned();
        self.text.push_str(&new);
        self.segments.push(segment);
        new
    }

    /// The whole body.
    pub fn body(
        &self,
        format: TranscriptFormat,
        task: SpeechTask,
        summary: &SpeechSummary,
    ) -> TranscriptBody {
        let text = self.text.trim_end();
        match format {
            TranscriptFormat::Json => {
                TranscriptBody::Json(JsonBody::of(&Transcript { text, usage: usage(summary) }))
            }
            TranscriptFormat::Text => TranscriptBody::Text("text/plain; charset=utf-8", format!("{text}\n")),
            TranscriptFormat::Srt => TranscriptBody::Text("application/x-subrip; charset=utf-8", self.srt()),
            TranscriptFormat::Vtt => TranscriptBody::Text("text/vtt; charset=utf-8", self.vtt()),
            TranscriptFormat::VerboseJson(timed) => TranscriptBody::Json(JsonBody::of(&VerboseTranscript {
                task: match task {
                    SpeechTask::Transcribe => "transcribe",
                    SpeechTask::Translate => "translate",
                },
                language: summary.language.as_ref().map(|language| language.name.as_str()),
                duration: rounded(summary.duration_s),
                text,
                words: timed.lists_words().then(|| self.words().map(word).collect()),
                segments: timed.lists_segments().then(|| self.segments.iter().map(segment).collect()),
                usage: usage(summary),
            })),
        }
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

    /// The frame of new text.
    pub fn delta(&self, new: &str, frames: &mut Frames) {
        frames.data(&TranscriptFrame::Delta { delta: new });
    }

    /// The last frames.
    pub fn done(&self, summary: &SpeechSummary, frames: &mut Frames) {
        frames.data(&TranscriptFrame::Done { text: self.text.trim_end(), usage: usage(summary) });
        super::done(frames);
    }
}

/// The frames that end a stream which failed.
pub fn failed(error: &ApiError, frames: &mut Frames) {
    super::failed(error, frames);
}

fn usage(summary: &SpeechSummary) -> SpeechUsage {
    SpeechUsage { r#type: "duration", seconds: summary.duration_s.ceil() as u64 }
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

/// `hh:mm:ss` and milliseconds behind a mark.
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

    fn written() -> TranscriptSoFar {
        let mut so_far = TranscriptSoFar::default();
        so_far.add(segment(0, 0.0, 2.5, " Hello --> there,\n\n world"));
        so_far.add(segment(1, 3661.04, 3662.0, " and so on."));
        so_far
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
        assert_eq!(written().text, "Hello --> there,\n\n world and so on.");
    }
}
