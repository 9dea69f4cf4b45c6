//! What of a request's schemas is not enforced, for its client.

use omnibus_grammar::{Grammar, GrammarLimits, check};
use omnibus_text::{CallRule, Tool};

use crate::request::{DEPTH_MAX, Request, ToolChoice};

impl Request {
    /// JSON pointers of the keywords that are not enforced of the schema of the answer, and of those of tools whose calls must
    /// match; these begin with `tools[INDEX]`. Takes milliseconds for long schemas.
    pub fn not_enforced(&self) -> Vec<String> {
        let of_answer = self.structured.as_ref().map(|structured| lost(&structured.grammar));
        let mut pointers = of_answer.unwrap_or_default();
        for (index, tool) in self.tools().iter().enumerate().filter(|(_, tool)| self.has_grammar(tool)) {
            let of_tool = lost(&Grammar::json_schema(&tool.parameters));
            pointers.extend(of_tool.into_iter().map(|pointer| format!("tools[{index}]{pointer}")));
        }
        pointers
    }

    /// Whether calls of a tool are of its schema as far as that can be enforced. Of strict tools all is enforced.
    fn has_grammar(&self, tool: &Tool) -> bool {
        let is_described = tool.rule == CallRule::Lenient && tool.parameters.is_object();
        let is_strict = |tool: &Tool| tool.rule == CallRule::Strict;
        is_described
            && match &self.tool_choice {
                ToolChoice::Function(name) => tool.name == *name,
                ToolChoice::Required => true,
                ToolChoice::Auto => self.structured.is_some() || self.tools().iter().any(is_strict),
            }
    }
}

fn lost(grammar: &Grammar) -> Vec<String> {
    let limits = GrammarLimits { bytes: usize::MAX, depth: DEPTH_MAX, ..GrammarLimits::default() };
    check(grammar, &limits).unwrap_or_default()
}
