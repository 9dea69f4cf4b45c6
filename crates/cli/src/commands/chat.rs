//! `omnibus chat`: chat in the terminal.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use omnibus_engine::{
    ContentPart, Handle, MediaIndex, MediaItem, Message, Request, Role, Settings as EngineSettings,
};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::completion_output::{self, Completion};
use crate::error::Error;
use crate::settings::Config;
use crate::{environment, model, output};

/// The temperature of an answer that is generated again, where that of others is 0.
const RETRY_TEMPERATURE: f32 = 0.7;

/// The slash commands.
const COMMANDS: &[(&str, &str)] = &[
    ("/help", "list the commands"),
    ("/reset", "clear the conversation"),
    ("/system TEXT", "clear the conversation and set the system prompt"),
    ("/image FILE", "show an image with the next message, to models that see"),
    ("/video FILE", "show a video with the next message, to models that see videos"),
    ("/audio FILE", "play audio with the next message, to models that hear"),
    ("/retry", "answer the last message again, sampled anew"),
    ("/quit", "quit, as does Ctrl-D"),
];

/// Runs a chat session until `/quit` or Ctrl-D.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let source = model::source(config.model.as_deref(), &[])?;
    // One sequence: pools have room for the longest, not for a server's load.
    let engine = EngineSettings { max_num_seqs: 1, ..model::with_local_draft(config.engine.clone())? };
    let handle = omnibus_engine::start(vec![source], engine).map_err(Error::failed)?;
    let mut editor = DefaultEditor::new().map_err(Error::failed)?;
    let history = history();
    if let Some(path) = &history {
        // The file does not exist the first time.
        _ = editor.load_history(path);
    }
    output::note(greeting(&handle));
    let mut session = ChatSession {
        config,
        handle,
        system: config.prompt.system.clone(),
        messages: Vec::new(),
        media: Vec::new(),
        next: Vec::new(),
        retries: 0,
    };
    while let Some(line) = read(&mut editor)? {
        if session.handle_line(&line)? == Flow::Quit {
            break;
        }
    }
    if let Some(path) = &history {
        save(&mut editor, path);
    }
    Ok(ExitCode::SUCCESS)
}

/// Which model answers, and how to go on.
fn greeting(handle: &Handle) -> String {
    let models = handle.models();
    let model = models.first().map(|model| {
        let context = model.details().map(|details| format!(", {} tokens of context", details.max_model_len));
        format!("{}{}. ", model.id, context.unwrap_or_default())
    });
    format!("{}/help lists the commands; Ctrl-C cancels an answer, Ctrl-D quits.", model.unwrap_or_default())
}

fn read(editor: &mut DefaultEditor) -> Result<Option<String>, Error> {
    match editor.readline("> ") {
        Ok(line) => {
            // A line that cannot be stored in the history is answered all the same.
            _ = editor.add_history_entry(&line);
            Ok(Some(line))
        }
        Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
        Err(ReadlineError::Eof) => Ok(None),
        Err(error) => Err(Error::failed(error)),
    }
}

fn history() -> Option<PathBuf> {
    let state = environment::user_folder("XDG_STATE_HOME", ".local/state")?;
    Some(state.join("omnibus").join("chat_history"))
}

fn save(editor: &mut DefaultEditor, path: &PathBuf) {
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let saved = folder.map_err(|error| error.to_string());
    if let Err(why) = saved.and_then(|()| editor.save_history(path).map_err(|error| error.to_string())) {
        output::note(format!("cannot save the history: {why}"));
    }
}

#[derive(PartialEq, Eq)]
enum Flow {
    Continue,
    Quit,
}

struct ChatSession<'a> {
    config: &'a Config,
    handle: Handle,
    system: Option<String>,
    messages: Vec<Message>,
    /// The media of the messages, and after them those of the next one.
    media: Vec<MediaItem>,
    /// The parts of the next message that refer to them.
    next: Vec<ContentPart>,
    /// How often the last message was answered again.
    retries: u64,
}

