//! The served model that a name of Ollama's means.

use omnibus_engine::ModelInfo;

use crate::error::ApiError;
use crate::lower::ollama::Served;
use crate::wire::ollama::name::is_same;
use crate::wire::ollama::think::{Think, ThinkingSupport};
use crate::wire::tools::Tool;

/// The model with this name, and the name as it is served.
pub fn find<'a>(models: &'a [ModelInfo], name: &str) -> Option<(&'a ModelInfo, &'a str)> {
    let of = |model: &'a ModelInfo| Some((model, model.names().find(|served| is_same(served, name))?));
    models.iter().find_map(of)
}

/// 404, in words that clients look for.
pub fn missing(name: &str) -> ApiError {
    ApiError::unknown_object("model", format!("model \"{name}\" not found, try pulling it first"))
}

/// The model of a request that generates. Fails where the model cannot do what the request needs.
pub fn generating(
    models: &[ModelInfo],
    name: &str,
    think: &Think,
    tools: &[Tool],
) -> Result<Served, ApiError> {
    let (model, served) = find(models, name).ok_or_else(|| missing(name))?;
    let lacks = |field: &str, what: &str| {
        Err(ApiError::unsupported(field, format!("\"{name}\" does not support {what}")))
    };
    // What a model can do is known once it is loaded.
    let capabilities = model.details().map(|details| details.capabilities);
    let thinking = match capabilities {
        Some(capabilities) if capabilities.thinking => ThinkingSupport::Yes,
        Some(_) if matches!(think, Think::On { .. }) => return lacks("think", "thinking"),
        Some(_) | None => ThinkingSupport::No,
    };
    if !tools.is_empty() && capabilities.is_some_and(|capabilities| !capabilities.tools) {
        return lacks("tools", "tools");
    }
    Ok(Served { name: served.to_owned(), thinking })
}
