//! The table of agents: which program each is, and the variables and flags that point it at this server.
//!
//! Invariant: a model's name reaches JSON and TOML through their serializers, never through a format string.

use serde_json::{Map, Value, json};

use super::target::Target;

/// One row of the table.
pub struct Agent {
    /// As it is given to `launch`.
    pub name: &'static str,
    /// The program on the search path.
    pub program: &'static str,
    /// How it is installed.
    pub install: &'static str,
    /// What its process is given.
    pub setup: fn(&Target) -> Setup,
}

/// What the process of an agent is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Setup {
    /// Variables and their values.
    pub variables: Vec<(&'static str, String)>,
    /// Variables of real services that are removed.
    pub removed: &'static [&'static str],
    /// Arguments before those of the user.
    pub arguments: Vec<String>,
    /// What could not be set, and where the user can.
    pub note: Option<String>,
}

/// Variables that would send requests of OpenAI's clients elsewhere.
const OPENAI: &[&str] = &["OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT"];

/// Every agent.
pub const AGENTS: &[Agent] = &[
    Agent {
        name: "claude",
        program: "claude",
        install: "npm install -g @anthropic-ai/claude-code",
        setup: claude,
    },
    Agent { name: "codex", program: "codex", install: "npm install -g @openai/codex", setup: codex },
    Agent { name: "opencode", program: "opencode", install: "npm install -g opencode-ai", setup: opencode },
    Agent { name: "qwen", program: "qwen", install: "npm install -g @qwen-code/qwen-code", setup: qwen },
    Agent { name: "copilot", program: "copilot", install: "npm install -g @github/copilot", setup: copilot },
    Agent { name: "aider", program: "aider", install: "pip install aider-chat", setup: aider },
];

/// The agent of this name.
pub fn find(name: &str) -> Option<&'static Agent> {
    AGENTS.iter().find(|agent| agent.name == name)
}

/// The names, with commas between them.
pub fn names() -> String {
    AGENTS.iter().map(|agent| agent.name).collect::<Vec<_>>().join(", ")
}

fn claude(target: &Target) -> Setup {
    let model = || target.model.clone();
    let mut variables = vec![
        ("ANTHROPIC_BASE_URL", target.origin.clone()),
        ("ANTHROPIC_AUTH_TOKEN", target.key_or_word()),
        // An inherited one would be confirmed in a dialogue; an empty one clears it.
        ("ANTHROPIC_API_KEY", String::new()),
        ("ANTHROPIC_MODEL", model()),
        ("ANTHROPIC_DEFAULT_OPUS_MODEL", model()),
        ("ANTHROPIC_DEFAULT_SONNET_MODEL", model()),
        ("ANTHROPIC_DEFAULT_HAIKU_MODEL", model()),
        ("CLAUDE_CODE_SUBAGENT_MODEL", model()),
        // Both change the head of the prompt from turn to turn, and with it what the prefix cache can hold.
        ("CLAUDE_CODE_ATTRIBUTION_HEADER", "0".to_owned()),
        ("CLAUDE_CODE_TOTAL_TOKENS_REMINDER", "off".to_owned()),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1".to_owned()),
        // A long prompt may be computed for minutes.
        ("API_TIMEOUT_MS", "3000000".to_owned()),
    ];
    let sizes = [
        ("CLAUDE_CODE_MAX_CONTEXT_TOKENS", target.window),
        ("CLAUDE_CODE_AUTO_COMPACT_WINDOW", target.compaction()),
        ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", target.output()),
    ];
    variables.extend(sizes.into_iter().filter_map(|(name, size)| Some((name, size?.to_string()))));
    Setup {
        variables,
        removed: &["CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_OAUTH_TOKEN"],
        // This tool joins the list of tools in the middle of a session, which changes the head of the prompt, too.
        arguments: vec!["--disallowedTools=LSP".to_owned()],
        note: None,
    }
}

