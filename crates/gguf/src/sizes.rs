//! Metadata under the prefix of an architecture, and the sizes in it that several parts need.

use crate::architecture::Architecture;
use crate::error::Problem;
use crate::metadata::{Metadata, required};
use crate::order::LinearHeads;

/// Sizes that several fields depend on.
pub struct Sizes {
    /// Layers of the model itself.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
}

/// Metadata under the architecture's prefix.
#[derive(Clone, Copy)]
pub struct Keys<'a> {
    metadata: Metadata<'a>,
    prefix: &'static str,
}

impl<'a> Keys<'a> {
    /// Of this architecture.
    pub fn new(metadata: Metadata<'a>, architecture: &Architecture) -> Self {
        Self { metadata, prefix: architecture.name }
    }

    /// The whole key.
    pub fn key(self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    /// A number of things, if it is there.
    pub fn count(self, name: &str) -> Result<Option<usize>, Problem> {
        self.metadata.count(&self.key(name))
    }

    /// A number of things for each layer, or one for all, if it is there.
    pub fn counts(self, name: &str) -> Result<Option<Vec<usize>>, Problem> {
        self.metadata.counts(&self.key(name))
    }

    /// A truth value, if it is there.
    pub fn truth(self, name: &str) -> Result<Option<bool>, Problem> {
        self.metadata.truth(&self.key(name))
    }

    /// A number, if it is there.
    pub fn number(self, name: &str) -> Result<Option<f64>, Problem> {
        self.metadata.number(&self.key(name))
    }

    /// A text, if it is there.
    pub fn text(self, name: &str) -> Result<Option<&'a str>, Problem> {
        self.metadata.text(&self.key(name))
    }

    /// A number of things that must be there.
    pub fn size(self, name: &str) -> Result<usize, Problem> {
        required(&self.key(name), self.count(name)?.filter(|size| *size > 0))
    }
}

impl Sizes {
    /// Reads them.
    pub fn read(keys: Keys) -> Result<Self, Problem> {
        let (hidden, heads) = (keys.size("embedding_length")?, keys.size("attention.head_count")?);
        // Latent attention has one head of latents, and the lengths of its own heads under other keys.
        let latent = keys.count("attention.key_length_mla")?;
        let of_keys = latent.or(keys.count("attention.key_length")?);
        let head_dim = of_keys.unwrap_or(hidden / heads);
        if latent.is_none() && keys.count("attention.value_length")?.is_some_and(|length| length != head_dim)
        {
            return Err(Problem::unsupported(format!(
                "`{}` differs from keys",
                keys.key("attention.value_length")
            )));
        }
        let kv_heads = kv_heads(keys)?.unwrap_or(heads);
        if kv_heads == 0 || head_dim < 2 || !head_dim.is_multiple_of(2) {
            return Err(Problem::unsupported(format!("heads of {head_dim} elements, {kv_heads} of keys")));
        }
        Ok(Self { layers: layers(keys)?, hidden, heads, kv_heads, head_dim })
    }
}

/// Heads of linear attention. An error where their values cannot be divided.
pub fn linear_heads(keys: Keys) -> Result<LinearHeads, Problem> {
    let (k_heads, v_heads) = (keys.size("ssm.group_count")?, keys.size("ssm.time_step_rank")?);
    let (k_dim, values) = (keys.size("ssm.state_size")?, keys.size("ssm.inner_size")?);
    let keys_fit = k_heads.checked_mul(k_dim).is_some_and(|keys| u32::try_from(keys).is_ok());
    if !keys_fit || !v_heads.is_multiple_of(k_heads) || !values.is_multiple_of(v_heads) {
        return Err(Problem::unsupported(format!(
            "linear attention of {values} values in {v_heads} heads, of {k_heads} heads of keys"
        )));
    }
    Ok(LinearHeads { k_heads, v_heads, k_dim, v_dim: values / v_heads })
}

/// Layers of the model itself: those behind it predict further tokens.
pub fn layers(keys: Keys) -> Result<usize, Problem> {
    let (all, further) = (keys.size("block_count")?, keys.count("nextn_predict_layers")?.unwrap_or(0));
    let own = all.checked_sub(further).filter(|own| *own > 0);
    own.ok_or_else(|| {
        Problem::broken(format!("`{}` is {further} of {all} layers", keys.key("nextn_predict_layers")))
    })
}

/// Heads of the layers that have any.
fn kv_heads(keys: Keys) -> Result<Option<usize>, Problem> {
    const NAME: &str = "attention.head_count_kv";
    let mut counts = keys.counts(NAME)?.unwrap_or_default();
    let is_list = !counts.is_empty();
    counts.retain(|count| *count > 0);
    counts.dedup();
    match counts.as_slice() {
        [] => Ok(is_list.then_some(0)),
        [count] => Ok(Some(*count)),
        [..] => Err(Problem::unsupported(format!("`{}` differs between layers", keys.key(NAME)))),
    }
}
