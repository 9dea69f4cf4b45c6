//! Windows of sound: the encoder reads one at a time, and each is a generation of its own.

use super::LoadedModel;
use crate::error::Failure;
use crate::front::active_requests::Admission;
use crate::front::event_stream::EventStream;
use crate::front::media::{PromptMedia, SpeechWindow};
use crate::front::model_text::TokenizedPrompt;
use crate::request::{Input, Request};

impl LoadedModel {
    /// Whether the model transcribes speech and does nothing else.
    pub(crate) fn only_transcribes(&self) -> bool {
        self.text.speech().is_some()
    }

    /// Longest sequence, in tokens.
    pub(crate) fn max_model_len(&self) -> usize {
        self.limits.max_model_len
    }

    /// What the model's encoder takes of a window's samples.
    pub(crate) fn speech_window(&self, request: &Request, samples: &[f32]) -> Result<SpeechWindow, Failure> {
        let text = self.text_of(request.model.as_deref())?;
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
        self.check_open()?;
        let model = self.resolve(request.model.as_deref())?;
        self.queue(self.next_id(), (request, model), prompt, place)
    }
}
