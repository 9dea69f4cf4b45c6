//! Compiled closures: MLX records what they do once and fuses chains of element-wise ops.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use cxx::UniquePtr;
use mlx_sys as sys;

use crate::array::{Array, list, unlist};
use crate::error::{Error, Result};

/// What a recording depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// One recording for each combination of input shapes.
    Fixed,
    /// One recording for all shapes; ops that depend on a shape are an error.
    Any,
}

/// A compiled closure; see [`compile`].
pub struct Compiled {
    function: UniquePtr<sys::CompiledFn>,
    /// The closure's own error, which C++ only carries as a text.
    error: Rc<RefCell<Option<Error>>>,
}

/// Records `f` at the first call, and again for inputs of other dtypes, ranks or (see [`Shapes`]) shapes.
///
/// `f` must depend on its inputs only. Arrays that it captures become constants, and live as long as the
/// result. Its errors and panics come out of [`Compiled::call`].
///
/// On the CPU the first evaluation runs `g++`, if there is one; see [`set_compile_enabled`].
pub fn compile(f: impl Fn(&[Array]) -> Result<Vec<Array>> + 'static, shapes: Shapes) -> Result<Compiled> {
    let error = Rc::new(RefCell::new(None));
    let kept = Rc::clone(&error);
    let body = move |inputs: &cxx::CxxVector<sys::Array>,
                     mut outputs: std::pin::Pin<&mut cxx::CxxVector<sys::Array>>| {
        let result = f(&unlist(inputs)).and_then(|made| {
            made.iter().try_for_each(|a| {
                sys::arrays_push(outputs.as_mut(), a.raw()?);
                Ok(())
            })
        });
        result.map_err(|e| {
            let text = e.to_string();
            kept.replace(Some(e));
            text
        })
    };
    let function = sys::compile(Box::new(sys::Closure(Box::new(body))), shapes == Shapes::Any)?;
    Ok(Compiled { function, error })
}

impl Compiled {
    /// The graph of one call, lazily. The inputs are not kept, so a buffer that the caller drops before
    /// evaluating can be reused in place.
    pub fn call(&self, inputs: &[&Array]) -> Result<Vec<Array>> {
        let outputs = self.function.call(&*list(inputs.iter().copied())?);
        match outputs {
            Ok(outputs) => Ok(unlist(&outputs)),
            Err(e) => Err(self
                .error
                .take()
                .unwrap_or_else(|| Error::op("compiled closure", inputs.iter().copied(), e.what()))),
        }
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compiled")
    }
}

/// Turns compiling on or off for the whole process; when off, compiled closures run as plain graphs.
pub fn set_compile_enabled(enabled: Enabled) {
    sys::set_compile_enabled(enabled == Enabled::Yes)
}

/// Whether something is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enabled {
    /// On.
    Yes,
    /// Off.
    No,
}