fn codex(target: &Target) -> Setup {
    const KEY: &str = "OMNIBUS_API_KEY";
    let text = |text: &str| toml::Value::String(text.to_owned());
    let mut provider = toml::Table::new();
    provider.insert("name".to_owned(), text("omnibus"));
    provider.insert("base_url".to_owned(), text(&target.openai_url()));
    provider.insert("wire_api".to_owned(), text("responses"));
    if target.key.is_some() {
        provider.insert("env_key".to_owned(), text(KEY));
    }
    let mut settings = vec![
        ("model_provider", text("omnibus").to_string()),
        ("model_providers.omnibus", toml::Value::Table(provider).to_string()),
        ("web_search", text("disabled").to_string()),
    ];
    let sizes =
        [("model_context_window", target.window), ("model_auto_compact_token_limit", target.compaction())];
    settings.extend(sizes.into_iter().filter_map(|(name, size)| Some((name, size?.to_string()))));
    let flags = settings.into_iter().flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]);
    Setup {
        variables: target.key.iter().map(|key| (KEY, key.clone())).collect(),
        removed: OPENAI,
        arguments: flags.chain(["-m".to_owned(), target.model.clone()]).collect(),
        note: None,
    }
}

fn opencode(target: &Target) -> Setup {
    let mut model = json!({"name": target.model});
    if let (Some(window), Some(output)) = (target.window, target.output()) {
        // Without limits, a conversation is never compacted.
        model["limit"] = json!({"context": window, "output": output});
    }
    let models = Map::from_iter([(target.model.clone(), model)]);
    let name = format!("omnibus/{}", target.model);
    let config = json!({
        "$schema": "https://opencode.ai/config.json",
        "provider": {"omnibus": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "omnibus",
            "options": {"baseURL": target.openai_url(), "apiKey": target.key_or_word()},
            "models": Value::Object(models),
        }},
        "model": name,
        "small_model": name,
    });
    Setup { variables: vec![("OPENCODE_CONFIG_CONTENT", config.to_string())], ..Setup::default() }
}

fn qwen(target: &Target) -> Setup {
    let note = target.window.map(|window| {
        format!(
            "Qwen Code guesses the context from the model's name: `contextWindowSize` in ~/.qwen/settings.json can say {window}"
        )
    });
    Setup {
        variables: vec![
            ("OPENAI_BASE_URL", target.openai_url()),
            ("OPENAI_API_KEY", target.key_or_word()),
            ("OPENAI_MODEL", target.model.clone()),
        ],
        removed: &["OPENAI_ORGANIZATION", "OPENAI_PROJECT"],
        arguments: vec!["--auth-type".to_owned(), "openai".to_owned()],
        note,
    }
}

fn copilot(target: &Target) -> Setup {
    Setup {
        variables: vec![
            ("COPILOT_PROVIDER_BASE_URL", target.openai_url()),
            ("COPILOT_PROVIDER_API_KEY", target.key.clone().unwrap_or_default()),
            ("COPILOT_PROVIDER_WIRE_API", "responses".to_owned()),
            ("COPILOT_MODEL", target.model.clone()),
        ],
        ..Setup::default()
    }
}

