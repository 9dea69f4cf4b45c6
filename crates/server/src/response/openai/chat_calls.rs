//! Calls in the answers of chat completions: of functions, of custom tools, and in the older shape of `function_call`.

use crate::response::ToolCall;
use crate::response::custom_input::CustomInput;
use crate::wire::chat::{Delta, FunctionDelta, ToolCallDelta};
use crate::wire::tools::{CallForms, CallShape};

/// The calls of a choice so far.
#[derive(Debug, Default)]
pub struct Calls {
    started: usize,
    /// Of a custom tool that is called.
    open: Option<OpenInput>,
}

#[derive(Debug, Default)]
struct OpenInput {
    json: String,
    input: CustomInput,
}

impl Calls {
    /// How many have started.
    pub fn started(&self) -> usize {
        self.started
    }

    /// A call starts.
    pub fn start(&mut self, id: String, name: String, forms: &CallForms) -> Delta {
        self.started += 1;
        let index = self.started - 1;
        self.open = forms.custom.contains(&name).then(OpenInput::default);
        match (&self.open, forms.shape) {
            (Some(_), _) => of_call(ToolCallDelta::start_custom(index, id, name)),
            (None, CallShape::Tools) => of_call(ToolCallDelta::start(index, id, name)),
            (None, CallShape::Function) => {
                of_function(FunctionDelta { name: Some(name), arguments: String::new() })
            }
        }
    }

    /// More arguments of the call; those of a custom tool are read out of its JSON.
    pub fn arguments(&mut self, json: String, forms: &CallForms) -> Option<Delta> {
        let index = self.started.saturating_sub(1);
        if let Some(open) = &mut self.open {
            open.json.push_str(&json);
            let input = open.input.push(&json);
            return (!input.is_empty()).then(|| of_call(ToolCallDelta::input(index, input)));
        }
        if json.is_empty() {
            return None;
        }
        Some(match forms.shape {
            CallShape::Tools => of_call(ToolCallDelta::arguments(index, json)),
            CallShape::Function => of_function(FunctionDelta { name: None, arguments: json }),
        })
    }

    /// The call ends. Returns what is left of the input of a custom tool.
    pub fn end(&mut self) -> Option<Delta> {
        let OpenInput { json, input } = self.open.take()?;
        let whole = input.whole(&json);
        let rest = input.rest(&whole);
        let index = self.started.saturating_sub(1);
        (!rest.is_empty()).then(|| of_call(ToolCallDelta::input(index, rest.to_owned())))
    }
}

/// A whole call of a full response.
pub fn whole(call: &ToolCall, forms: &CallForms) -> ToolCallDelta {
    let ToolCall { id, name, arguments, .. } = call.clone();
    if forms.custom.contains(&name) {
        let input = CustomInput::default().whole(&arguments);
        return ToolCallDelta::whole_custom(id, name, input);
    }
    ToolCallDelta::whole(id, name, arguments)
}

fn of_call(call: ToolCallDelta) -> Delta {
    Delta { tool_calls: Some(vec![call]), ..Delta::default() }
}

fn of_function(call: FunctionDelta) -> Delta {
    Delta { function_call: Some(call), ..Delta::default() }
}
