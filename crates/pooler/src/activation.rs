//! From a head's numbers to scores and probabilities.

/// A function of a head's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// None.
    Identity,
    /// Of each number.
    Sigmoid,
    /// Of all numbers together.
    Softmax,
    /// Of each number.
    Tanh,
    /// Of each number.
    Relu,
    /// Of each number, by the error function.
    Gelu,
    /// Of each number.
    Silu,
}

impl Activation {
    /// As torch and Hugging Face spell it: `torch.nn.modules.activation.Tanh`, `gelu`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let last = name.rsplit('.').next().unwrap_or(name);
        Some(match last {
            "Identity" => Self::Identity,
            "Sigmoid" | "sigmoid" => Self::Sigmoid,
            "Softmax" => Self::Softmax,
            "Tanh" | "tanh" => Self::Tanh,
            "ReLU" | "relu" => Self::Relu,
            "GELU" | "gelu" => Self::Gelu,
            "SiLU" | "silu" | "swish" => Self::Silu,
            _ => return None,
        })
    }

    /// Its values.
    pub fn apply(self, numbers: &[f32]) -> Vec<f32> {
        let each = |function: fn(f64) -> f64| {
            numbers.iter().map(|number| function(f64::from(*number)) as f32).collect()
        };
        match self {
            Self::Identity => numbers.to_vec(),
            Self::Sigmoid => each(sigmoid),
            Self::Tanh => each(f64::tanh),
            Self::Relu => each(|number| number.max(0.0)),
            Self::Gelu => each(|number| 0.5 * number * (1.0 + erf(number / std::f64::consts::SQRT_2))),
            Self::Silu => each(|number| number * sigmoid(number)),
            Self::Softmax => softmax(numbers),
        }
    }
}

fn sigmoid(number: f64) -> f64 {
    1.0 / (1.0 + (-number).exp())
}

fn softmax(numbers: &[f32]) -> Vec<f32> {
    let most = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f64> = numbers.iter().map(|number| f64::from(number - most).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| (weight / sum) as f32).collect()
}

/// Within 1.2e-7. Source: W. J. Cody 1969 as Numerical Recipes' `erfcc` has it.
fn erf(x: f64) -> f64 {
    let z = x.abs();
    let t = 1.0 / (1.0 + 0.5 * z);
    let terms = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let sum = terms.iter().rev().fold(0.0, |sum, term| sum * t + term);
    let complement = t * (-z * z + sum).exp();
    if x >= 0.0 { 1.0 - complement } else { complement - 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_their_known_values() {
        let near = |found: f32, expected: f32| assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        near(Activation::Gelu.apply(&[1.0])[0], 0.841_344_7);
        near(Activation::Gelu.apply(&[-2.0])[0], -0.045_500_26);
        near(Activation::Sigmoid.apply(&[-100.0])[0], 0.0);
        let shares = Activation::Softmax.apply(&[1000.0, 1001.0]);
        near(shares[0], 0.268_941_4);
        near(shares.iter().sum(), 1.0);
        assert_eq!(Activation::named("torch.nn.modules.linear.Identity"), Some(Activation::Identity));
        assert_eq!(Activation::named("os.system"), None);
    }
}
