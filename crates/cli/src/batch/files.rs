//! The files of `omnibus batch`, and what is wrong with them.

use std::path::Path;

use omnibus_batches::{Format, Input, InputError, Journal, Rules, URLS};

use crate::error::Error;

/// The requests. Fails with the first line that is none, by its number.
pub fn input(path: &Path) -> Result<Input, Error> {
    let rules = Rules { urls: URLS, lines_max: usize::MAX };
    Input::open(path, rules).map_err(|error| {
        let place = path.display();
        match error {
            InputError::Read(error) => Error::failed(format!("{place}: {error}")),
            InputError::Problems(problems) => {
                let first = problems.first().map(|problem| match problem.line {
                    Some(line) => format!("{place}:{line}: {}", problem.message),
                    None => format!("{place}: {}", problem.message),
                });
                Error::failed(first.unwrap_or_else(|| place.to_string()))
            }
        }
    })
}

/// The results, which are the journal as well.
pub fn journal(path: &Path) -> Result<Journal, Error> {
    let opened = Journal::open(path, None, Format::OpenAi);
    opened.map_err(|error| Error::failed(format!("{}: {error}", path.display())))
}
