//! Transcriptions: sounds are decoded here, and windows of them queued.

use super::Handle;
use crate::front::event_stream::EventStream;
use crate::front::media::{PromptMedia, SpeechWindow};
use crate::front::model_text::TokenizedPrompt;
use crate::registry::Admission;
use crate::request::{Input, Request};
use crate::transcription::tokens::SpeechTokens;
use crate::transcription::{
    Language, SpeechTask, SpeechTimes, Transcriber, Transcription, TranscriptionStream,
};
use crate::{Failure, Usage};

impl Handle {
    /// Decodes a sound and begins to write it down. Takes up to seconds of CPU for a long sound: async callers run it on a
    /// thread that may block.
    pub fn transcribe(&self, transcription: Transcription) -> Result<TranscriptionStream, Failure> {
        let shared = &*self.0;
        let Transcription { request, audio, task, language, prompt, temperature, times } = transcription;
        shared.check_open()?;
        let place = shared.admit(&request.tenant)?;
        let text = shared.text_of(request.model.as_deref())?;
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
        Ok(TranscriptionStream::new(Transcriber {
            handle: self.clone(),
            window: reader.window_samples(),
            field: audio.field,
            request,
            sound,
            speech,
            task,
            language,
            prompt,
            before,
            temperature,
            context: shared.info.max_model_len,
            done: 0,
            segments: 0,
            times,
            place,
            usage: Usage::default(),
        }))
    }

    /// Whether the model writes down speech and does nothing else.
    pub fn writes_speech_only(&self) -> bool {
        self.0.text.speech().is_some()
    }

    /// What the model's encoder takes of a window's samples.
    pub(crate) fn speech_window(&self, request: &Request, samples: &[f32]) -> Result<SpeechWindow, Failure> {
        let text = self.0.text_of(request.model.as_deref())?;
        text.media_reader("file")?.window(samples)
    }

    /// Queues a generation whose rows all attend to a window of sound. The input of the request is in tokens.
    pub(crate) fn submit_speech(
        &self,
        request: Request,
        window: SpeechWindow,
        place: Admission,
    ) -> Result<EventStream, Failure> {
        let Input::Tokens(tokens) = &request.input else {
            return Err(Failure::Engine { message: "the prompt of a window is in tokens".to_owned() });
        };
        let prompt = TokenizedPrompt::of_tokens(tokens.clone(), PromptMedia::crossed(window.0));
        let shared = &*self.0;
        shared.check_open()?;
        let model = shared.resolve(request.model.as_deref())?;
        self.queue(shared.next_id(), (request, model), prompt, place)
    }
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
