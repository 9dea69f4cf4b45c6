//! What of a schema is not enforced.

use std::collections::BTreeSet;

use crate::error::GrammarError;
use crate::schema::SchemaUse;

/// The keywords of a schema that are not enforced. With [`SchemaUse::Strict`] the first one is an error.
pub(super) struct Losses {
    schema_use: SchemaUse,
    pointers: Vec<String>,
    known: BTreeSet<String>,
}

impl Losses {
    pub fn new(schema_use: SchemaUse) -> Self {
        Self { schema_use, pointers: Vec::new(), known: BTreeSet::new() }
    }

    /// Adds the keyword at a pointer.
    pub fn add(&mut self, pointer: &str) -> Result<(), GrammarError> {
        let keyword = pointer.rsplit('/').next().unwrap_or_default();
        self.add_because(pointer, &format!("the keyword `{keyword}` cannot be enforced here"))
    }

    /// Adds what is at a pointer, for a reason.
    pub fn add_because(&mut self, pointer: &str, why: &str) -> Result<(), GrammarError> {
        match self.schema_use {
            SchemaUse::Strict => Err(GrammarError::in_schema(pointer, why)),
            SchemaUse::Lenient => {
                if self.known.insert(pointer.to_owned()) {
                    self.pointers.push(pointer.to_owned());
                }
                Ok(())
            }
        }
    }

    /// The pointers, in the order of the schema.
    pub fn into_pointers(self) -> Vec<String> {
        self.pointers
    }
}