fn aider(target: &Target) -> Setup {
    let model = format!("openai/{}", target.model);
    let note = target.window.map(|window| {
        format!(
            "aider does not know the context of this model: `.aider.model.metadata.json` can say {window}"
        )
    });
    Setup {
        variables: vec![
            ("OPENAI_API_BASE", target.openai_url()),
            ("OPENAI_API_KEY", target.key_or_word()),
            ("AIDER_MODEL", model.clone()),
            ("AIDER_WEAK_MODEL", model),
        ],
        removed: &["OPENAI_BASE_URL", "OPENAI_ORGANIZATION", "OPENAI_PROJECT"],
        note,
        ..Setup::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It would end a string of TOML or JSON that was written by a format string.
    const HOSTILE: &str = "a\", sandbox_mode=\"danger-full-access\"}\nb = \"'$(id)";

    fn target(key: Option<&str>) -> Target {
        Target {
            origin: "http://127.0.0.1:9".into(),
            key: key.map(str::to_owned),
            model: HOSTILE.into(),
            window: Some(65_536),
        }
    }

    fn value<'a>(setup: &'a Setup, name: &str) -> &'a str {
        setup.variables.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    #[test]
    fn every_agent_is_given_the_model_and_the_address() {
        for agent in AGENTS {
            let setup = (agent.setup)(&target(None));
            let all = format!("{:?} {:?}", setup.variables, setup.arguments);
            assert!(all.contains("127.0.0.1:9"), "{}: {all}", agent.name);
            assert!(setup.removed.iter().all(|name| value(&setup, name).is_empty()), "{}", agent.name);
        }
        assert!(find("claude").is_some() && find("emacs").is_none());
        assert!(names().starts_with("claude, codex, opencode, qwen"));
    }

    #[test]
    fn claude_compacts_before_its_answer_has_no_room() {
        let setup = claude(&target(Some("k")));
        assert_eq!(value(&setup, "ANTHROPIC_BASE_URL"), "http://127.0.0.1:9");
        assert_eq!(value(&setup, "ANTHROPIC_AUTH_TOKEN"), "k");
        assert!(setup.variables.contains(&("ANTHROPIC_API_KEY", String::new())));
        let size = |name: &str| value(&setup, name).parse::<u64>().unwrap();
        let (window, output) =
            (size("CLAUDE_CODE_MAX_CONTEXT_TOKENS"), size("CLAUDE_CODE_MAX_OUTPUT_TOKENS"));
        assert_eq!(size("CLAUDE_CODE_AUTO_COMPACT_WINDOW") + output, window);
        assert_eq!(value(&setup, "CLAUDE_CODE_ATTRIBUTION_HEADER"), "0");
    }

    #[test]
    fn a_name_cannot_add_settings_to_codex() {
        let setup = codex(&target(Some("k")));
        let settings = setup.arguments.iter().filter(|argument| *argument != "-c" && *argument != "-m");
        let settings: Vec<&String> = settings.filter(|argument| argument.as_str() != HOSTILE).collect();
        let mut all = toml::Table::new();
        for setting in settings {
            let parsed: toml::Table = setting.parse().unwrap_or_else(|error| panic!("{error} in {setting}"));
            all.extend(parsed);
        }
        assert!(!all.contains_key("sandbox_mode"), "{all}");
        assert_eq!(all["model_context_window"].as_integer(), Some(65_536));
        let provider = &all["model_providers"]["omnibus"];
        assert_eq!(provider["base_url"].as_str(), Some("http://127.0.0.1:9/v1"));
        assert_eq!(
            (provider["wire_api"].as_str(), provider["env_key"].as_str()),
            (Some("responses"), Some("OMNIBUS_API_KEY"))
        );
        assert_eq!(setup.arguments.last().map(String::as_str), Some(HOSTILE));
        // A missing variable would be an error of Codex.
        assert!(!format!("{:?}", codex(&target(None)).arguments).contains("env_key"));
    }

    #[test]
    fn opencode_has_limits_so_that_it_compacts() {
        let setup = opencode(&target(None));
        let config: Value = serde_json::from_str(value(&setup, "OPENCODE_CONFIG_CONTENT")).unwrap();
        let models = config["provider"]["omnibus"]["models"].as_object().unwrap();
        assert_eq!(models[HOSTILE]["limit"], json!({"context": 65_536, "output": 16_384}));
        assert_eq!(config["model"], format!("omnibus/{HOSTILE}"));
        assert_eq!(config["provider"]["omnibus"]["options"]["baseURL"], "http://127.0.0.1:9/v1");
    }
}
