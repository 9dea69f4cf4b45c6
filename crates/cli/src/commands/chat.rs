//! `omnibus chat`: a conversation in the terminal.

use std::path::PathBuf;
use std::process::ExitCode;

use omnibus_engine::{Handle, Request};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use serde_json::Value;

use super::say::{self, Said};
use crate::error::Error;
use crate::settings::Config;
use crate::{model, output};

/// What a line that begins with a slash does.
const COMMANDS: &[(&str, &str)] = &[
    ("/help", "show this"),
    ("/reset", "forget the conversation"),
    ("/system TEXT", "forget the conversation, and tell the model this before the next"),
    ("/retry", "answer the last question again"),
    ("/quit", "leave; so does Ctrl-D"),
];

/// Talks until the user has had enough.
pub fn run(config: &Config) -> Result<ExitCode, Error> {
    let source = model::source(config.model.as_deref(), &[])?;
    let handle = omnibus_engine::start(vec![source], config.engine.clone()).map_err(Error::failed)?;
    let mut editor = DefaultEditor::new().map_err(Error::failed)?;
    let history = history();
    if let Some(path) = &history {
        // There is none the first time.
        _ = editor.load_history(path);
    }
    output::note("/help shows what else there is; Ctrl-C stops an answer, Ctrl-D leaves.");
    let mut talk = Talk { config, handle, system: config.prompt.system.clone(), messages: Vec::new() };
    while let Some(line) = read(&mut editor)? {
        if talk.hear(&line)? == Next::Leave {
            break;
        }
    }
    if let Some(path) = &history {
        save(&mut editor, path);
    }
    Ok(ExitCode::SUCCESS)
}

fn read(editor: &mut DefaultEditor) -> Result<Option<String>, Error> {
    match editor.readline("> ") {
        Ok(line) => {
            // A line that cannot be remembered can be answered all the same.
            _ = editor.add_history_entry(&line);
            Ok(Some(line))
        }
        Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
        Err(ReadlineError::Eof) => Ok(None),
        Err(error) => Err(Error::failed(error)),
    }
}

fn history() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local").join("state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home)?;
    Some(state.join("omnibus").join("chat_history"))
}

fn save(editor: &mut DefaultEditor, path: &PathBuf) {
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let saved = folder.map_err(|error| error.to_string());
    if let Err(why) = saved.and_then(|()| editor.save_history(path).map_err(|error| error.to_string())) {
        output::note(format!("the history was not saved: {why}"));
    }
}

#[derive(PartialEq, Eq)]
enum Next {
    Stay,
    Leave,
}

struct Talk<'a> {
    config: &'a Config,
    handle: Handle,
    system: Option<String>,
    messages: Vec<Value>,
}

impl Talk<'_> {
    fn hear(&mut self, line: &str) -> Result<Next, Error> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match word {
            "" => {}
            "/quit" | "/exit" => return Ok(Next::Leave),
            "/help" => self.help(),
            "/reset" => self.messages.clear(),
            "/system" => {
                self.messages.clear();
                self.system = (!rest.is_empty()).then(|| rest.trim().to_owned());
            }
            "/retry" => self.retry()?,
            word if word.starts_with('/') => {
                output::note(format!("there is no {word}; /help shows what there is"))
            }
            _ => self.say(line)?,
        }
        Ok(Next::Stay)
    }

    fn help(&self) {
        for (command, about) in COMMANDS {
            output::note(format!("{command:<14} {about}"));
        }
    }

    fn retry(&mut self) -> Result<(), Error> {
        while self.messages.last().is_some_and(|message| message["role"] == "assistant") {
            self.messages.pop();
        }
        match self.messages.pop() {
            Some(question) => self.say(question["content"].as_str().unwrap_or_default()),
            None => {
                output::note("there is nothing to answer again");
                Ok(())
            }
        }
    }

    /// A question that fails is forgotten; the conversation goes on.
    fn say(&mut self, question: &str) -> Result<(), Error> {
        self.messages.push(say::message("user", question));
        let system = self.system.as_deref().map(|system| say::message("system", system));
        let messages = system.into_iter().chain(self.messages.iter().cloned()).collect();
        match self.answer(say::request(self.config, say::chat(messages))) {
            Ok(said) => {
                say::report(self.config, &self.handle, &said);
                self.messages.push(say::message("assistant", &said.text));
            }
            Err(error) => {
                self.messages.pop();
                output::note(format!("error: {error}"));
            }
        }
        Ok(())
    }

    /// Ctrl-C ends the answer and keeps what there is of it.
    fn answer(&self, request: Request) -> Result<Said, Error> {
        let id = request.id.clone();
        let events = self.handle.submit(request).map_err(Error::failed)?;
        say::runtime()?.block_on(async {
            let mut shown = std::pin::pin!(say::show(events));
            tokio::select! {
                said = &mut shown => said,
                _ = tokio::signal::ctrl_c() => {
                    self.handle.cancel(&id);
                    shown.await
                }
            }
        })
    }
}
