//! The one error of this crate.

use std::path::PathBuf;

use thiserror::Error;

use crate::config::ConfigError;
use crate::weights::LoadError;

/// Why a model cannot be loaded or run. Loading errors name the file and what to do.
#[derive(Debug, Error)]
pub enum Error {
    /// The config is not one we can run.
    #[error("{}: {error}", file.display())]
    Config {
        /// The config file.
        file: PathBuf,
        /// What is wrong with it.
        error: Box<ConfigError>,
    },
    /// The weights do not fit the config.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// MLX failed.
    #[error(transparent)]
    Mlx(#[from] mlx::Error),
}
