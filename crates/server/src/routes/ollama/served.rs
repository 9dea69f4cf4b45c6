//! The served model that a name of Ollama's means.

use omnibus_engine::ModelInfo;
use serde_json::Value;

use crate::app::App;
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

/// The served name of the model that a body names.
pub fn model(body: &Value, app: &App) -> Option<String> {
    let name = body.get("model")?.as_str()?;
    let models = app.engine.models();
    let served = find(&models, name).map(|(_, served)| served.to_owned());
    // It may be found, although it is not listed.
    Some(served.unwrap_or_else(|| name.to_owned()))
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

#[cfg(test)]
mod tests {
    use omnibus_engine::{Capabilities, MemoryPlan, ModelDetails, ModelState, SamplingDefaults};

    use super::*;
    use crate::wire::tools::{SchemaUse, ToolForm};

    fn model(state: ModelState) -> Vec<ModelInfo> {
        let aliases = vec!["other/name".to_owned()];
        vec![ModelInfo { id: "small".into(), aliases, state, created: 0, adapter: None }]
    }

    fn loaded(capabilities: Capabilities) -> Vec<ModelInfo> {
        model(ModelState::Ready(ModelDetails {
            architecture: "llama".into(),
            quantization: None,
            context_length: 8,
            max_model_len: 8,
            vocab_size: 8,
            hidden_size: 8,
            capabilities,
            memory: MemoryPlan::default(),
            sampling: SamplingDefaults::default(),
            task: omnibus_engine::ModelTask::Generate,
            modalities: Vec::new(),
            chat_template: None,
        }))
    }

    fn tool() -> Tool {
        let (name, schema, form) = ("f".to_owned(), SchemaUse::Shown, ToolForm::Function);
        Tool { name, description: None, parameters: None, schema, form }
    }

    const THINK: Think = Think::On { effort: None };

    #[test]
    fn what_a_model_cannot_do_is_refused_by_name() {
        let plain = loaded(Capabilities::default());
        let refused = |think: &Think, tools: &[Tool]| {
            let error = generating(&plain, "Small:latest", think, tools).unwrap_err();
            (error.param().unwrap_or_default().to_owned(), error.message().to_owned())
        };
        let of =
            |field: &str, what: &str| (field.to_owned(), format!("\"Small:latest\" does not support {what}"));
        assert_eq!(refused(&THINK, &[]), of("think", "thinking"));
        assert_eq!(refused(&Think::Off, &[tool()]), of("tools", "tools"));
        let served = generating(&plain, "Small:latest", &Think::IfAble, &[]).unwrap();
        assert_eq!(served, Served { name: "small".into(), thinking: ThinkingSupport::No });
    }

    #[test]
    fn a_model_that_can_is_served_under_the_name_that_was_meant() {
        let able = loaded(Capabilities { thinking: true, tools: true, ..Capabilities::default() });
        let served = generating(&able, "OTHER/name:latest", &THINK, &[tool()]).unwrap();
        assert_eq!(served, Served { name: "other/name".into(), thinking: ThinkingSupport::Yes });
        let missing = generating(&able, "large", &THINK, &[]).unwrap_err();
        assert_eq!(missing.message(), "model \"large\" not found, try pulling it first");
        // What a model can do is not known before it is loaded.
        assert!(
            generating(&model(ModelState::Loading(Default::default())), "small", &THINK, &[tool()]).is_ok()
        );
    }
}
