//! What a call brings, and how it meets the parameters of what is called.

use super::ast::Name;
use super::meter::Fault;
use super::value::{Text, Value};

/// The arguments of one call, evaluated.
#[derive(Default)]
pub(super) struct Given {
    pub positional: Vec<Value>,
    pub named: Vec<(Name, Value)>,
}

impl Given {
    /// The arguments in the order of `parameters`, each by position or by name.
    pub fn bind<const N: usize>(
        self,
        callee: &str,
        parameters: &[&str; N],
    ) -> Result<[Option<Value>; N], Fault> {
        let mut bound = [const { None }; N];
        if self.positional.len() > N {
            let count = self.positional.len();
            return Fault::failed(format!("{callee} takes at most {N} arguments ({count} given)"));
        }
        for (slot, value) in bound.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.named {
            match parameters.iter().position(|parameter| **parameter == *name) {
                Some(at) if bound[at].is_none() => bound[at] = Some(value),
                Some(_) => {
                    return Fault::failed(format!("{callee} got multiple values for argument '{name}'"));
                }
                None => {
                    return Fault::failed(format!("{callee} got an unexpected keyword argument '{name}'"));
                }
            }
        }
        Ok(bound)
    }
}

/// What an optional argument is taken for.
pub(super) trait Bound {
    fn text_or(&self, default: &str) -> Result<Text, Fault>;
    fn optional_text(&self) -> Result<Option<Text>, Fault>;
    fn int_or(&self, default: i128) -> Result<i128, Fault>;
    fn truth_or(&self, default: bool) -> bool;
}

impl Bound for Option<Value> {
    fn text_or(&self, default: &str) -> Result<Text, Fault> {
        Ok(self.optional_text()?.unwrap_or_else(|| Text::Literal(default.into())))
    }

    fn optional_text(&self) -> Result<Option<Text>, Fault> {
        match self {
            None | Some(Value::None) => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text.clone())),
            Some(other) => {
                other.defined()?;
                Fault::failed(format!("argument must be str, not {}", other.type_name()))
            }
        }
    }

    fn int_or(&self, default: i128) -> Result<i128, Fault> {
        match self {
            None | Some(Value::None) => Ok(default),
            Some(value) => match value.as_int() {
                Some(value) => Ok(value),
                None => Fault::failed(format!("argument must be int, not {}", value.type_name())),
            },
        }
    }

    fn truth_or(&self, default: bool) -> bool {
        self.as_ref().map_or(default, Value::is_true)
    }
}
