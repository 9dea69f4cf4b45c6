//! Texts that are compared token by token: a marker behind the first token, and queries that are filled.

use std::collections::BTreeSet;

use omnibus_pooler::TokenForm;
use omnibus_text::{Cut, Error, TextTokens, Tokenizer};

/// The tokens of a text, and how many of the last ones no other attends to.
pub(super) struct FormedTokens {
    pub(super) tokens: TextTokens,
    pub(super) unattended: usize,
}

/// How a query or a document is written.
pub(super) struct Role<'a> {
    pub(super) form: &'a TokenForm,
    /// Tokens without a vector.
    pub(super) skipped: &'a [String],
}

impl Role<'_> {
    /// The tokens of a text. `cut`: what a request or the model says of long ones, which the form's own limit narrows.
    pub(super) fn tokens(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        cut: Option<Cut>,
    ) -> Result<FormedTokens, Error> {
        let marker = self.marker(tokenizer);
        let limit = |tokens: usize| tokens.saturating_sub(usize::from(marker.is_some())).max(1);
        let cut = match (cut, self.form.tokens) {
            (cut, None) => cut,
            (None, Some(_)) => None,
            // The form's limit counts the marker, and the one of the model's files does not.
            (Some(Cut { tokens, side }), Some(form)) => {
                Some(Cut { tokens: limit(form.min(tokens.saturating_add(1))), side })
            }
        };
        let prefixed = match marker {
            Some(_) => text.to_owned(),
            None => format!("{}{text}", self.form.marker),
        };
        let mut tokens = tokenizer.encode_texts(&prefixed, None, cut)?;
        if let Some(marker) = marker {
            let TextTokens { ids, types, whole } = &mut tokens;
            ids.insert(ids.len().min(1), marker);
            types.insert(types.len().min(1), 0);
            *whole += 1;
        }
        let unattended = self.expand(tokenizer, &mut tokens);
        Ok(FormedTokens { tokens, unattended })
    }

    /// Fills a short query. How many of its last tokens no other attends to.
    fn expand(&self, tokenizer: &Tokenizer, tokens: &mut TextTokens) -> usize {
        let Some(expansion) = &self.form.expansion else { return 0 };
        let token = match &expansion.token {
            Some(token) => tokenizer.token_to_id(token),
            None => tokenizer.special_token_id("mask_token"),
        };
        let Some(token) = token else { return 0 };
        let more = expansion.tokens.saturating_sub(tokens.ids.len());
        tokens.ids.extend(std::iter::repeat_n(token, more));
        tokens.types.extend(std::iter::repeat_n(0, more));
        tokens.whole += more;
        if expansion.attended { 0 } else { more }
    }

    /// The marker's token, if it is one: with the spaces in it, or without.
    fn marker(&self, tokenizer: &Tokenizer) -> Option<u32> {
        let marker = self.form.marker.as_str();
        let first = marker.split_whitespace().next()?;
        tokenizer
            .token_to_id(marker)
            .or_else(|| tokenizer.token_to_id(first).filter(|_| marker.trim() == first))
    }

    /// Tokens without a vector.
    pub(super) fn skipped_ids(&self, tokenizer: &Tokenizer) -> BTreeSet<u32> {
        self.skipped.iter().filter_map(|word| tokenizer.token_to_id(word)).collect()
    }
}