impl ChatSession<'_> {
    fn handle_line(&mut self, line: &str) -> Result<Flow, Error> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match word {
            "" => {}
            "/quit" | "/exit" => return Ok(Flow::Quit),
            "/help" => self.help(),
            "/reset" => {
                self.reset();
                output::note("the conversation begins anew");
            }
            "/image" => self.attach(rest, ContentPart::Image),
            "/video" => self.attach(rest, ContentPart::Video),
            "/audio" => self.attach(rest, ContentPart::Audio),
            "/system" => {
                self.reset();
                self.system = (!rest.is_empty()).then(|| rest.trim().to_owned());
                output::note(match &self.system {
                    Some(_) => "the system prompt is set; the conversation begins anew",
                    None => "there is no system prompt now; the conversation begins anew",
                });
            }
            "/retry" => self.retry()?,
            word if word.starts_with('/') => {
                output::note(format!("unknown command {word}; /help lists the commands"))
            }
            _ => {
                let (parts, all) = (std::mem::take(&mut self.next), self.media.len());
                let before = all - parts.len();
                self.retries = 0;
                self.ask(completion_output::question(line, parts))?;
                if self.messages.last().map(|message| &message.role) != Some(&Role::Assistant) {
                    self.media.truncate(before);
                }
            }
        }
        Ok(Flow::Continue)
    }

    /// Reads a file that goes with the next message.
    fn attach(&mut self, path: &str, part: fn(MediaIndex) -> ContentPart) {
        match completion_output::media(Path::new(path.trim())) {
            Ok(item) => {
                self.next.push(part(MediaIndex(self.media.len())));
                self.media.push(item);
            }
            Err(error) => output::note(format!("error: {error}")),
        }
    }

    fn reset(&mut self) {
        self.messages.clear();
        self.media.clear();
        self.next.clear();
    }

    fn help(&self) {
        for (command, about) in COMMANDS {
            output::note(format!("{command:<14} {about}"));
        }
    }

    fn retry(&mut self) -> Result<(), Error> {
        while self.messages.last().is_some_and(|message| message.role == Role::Assistant) {
            self.messages.pop();
        }
        match self.messages.pop() {
            Some(question) => {
                self.retries += 1;
                if self.config.prompt.sampling.temperature == 0.0 {
                    output::note(format!(
                        "the temperature is 0, which gives the same answer: this one is sampled at {RETRY_TEMPERATURE}"
                    ));
                }
                self.ask(question)
            }
            None => {
                output::note("there is no message to answer again");
                Ok(())
            }
        }
    }

    /// Answers a message. When that fails, removes the message and continues the conversation.
    fn ask(&mut self, question: Message) -> Result<(), Error> {
        self.messages.push(question);
        let system = self.system.as_deref().map(|system| Message::new(Role::System, system));
        let messages = system.into_iter().chain(self.messages.iter().cloned()).collect();
        let input = completion_output::chat(messages, self.media.clone());
        let mut request = completion_output::request(self.config, input);
        // A seed that was chosen gives the same answer again; each retry has one of its own.
        request.sampling.seed = request.sampling.seed.map(|seed| seed.wrapping_add(self.retries));
        if self.retries > 0 && request.sampling.temperature == 0.0 {
            request.sampling.temperature = RETRY_TEMPERATURE;
        }
        match self.answer(request) {
            Ok(completion) => {
                completion_output::print_stats(self.config, &self.handle, &completion);
                self.messages.push(Message::new(Role::Assistant, &completion.text));
            }
            Err(error) => {
                self.messages.pop();
                output::note(format!("error: {error}"));
            }
        }
        Ok(())
    }

    /// Generates an answer. Ctrl-C cancels it and keeps the text so far.
    fn answer(&self, request: Request) -> Result<Completion, Error> {
        let id = request.id.clone();
        let events = self.handle.submit(request).map_err(Error::failed)?;
        completion_output::runtime()?.block_on(async {
            let mut printed = std::pin::pin!(completion_output::print_wrapped(events));
            tokio::select! {
                completion = &mut printed => completion,
                _ = tokio::signal::ctrl_c() => {
                    self.handle.cancel(&id);
                    printed.await
                }
            }
        })
    }
}
