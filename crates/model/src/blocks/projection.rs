//! A projection of the stream, perhaps through a narrow vector.

use mlx::Array;

use super::Linear;
use crate::weights::{LoadError, Store};

/// `<name>_proj`, or `<name>_a_proj` to a narrow vector and `<name>_b_proj` from it.
pub(crate) struct Projection {
    to_narrow: Option<Linear>,
    last: Linear,
}

impl Projection {
    pub(crate) fn load(
        store: &mut Store,
        path: &str,
        name: &str,
        rank: Option<usize>,
    ) -> Result<Self, LoadError> {
        let mut linear = |part: &str| store.linear(&format!("{path}.{name}{part}_proj"));
        Ok(match rank {
            None => Self { to_narrow: None, last: linear("")? },
            Some(_) => Self { to_narrow: Some(linear("_a")?), last: linear("_b")? },
        })
    }

    pub(crate) fn forward(&self, x: &Array) -> mlx::Result<Array> {
        match &self.to_narrow {
            Some(to_narrow) => self.last.forward(&to_narrow.forward(x)?),
            None => self.last.forward(x),
        }
    }
}
