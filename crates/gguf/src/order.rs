//! Rows and columns that files have in another order than published checkpoints.
//!
//! Invariant: bytes and sizes only. A tensor whose size does not fit is left as it is, and the model's own checks refuse it.

/// Heads of linear attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinearHeads {
    /// Heads of queries and keys.
    pub k_heads: usize,
    /// Heads of values: a multiple of the former.
    pub v_heads: usize,
    /// Elements of a head of queries or keys.
    pub k_dim: usize,
    /// Elements of a head of values.
    pub v_dim: usize,
}

/// The order of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As published.
    AsPublished,
    /// Rows of heads of so many elements, with both elements of a rotated pair side by side.
    PairsSideBySide(usize),
    /// Rows of heads of values, behind so many rows of others: the first head of each key's, then the second of each.
    ValueRows {
        /// Rows in front of them.
        behind: usize,
        /// Rows of a head.
        head: usize,
        /// The heads.
        heads: LinearHeads,
    },
    /// Columns of heads of values, likewise.
    ValueColumns(LinearHeads),
}

impl Order {
    /// The bytes of a tensor in the file with its rows as published.
    pub fn rows(self, bytes: Vec<u8>, rows: usize) -> Vec<u8> {
        match self {
            Self::AsPublished | Self::ValueColumns(_) => bytes,
            Self::PairsSideBySide(head) => halves_apart(bytes, rows, head),
            Self::ValueRows { behind, head, heads } => {
                if rows == 0 || rows != behind + head * heads.v_heads {
                    return bytes;
                }
                let row_bytes = bytes.len() / rows;
                let (before, values) = bytes.split_at(behind * row_bytes);
                [before, &by_key(values, heads)].concat()
            }
        }
    }

    /// The bytes of a tensor to write with its columns as published.
    pub fn columns(self, bytes: Vec<u8>, rows: usize) -> Vec<u8> {
        match self {
            Self::ValueColumns(heads)
                if rows > 0 && bytes.len().is_multiple_of(rows * heads.v_heads) && !bytes.is_empty() =>
            {
                bytes.chunks_exact(bytes.len() / rows).flat_map(|row| by_key(row, heads)).collect()
            }
            _ => bytes,
        }
    }
}

/// Row `2i + j` of each head becomes row `j × half + i`.
fn halves_apart(bytes: Vec<u8>, rows: usize, head_dim: usize) -> Vec<u8> {
    if rows == 0 || !rows.is_multiple_of(head_dim) {
        return bytes;
    }
    let row_bytes = bytes.len() / rows;
    let mut out = Vec::with_capacity(bytes.len());
    for head in bytes.chunks_exact(row_bytes * head_dim) {
        for half in 0..2 {
            head.chunks_exact(row_bytes).skip(half).step_by(2).for_each(|row| out.extend(row));
        }
    }
    out
}

/// The heads of values of each key's head together.
fn by_key(values: &[u8], heads: LinearHeads) -> Vec<u8> {
    let head_bytes = values.len() / heads.v_heads;
    let mut out = Vec::with_capacity(values.len());
    for key in 0..heads.k_heads {
        let of_key = values.chunks_exact(head_bytes).skip(key).step_by(heads.k_heads);
        of_key.for_each(|head| out.extend(head));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: LinearHeads = LinearHeads { k_heads: 2, v_heads: 6, k_dim: 4, v_dim: 1 };

    #[test]
    fn heads_of_values_come_together_by_key() {
        // A digit for the key, and one for its value.
        let tiled = vec![11, 21, 12, 22, 13, 23];
        let published = vec![11, 12, 13, 21, 22, 23];
        let rows = Order::ValueRows { behind: 1, head: 1, heads: HEADS };
        assert_eq!(rows.rows([vec![0], tiled.clone()].concat(), 7), [vec![0], published.clone()].concat());
        let columns = Order::ValueColumns(HEADS);
        assert_eq!(
            columns.columns([tiled.clone(), tiled].concat(), 2),
            [published.clone(), published].concat()
        );
    }
}
