//! Rows of floats as bytes, which pass from one process to another.
//!
//! Invariant: plain serializable values, with the bits of the arrays that they were. Rows that do not fit their sizes become no
//! array.

use bytes::Bytes;
use mlx::{Array, Dtype};
use omnibus_kv::FloatType;
use serde::{Deserialize, Serialize};

/// An array of rows, in row-major order and the machine's byte order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rows {
    /// How many.
    rows: u32,
    /// Elements of each.
    width: u32,
    float: FloatType,
    bytes: Bytes,
}

impl Rows {
    /// The rows of an array, `[rows, width]`, which is computed first.
    pub(super) fn of(array: &Array) -> mlx::Result<Self> {
        let [rows, width] = array.dims()?;
        let float = match array.dtype()? {
            Dtype::F32 => FloatType::F32,
            Dtype::F16 => FloatType::F16,
            Dtype::Bf16 => FloatType::Bf16,
            other => return Err(mlx::Error::new(format!("rows of floats, not of {other:?}"))),
        };
        Ok(Self { rows: rows as u32, width: width as u32, float, bytes: array.to_bytes()?.into() })
    }

    /// `[rows, width]`.
    pub(super) fn array(&self) -> mlx::Result<Array> {
        if u64::from(self.rows).checked_mul(self.row_bytes()) != Some(self.bytes.len() as u64) {
            return Err(mlx::Error::new(format!(
                "{} bytes are not {} rows of {}",
                self.bytes.len(),
                self.rows,
                self.width
            )));
        }
        let dtype = match self.float {
            FloatType::F32 => Dtype::F32,
            FloatType::F16 => Dtype::F16,
            FloatType::Bf16 => Dtype::Bf16,
        };
        Array::from_bytes(&self.bytes, &[self.rows as i32, self.width as i32], dtype)
    }

    /// How many rows.
    pub(super) fn len(&self) -> usize {
        self.rows as usize
    }

    /// Its rows in parts of so many bytes at most, unless one row has more. Without rows it is one part.
    pub(super) fn parts(self, bytes_max: u64) -> Vec<Self> {
        let row = self.row_bytes().max(1);
        let most = ((bytes_max / row).max(1) * row) as usize;
        if self.bytes.len() <= most {
            return vec![self];
        }
        let starts = (0..self.bytes.len()).step_by(most);
        let part = |start: usize| {
            let bytes = self.bytes.slice(start..self.bytes.len().min(start + most));
            Self { rows: (bytes.len() as u64 / row) as u32, bytes, ..self.clone() }
        };
        starts.map(part).collect()
    }

    fn row_bytes(&self) -> u64 {
        let element = match self.float {
            FloatType::F32 => 4,
            FloatType::F16 | FloatType::Bf16 => 2,
        };
        u64::from(self.width) * element
    }
}

/// What a pass of one stage of several gives to the next one, or to the sampler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PassRows {
    /// What the next stage begins with, but for the last stage.
    pub(super) stream: Option<Rows>,
    /// Of the rows that need logits, in parts, in order.
    pub(super) logits: Vec<Rows>,
    /// Hidden states of the final norm of the rows that are reported, in parts, in order.
    pub(super) hidden: Vec<Rows>,
}

/// Parts one after the other; `None` if there are none.
pub(super) fn joined(parts: &[Rows]) -> mlx::Result<Option<Array>> {
    let parts = parts.iter().map(Rows::array).collect::<mlx::Result<Vec<_>>>()?;
    match parts.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        several => mlx::concatenate(&several.iter().collect::<Vec<_>>(), 0).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_pass_with_their_bits_whole_and_in_parts() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let values: Vec<f32> = (0..21).map(|at| at as f32 * 0.37 - 3.0).collect();
            let array = Array::from_slice(&values, &[7, 3]).unwrap().astype(dtype).unwrap();
            let expected = array.to_bytes().unwrap();
            let rows = Rows::of(&array).unwrap();
            for (bytes_max, count) in [(1 << 20, 1), (3 * rows.row_bytes(), 3), (1, 7)] {
                let parts = rows.clone().parts(bytes_max);
                assert_eq!(parts.len(), count);
                let found = joined(&parts).unwrap().unwrap();
                assert_eq!(
                    (found.shape().to_vec(), found.to_bytes().unwrap()),
                    (vec![7, 3], expected.clone())
                );
            }
        }
        assert!(joined(&[]).unwrap().is_none());
    }

    #[test]
    fn sizes_that_do_not_fit_the_bytes_are_an_error() {
        let rows = Rows {
            rows: u32::MAX,
            width: u32::MAX,
            float: FloatType::F32,
            bytes: Bytes::from_static(&[0; 8]),
        };
        assert!(rows.array().unwrap_err().to_string().contains("8 bytes are not 4294967295 rows"));
    }
}
