//! Why a command did not do what it was asked.

use std::fmt;

/// Two remedies: ask differently, or mend the world.
#[derive(Debug)]
pub enum Error {
    /// Exit code 2.
    Usage(String),
    /// Exit code 1.
    Failed(String),
}

impl Error {
    /// The command was asked for in a way it does not understand.
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
