//! Mean squares of what linear layers take as inputs: which weights matter for the outputs.

use std::collections::BTreeMap;

use mlx::{Array, Dtype};
use sha2::{Digest, Sha256};

/// The mean square of each input of linear layers, `[in]` f32, by the path of the layer's module in the checkpoint.
#[derive(Debug, Clone, Default)]
pub struct InputSquares(BTreeMap<String, Vec<f32>>);

impl InputSquares {
    /// How many modules have been seen.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no module has been seen.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Of a module's inputs.
    pub fn of(&self, path: &str) -> Option<&[f32]> {
        self.0.get(path).map(Vec::as_slice)
    }

    /// Half of the SHA-256 of all numbers.
    pub(crate) fn fingerprint(&self) -> u128 {
        let mut hash = Sha256::new();
        for (path, squares) in &self.0 {
            hash.update(path);
            squares.iter().for_each(|square| hash.update(square.to_le_bytes()));
        }
        let bytes = hash.finalize();
        bytes.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
    }
}

/// Rows of `elements` numbers, `inputs` each. Stacked experts have more numbers than an axis.
pub(crate) fn rows_of(elements: usize, inputs: i32) -> mlx::Result<i32> {
    let rows = elements / usize::try_from(inputs).unwrap_or(1).max(1);
    i32::try_from(rows).map_err(|_| mlx::Error::new(format!("{rows} rows are more than an axis has")))
}

/// Sums of squares while passes are recorded.
#[derive(Default)]
pub(crate) struct InputSums(BTreeMap<String, Sum>);

struct Sum {
    /// `[in]` f32
    squares: Array,
    rows: f64,
}

impl InputSums {
    /// Adds the rows `x`, `[.., in]`, that some modules take.
    pub(crate) fn add<'a>(&mut self, paths: impl Iterator<Item = &'a str>, x: &Array) -> mlx::Result<()> {
        let inputs = x.dim(-1)?;
        let rows = rows_of(x.size(), inputs)?;
        let flat = x.astype(Dtype::F32)?.reshape(&[rows, inputs])?;
        let squares = (&flat * &flat).sum(&[0])?;
        for path in paths {
            match self.0.get_mut(path) {
                Some(sum) => {
                    sum.squares = &sum.squares + &squares;
                    sum.rows += f64::from(rows);
                }
                None => {
                    let sum = Sum { squares: squares.clone(), rows: f64::from(rows) };
                    self.0.insert(path.to_owned(), sum);
                }
            }
        }
        Ok(())
    }

    /// Computes the sums so far, so that a pass's arrays can go.
    pub(crate) fn evaluate(&self) -> mlx::Result<()> {
        mlx::eval(self.0.values().map(|sum| &sum.squares))
    }

    /// The means of all rows.
    pub(crate) fn means(&self) -> mlx::Result<InputSquares> {
        let mean = |(path, sum): (&String, &Sum)| {
            let squares = sum.squares.to_vec::<f32>()?;
            let means = squares.into_iter().map(|square| (f64::from(square) / sum.rows.max(1.0)) as f32);
            Ok((path.clone(), means.collect()))
        };
        self.0.iter().map(mean).collect::<mlx::Result<_>>().map(InputSquares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_more_numbers_than_an_axis_has() {
        assert_eq!(rows_of(256 * 4096 * 7168, 7168).unwrap(), 256 * 4096);
        let error = rows_of(1 << 40, 4).unwrap_err().to_string();
        assert!(error.contains("274877906944 rows"), "{error}");
        assert_eq!(rows_of(0, 0).unwrap(), 0);
    }
}
