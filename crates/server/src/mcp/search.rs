//! The tool of the configuration that searches the web for a request.

use omnibus_engine::Tool;
use omnibus_mcp::OfferedTool;
use omnibus_mcp::web_search::{DESCRIPTION, WEB_SEARCH, schema};
use serde_json::Value;

use super::SharedMcp;
use crate::error::ApiError;
use crate::keys::Key;
use crate::wire::fields::count_unknown;
use crate::wire::web_search::{Need, WebSearch};

/// The tool for a search. `None` where there is none and the request is answered without; fails where it needs the search.
pub fn tool(mcp: Option<&SharedMcp>, search: &WebSearch, key: &Key) -> Result<Option<OfferedTool>, ApiError> {
    match (find(mcp, search, key), search.need) {
        (Ok(tool), _) => Ok(Some(tool)),
        (Err(error), Need::Required) => Err(error),
        (Err(error), Need::Optional) => {
            tracing::debug!(error = error.message(), "a request is answered without a search of the web");
            count_unknown(&format!("{}.type={WEB_SEARCH}", search.at));
            Ok(None)
        }
    }
}

fn find(mcp: Option<&SharedMcp>, search: &WebSearch, key: &Key) -> Result<OfferedTool, ApiError> {
    let at = format!("{}.type", search.at);
    let configured = mcp.and_then(|mcp| Some((mcp, mcp.servers().config().web_search.as_ref()?)));
    let Some((mcp, place)) = configured else {
        let message = format!(
            "`{at}` is not supported: no tool searches the web; name one by `webSearch` in the file of --mcp-config"
        );
        return Err(ApiError::unsupported(&at, message));
    };
    if !key.may_call(&place.server, &place.tool) {
        let message = format!("the key `{}` may not use the search of the web", key.name);
        return Err(ApiError::forbidden("tool_not_allowed", message).with_param(at));
    }
    let is_it = |tool: &OfferedTool| tool.server == place.server && tool.definition.name == place.tool;
    mcp.servers().tools().into_iter().find(is_it).ok_or_else(|| {
        let message = format!(
            "the search of the web is not available: the MCP server `{}` does not offer `{}` now",
            place.server, place.tool
        );
        ApiError::unavailable(message)
    })
}

/// What the model knows of the search.
pub fn function() -> Tool {
    Tool::new(WEB_SEARCH.to_owned(), Some(DESCRIPTION.to_owned()), Value::Object(schema()))
}
