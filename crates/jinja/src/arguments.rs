//! The arguments of a call, and their binding to parameters.

use crate::ast::Name;
use crate::error::RenderError;
use crate::value::{Text, Value};

/// The arguments of one call, evaluated.
#[derive(Default)]
pub(crate) struct CallArguments {
    pub positional: Vec<Value>,
    pub named: Vec<(Name, Value)>,
}

impl CallArguments {
    /// The arguments in the order of `parameters`, each by position or by name.
    pub fn bind<const N: usize>(
        self,
        callee: &str,
        parameters: &[&str; N],
    ) -> Result<[Option<Value>; N], RenderError> {
        let mut bound = [const { None }; N];
        if self.positional.len() > N {
            let count = self.positional.len();
            return RenderError::failed(format!("{callee} takes at most {N} arguments ({count} given)"));
        }
        for (slot, value) in bound.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.named {
            match parameters.iter().position(|parameter| **parameter == *name) {
                Some(at) if bound[at].is_none() => bound[at] = Some(value),
                Some(_) => {
                    return RenderError::failed(format!(
                        "{callee} got multiple values for argument '{name}'"
                    ));
                }
                None => {
                    return RenderError::failed(format!(
                        "{callee} got an unexpected keyword argument '{name}'"
                    ));
                }
            }
        }
        Ok(bound)
    }
}

/// An optional argument with its default.
pub(crate) trait ArgumentDefaults {
    fn text_or(&self, default: &str) -> Result<Text, RenderError>;
    fn optional_text(&self) -> Result<Option<Text>, RenderError>;
    fn int_or(&self, default: i128) -> Result<i128, RenderError>;
    fn truth_or(&self, default: bool) -> bool;
}

impl ArgumentDefaults for Option<Value> {
    fn text_or(&self, default: &str) -> Result<Text, RenderError> {
        Ok(self.optional_text()?.unwrap_or_else(|| Text::Literal(default.into())))
    }

    fn optional_text(&self) -> Result<Option<Text>, RenderError> {
        match self {
            None | Some(Value::None) => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text.clone())),
            Some(other) => {
                other.defined()?;
                RenderError::failed(format!("argument must be str, not {}", other.type_name()))
            }
        }
    }

    fn int_or(&self, default: i128) -> Result<i128, RenderError> {
        match self {
            None | Some(Value::None) => Ok(default),
            Some(value) => match value.as_int() {
                Some(value) => Ok(value),
                None => RenderError::failed(format!("argument must be int, not {}", value.type_name())),
            },
        }
    }

    fn truth_or(&self, default: bool) -> bool {
        self.as_ref().map_or(default, Value::is_true)
    }
}
