//! What follows pooling: dense layers and normalization.

use std::sync::Arc;

use crate::activation::Activation;

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Dense(Dense),
    /// To the length 1.
    Normalize,
    /// Layer norm.
    Norm {
        weight: Arc<[f32]>,
        bias: Arc<[f32]>,
        eps: f32,
    },
}

/// `act(weight · x + bias)`
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dense {
    /// `[outputs, inputs]`
    pub(crate) weight: Arc<[f32]>,
    pub(crate) inputs: usize,
    pub(crate) bias: Arc<[f32]>,
    pub(crate) act: Activation,
}

impl Step {
    pub(crate) fn apply(&self, x: &[f32]) -> Vec<f32> {
        match self {
            Self::Dense(dense) => dense.apply(x),
            Self::Normalize => normalized(x.to_vec()),
            Self::Norm { weight, bias, eps } => normed(x, weight, bias, *eps),
        }
    }

    /// Whether it reads vectors of this width.
    pub(crate) fn fits(&self, width: usize) -> bool {
        match self {
            Self::Dense(dense) => {
                let outputs = dense.weight.len() / dense.inputs.max(1);
                dense.inputs == width && (dense.bias.is_empty() || dense.bias.len() == outputs)
            }
            Self::Norm { weight, bias, .. } => {
                weight.len() == width && (bias.is_empty() || bias.len() == width)
            }
            Self::Normalize => true,
        }
    }

    /// The width of what it gives, if it is another than that of what it reads.
    pub(crate) fn outputs(&self) -> Option<usize> {
        match self {
            Self::Dense(dense) => Some(dense.weight.len() / dense.inputs.max(1)),
            Self::Normalize | Self::Norm { .. } => None,
        }
    }
}

impl Dense {
    /// Of each row of `x`, one behind the other.
    pub(crate) fn apply(&self, x: &[f32]) -> Vec<f32> {
        let rows = x.chunks_exact(self.inputs.max(1));
        rows.flat_map(|row| self.act.apply(&self.product(row))).collect()
    }

    fn product(&self, row: &[f32]) -> Vec<f32> {
        let outputs = self.weight.chunks_exact(self.inputs.max(1));
        let biases = self.bias.iter().copied().chain(std::iter::repeat(0.0));
        outputs.zip(biases).map(|(weight, bias)| dot(weight, row) + bias).collect()
    }
}

/// A sum in eight parts, which a compiler turns into vector instructions.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (a_parts, a_rest) = a.as_chunks::<8>();
    let (b_parts, b_rest) = b.as_chunks::<8>();
    let mut sums = [0f32; 8];
    for (a, b) in a_parts.iter().zip(b_parts) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// A vector of length 1 in the same direction. One of zeros stays as it is.
pub(crate) fn normalized(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 && length.is_finite() {
        vector.iter_mut().for_each(|number| *number = (f64::from(*number) / length) as f32);
    }
    vector
}

fn normed(x: &[f32], weight: &[f32], bias: &[f32], eps: f32) -> Vec<f32> {
    let count = x.len().max(1) as f64;
    let mean = x.iter().map(|number| f64::from(*number)).sum::<f64>() / count;
    let variance = x.iter().map(|number| (f64::from(*number) - mean).powi(2)).sum::<f64>() / count;
    let scale = 1.0 / (variance + f64::from(eps)).sqrt();
    let biases = bias.iter().copied().chain(std::iter::repeat(0.0));
    let each = x.iter().zip(weight).zip(biases);
    each.map(|((number, weight), bias)| ((f64::from(*number) - mean) * scale) as f32 * weight + bias)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_of_zeros_has_no_direction() {
        assert_eq!(normalized(vec![0.0; 3]), [0.0; 3]);
        assert_eq!(normalized(vec![3.0, 4.0]), [0.6, 0.8]);
    }

    #[test]
    fn a_layer_of_another_width_does_not_fit() {
        let dense = |bias: usize| {
            let (weight, bias) = (vec![0.0; 8].into(), vec![0.0; bias].into());
            Step::Dense(Dense { weight, inputs: 4, bias, act: Activation::Identity })
        };
        assert!(dense(2).fits(4) && dense(0).fits(4) && !dense(2).fits(5) && !dense(3).fits(4));
    }

    #[test]
    fn products_are_sums_over_all_inputs() {
        let weight: Arc<[f32]> = (0..2 * 19).map(|at| at as f32).collect();
        let dense = Dense { weight, inputs: 19, bias: Arc::new([1.0, 2.0]), act: Activation::Identity };
        let x = vec![1.0; 2 * 19];
        assert_eq!(dense.apply(&x), [172.0, 534.0, 172.0, 534.0]);
    }
}
