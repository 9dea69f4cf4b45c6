//! The start of a transcription: the request is checked and its sound decoded.

use std::sync::Arc;

use super::transcriber::{Transcriber, TranscriptionStream};
use super::{Language, SpeechTask, SpeechTimes, Transcription};
use crate::error::Failure;
use crate::event::Usage;
use crate::front::{Handle, LoadedModel};
use crate::whisper::tokens::SpeechTokens;

impl Handle {
    /// Decodes a sound and begins to transcribe it. Takes up to seconds of CPU for a long sound: async callers run it on a
    /// thread that may block.
    pub fn transcribe(&self, transcription: Transcription) -> Result<TranscriptionStream, Failure> {
        Ok(TranscriptionStream::new(transcriber(&self.loaded()?, transcription)?))
    }
}

fn transcriber(model: &Arc<LoadedModel>, transcription: Transcription) -> Result<Transcriber, Failure> {
    let Transcription { request, audio, task, language, prompt, temperature, times } = transcription;
    model.check_open()?;
    let place = model.admit(request.class, &request.tenant)?;
    let text = model.text_of(request.model.as_deref())?;
    let speech = text.speech().cloned();
    check_times(times, speech.as_deref())?;
    let language = spoken(language.as_deref(), task, speech.as_deref())?;
    let reader = text.media_reader(&audio.field)?;
    let sound = reader.sound(&audio)?;
    let before = match (&prompt, &speech) {
        (Some(prompt), Some(speech)) => {
            let mut tokens = text.tokens_of(&format!(" {}", prompt.trim()), "prompt")?;
            tokens.retain(|token| speech.is_text(*token));
            tokens
        }
        _ => Vec::new(),
    };
    Ok(Transcriber {
        window: reader.window_samples(),
        context: model.max_model_len(),
        model: Arc::clone(model),
        field: audio.field,
        request,
        sound,
        speech,
        task,
        language,
        prompt,
        before,
        temperature,
        done: 0,
        segments: 0,
        times,
        place,
        usage: Usage::default(),
    })
}

/// Refuses times that the model does not give.
fn check_times(times: SpeechTimes, speech: Option<&SpeechTokens>) -> Result<(), Failure> {
    match (times, speech) {
        (SpeechTimes::OfSegments { field } | SpeechTimes::OfWords { field }, None) => {
            Err(Failure::bad_request(field, "this model gives no times; use `json` or `text`"))
        }
        (SpeechTimes::OfWords { field }, Some(speech)) if speech.aligned_heads.is_empty() => {
            let message = "this checkpoint's generation_config.json does not list its model's `alignment_heads`, by which \
                           words are found; use `segment`";
            Err(Failure::bad_request(field, message))
        }
        _ => Ok(()),
    }
}

/// The language that is spoken, checked against those of the model.
fn spoken(
    requested: Option<&str>,
    task: SpeechTask,
    speech: Option<&SpeechTokens>,
) -> Result<Option<Language>, Failure> {
    let language = requested.map(Language::find);
    let Some(speech) = speech else { return Ok(language) };
    let is_english_alone = speech.languages.is_empty();
    if is_english_alone && task == SpeechTask::Translate {
        return Err(Failure::bad_request("model", "this model knows English only; it does not translate"));
    }
    let is_known = |language: &Language| match is_english_alone {
        true => language.code == "en",
        false => speech.languages.contains_key(&language.code),
    };
    match language {
        Some(language) if !is_known(&language) => {
            let known: Vec<&str> = speech.languages.keys().map(String::as_str).collect();
            let known = if is_english_alone { "en".to_owned() } else { known.join(", ") };
            let message =
                format!("`language`: the model does not know `{}`; it knows {known}", language.code);
            Err(Failure::bad_request("language", message))
        }
        None if is_english_alone => Ok(Some(Language::find("en"))),
        language => Ok(language),
    }
}
