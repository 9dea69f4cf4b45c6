//! Embeddings of tokens that stand for kinds of pictures and sound.

use mlx::{Array, Dtype, fast};

use crate::blueprint::MediaVocabulary;
use crate::norm::Norm;
use crate::params::Param;
use crate::weights::{LoadError, Store};

/// Embeddings of the tokens of all media vocabularies, which follow one another.
pub(crate) struct MediaVocabularyBlock {
    /// The first of these tokens.
    first: i32,
    /// `[tokens, hidden]`
    rows: Param,
}

impl MediaVocabularyBlock {
    /// Computes all embeddings once. `specs`: in the order of their tokens.
    pub(crate) fn load(
        specs: &[MediaVocabulary],
        store: &mut Store,
        root: &str,
    ) -> Result<Option<Self>, LoadError> {
        let rows = specs.iter().map(|spec| {
            let at = |name: &str| format!("{root}.{}.{name}", spec.path);
            let norm = store.norm(&at("norm"), Norm::Rms { eps: spec.norm_eps }, spec.width)?;
            let projection = store.linear(&at("projection"))?.without_adapters()?;
            let table = store.table(&at("embedding"))?;
            let embedded = projection.forward(&norm.forward(&table)?)?;
            Ok(fast::rms_norm(&embedded, None, spec.norm_eps)?)
        });
        let rows = rows.collect::<Result<Vec<Array>, LoadError>>()?;
        let Some(first) = specs.first() else { return Ok(None) };
        let rows = mlx::concatenate(&rows.iter().collect::<Vec<_>>(), 0)?;
        let rows = store.params().hold(rows);
        rows.evaluate()?;
        Ok(Some(Self { first: first.first as i32, rows }))
    }

    /// `embedded`, `[T, hidden]`, with its own rows at its tokens. `tokens`: `[T]`, i32.
    pub(crate) fn replace(&self, embedded: &Array, tokens: &Array) -> mlx::Result<Array> {
        let number = |number: i32| Array::from_slice(&[number], &[1]);
        let own = tokens - number(self.first)?;
        let count = number(self.rows.dim(0)?)?;
        let is_own = own.less(&count)?.logical_and(&number(-1)?.less(&own)?)?;
        let own = mlx::where_(&is_own, &own, &Array::zeros(&[1], Dtype::I32)?)?;
        let rows = self.rows.take(&own, 0)?.astype(embedded.dtype()?)?;
        mlx::where_(&is_own.expand_dims(&[1])?, &rows, embedded)
    }
}
