//! Asks a model that hears and converses to write down a window of sound.

use omnibus_text::{ContentPart, MediaIndex, Message, Role};

use super::{Language, SpeechTask};
use crate::media::{MediaItem, MediaSource};
use crate::request::{Chat, Input};

/// Bytes of a file's header.
const HEADER: u32 = 36;
/// The format code of floating-point samples.
const FLOATS: u16 = 3;

/// What the model is asked.
pub(super) fn input(
    window: (&[f32], u32),
    field: &str,
    task: SpeechTask,
    language: Option<&Language>,
    prompt: Option<&str>,
) -> Input {
    let item =
        MediaItem { field: field.to_owned(), source: MediaSource::Bytes(wav(window.0, window.1).into()) };
    let content =
        vec![ContentPart::Audio(MediaIndex(0)), ContentPart::Text(instruction(task, language, prompt))];
    Input::Chat(Chat {
        messages: vec![Message { content, ..Message::new(Role::User, "") }],
        media: vec![item],
        ..Chat::default()
    })
}

fn instruction(task: SpeechTask, language: Option<&Language>, prompt: Option<&str>) -> String {
    let spoken = language.map(|language| format!(" in {}", capitalized(&language.name))).unwrap_or_default();
    let task = match task {
        SpeechTask::Transcribe => {
            format!("Write down what is said{spoken} in this recording, word for word.")
        }
        SpeechTask::Translate => format!("Translate what is said{spoken} in this recording into English."),
    };
    let context = prompt.map(|prompt| format!(" It may follow this text: {prompt}")).unwrap_or_default();
    format!("{task} Answer with that text only.{context}")
}

fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Mono samples as a WAV file, exactly.
fn wav(samples: &[f32], rate: u32) -> Vec<u8> {
    let bytes = (4 * samples.len()) as u32;
    let mut file = Vec::with_capacity(8 + HEADER as usize + bytes as usize);
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&(HEADER + bytes).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt \x10\0\0\0");
    file.extend_from_slice(&FLOATS.to_le_bytes());
    file.extend_from_slice(&1u16.to_le_bytes());
    file.extend_from_slice(&rate.to_le_bytes());
    file.extend_from_slice(&(4 * rate).to_le_bytes());
    file.extend_from_slice(&4u16.to_le_bytes());
    file.extend_from_slice(&32u16.to_le_bytes());
    file.extend_from_slice(b"data");
    file.extend_from_slice(&bytes.to_le_bytes());
    samples.iter().for_each(|sample| file.extend_from_slice(&sample.to_le_bytes()));
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_file_with_the_same_samples() {
        let samples = [0.0, 0.25, -0.7, 1e-3];
        let decoded =
            omnibus_media::decode_audio(&wav(&samples, 16_000), &omnibus_media::Limits::default(), 16_000)
                .unwrap();
        assert_eq!(decoded.samples(), samples);
    }

    #[test]
    fn the_instruction_names_the_language() {
        let german = Language::find("de");
        let text = instruction(SpeechTask::Translate, Some(&german), Some("Omnibus"));
        assert!(
            text.contains("in German") && text.contains("into English") && text.ends_with("Omnibus"),
            "{text}"
        );
    }
}
