//! From the states of a text's tokens to one vector.

/// How.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolingMode {
    /// The first token's state.
    Cls,
    /// The largest of each number.
    Max,
    /// The mean.
    Mean,
    /// The sum over the root of the count.
    MeanSqrt,
    /// The mean with weights that grow with the position.
    WeightedMean,
    /// The last token's state.
    Last,
}

impl PoolingMode {
    /// As sentence-transformers names them, in the order of their vectors where a model has several.
    pub(crate) const NAMED: [(&'static str, Self); 6] = [
        ("cls", Self::Cls),
        ("max", Self::Max),
        ("mean", Self::Mean),
        ("mean_sqrt_len_tokens", Self::MeanSqrt),
        ("weightedmean", Self::WeightedMean),
        ("lasttoken", Self::Last),
    ];
}

/// Rows of a text that pooling reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// The last alone.
    Last,
    /// All.
    All,
    /// Of each token of the vocabulary the largest logit over all rows, in one row.
    Vocabulary,
}

impl Rows {
    pub(crate) fn of(modes: &[PoolingMode]) -> Self {
        if modes.iter().all(|mode| *mode == PoolingMode::Last) { Self::Last } else { Self::All }
    }
}

/// The vectors of all modes, one behind the other. `skipped`: first rows that the others leave out.
pub(crate) fn pool(modes: &[PoolingMode], rows: &[f32], width: usize, skipped: usize) -> Vec<f32> {
    let all: Vec<&[f32]> = rows.chunks_exact(width.max(1)).collect();
    let counted = all.get(skipped.min(all.len().saturating_sub(1))..).unwrap_or(&[]);
    modes.iter().flat_map(|mode| pooled(*mode, &all, counted, width)).collect()
}

fn pooled(mode: PoolingMode, all: &[&[f32]], counted: &[&[f32]], width: usize) -> Vec<f32> {
    let count = counted.len().max(1) as f64;
    let row = |row: Option<&&[f32]>| row.map(|row| row.to_vec()).unwrap_or_else(|| vec![0.0; width]);
    match mode {
        PoolingMode::Cls => row(all.first()),
        PoolingMode::Last => row(all.last()),
        PoolingMode::Max => {
            let mut most = vec![f32::NEG_INFINITY; width];
            for row in counted {
                most.iter_mut().zip(*row).for_each(|(most, number)| *most = most.max(*number));
            }
            most
        }
        PoolingMode::Mean => sum(counted, width, |_| 1.0, count),
        PoolingMode::MeanSqrt => sum(counted, width, |_| 1.0, count.sqrt()),
        PoolingMode::WeightedMean => sum(counted, width, |at| (at + 1) as f64, count * (count + 1.0) / 2.0),
    }
}

fn sum(rows: &[&[f32]], width: usize, weight: impl Fn(usize) -> f64, divisor: f64) -> Vec<f32> {
    let mut sums = vec![0f64; width];
    for (at, row) in rows.iter().enumerate() {
        let weight = weight(at);
        sums.iter_mut().zip(*row).for_each(|(sum, number)| *sum += weight * f64::from(*number));
    }
    sums.into_iter().map(|sum| (sum / divisor) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_their_values() {
        let rows = [1.0, 10.0, 3.0, -2.0, 5.0, 4.0];
        let of = |mode| pool(&[mode], &rows, 2, 0);
        assert_eq!(of(PoolingMode::Cls), [1.0, 10.0]);
        assert_eq!(of(PoolingMode::Last), [5.0, 4.0]);
        assert_eq!(of(PoolingMode::Max), [5.0, 10.0]);
        assert_eq!(of(PoolingMode::Mean), [3.0, 4.0]);
        assert_eq!(of(PoolingMode::WeightedMean), [22.0 / 6.0, 3.0]);
        assert_eq!(pool(&[PoolingMode::Mean], &rows, 2, 1), [4.0, 1.0]);
        // A prompt alone still has a vector.
        assert_eq!(pool(&[PoolingMode::Mean], &rows, 2, 9), [5.0, 4.0]);
        assert_eq!(pool(&[PoolingMode::Cls, PoolingMode::Last], &rows, 2, 1), [1.0, 10.0, 5.0, 4.0]);
    }
}
