//! A record of what linear layers take as inputs.

use super::Model;
use crate::input_squares::{InputSquares, InputSums};

impl Model {
    /// The mean squares of what linear layers take as inputs in the passes that `run` computes. It is given a function
    /// to call after each of them.
    pub fn input_squares<E: From<mlx::Error>>(
        &self,
        run: impl FnOnce(&mut dyn FnMut() -> mlx::Result<()>) -> Result<(), E>,
    ) -> Result<InputSquares, E> {
        self.adapters.inputs().replace(InputSums::default());
        let mut evaluate = || self.adapters.inputs().as_ref().map_or(Ok(()), InputSums::evaluate);
        let done = run(&mut evaluate);
        let sums = self.adapters.inputs().take().unwrap_or_default();
        done?;
        Ok(sums.means()?)
    }
}
