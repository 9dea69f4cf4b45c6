//! Errors of a command, with their exit codes.

use std::fmt;

/// An error of a command.
#[derive(Debug)]
pub enum Error {
    /// Wrong usage: exit code 2.
    Usage(String),
    /// The work failed: exit code 1.
    Failed(String),
}

impl Error {
    /// Wrong usage.
    pub fn usage(why: impl fmt::Display) -> Self {
        Self::Usage(why.to_string())
    }

    /// The work failed.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::Failed(why.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) | Self::Failed(why) => formatter.write_str(why),
        }
    }
}
