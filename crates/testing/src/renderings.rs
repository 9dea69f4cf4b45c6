//! Renderings of chat templates, compared with what Python's jinja2 makes of them: for the tests of the interpreter and of
//! the crate that renders typed messages with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::reference;

/// By template and conversation: the text, or an object with `text` or `error`.
pub type Renderings = BTreeMap<String, BTreeMap<String, Value>>;

/// Starts of the messages of Python's type errors. A template that ends in one may render here, or fail with another
/// message.
const TYPE_ERRORS: &[&str] = &[
    "'",
    "can only concatenate",
    "access to attribute",
    "Object of type",
    "Can only get item pairs",
    "argument of type",
    "No filter named",
    "object of type",
    "None has no element",
];

/// What a rendering ended in.
pub enum Rendered {
    /// It has an end.
    Text(String),
    /// The template called `raise_exception` with this message.
    Raised(String),
    /// The template is at fault.
    Failed(String),
    /// Anything else.
    Refused(String),
}

/// Templates and what is expected of them. The templates are files `NAME.jinja` of the folder.
pub struct Expected {
    /// Where the templates are.
    pub folder: PathBuf,
    /// The conversations by name.
    pub cases: Value,
    /// What Python makes of each.
    pub renderings: Renderings,
}

impl Expected {
    /// The templates of the repository.
    pub fn sample() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../jinja/tests/reference/chat");
        let mut reference = json(&folder.join("renderings.json"));
        let renderings = serde_json::from_value(reference["renderings"].take()).unwrap();
        Self { folder, cases: reference["conversations"].take(), renderings }
    }

    /// The templates of 70 published models. Says so and returns `None` without them.
    pub fn published() -> Option<Self> {
        let templates = reference::found(reference::TEMPLATES).find(reference::Found::is_whole)?;
        let folder = templates.folder().to_owned();
        let beside = folder.join("..");
        let names = templates
            .files(".jinja")
            .into_iter()
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
        let golden = |name: &str| json(&beside.join("goldens").join(format!("{name}.json")));
        let renderings = names.map(|name| (name.clone(), serde_json::from_value(golden(&name)).unwrap()));
        Some(Self { renderings: renderings.collect(), cases: json(&beside.join("cases.json")), folder })
    }
}

/// The JSON of a file.
pub fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[derive(Default)]
struct Counts {
    equal: usize,
    refused: usize,
    lenient: usize,
}

/// Compares every rendering with the expected one, and wants at least `equal` equal texts.
pub fn compare<T, E: std::fmt::Display>(
    expected: &Expected,
    equal: usize,
    parse: impl Fn(&str) -> Result<T, E>,
    render: impl Fn(&T, &Value) -> Rendered,
) {
    let mut counts = Counts::default();
    let mut wrong = Vec::new();
    for (name, renderings) in &expected.renderings {
        let source = std::fs::read_to_string(expected.folder.join(format!("{name}.jinja"))).unwrap();
        match parse(&source) {
            Err(error) => wrong.push(format!("{name}: {error}")),
            Ok(template) => {
                for (case, wanted) in renderings {
                    let found = counts.compare(wanted, render(&template, &expected.cases[case]));
                    wrong.extend(found.err().map(|difference| format!("{name}/{case}: {difference}")));
                }
            }
        }
    }
    let templates = expected.renderings.len();
    let Counts { equal: found, refused, lenient } = counts;
    println!(
        "{templates} templates: {found} renderings equal, {refused} refusals, {lenient} more lenient than Python"
    );
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(found >= equal, "only {found} renderings were compared");
}

impl Counts {
    /// Counts a rendering, or says how it differs.
    fn compare(&mut self, wanted: &Value, rendered: Rendered) -> Result<(), String> {
        let error = wanted["error"].as_str().unwrap_or_default();
        let is_type_error = TYPE_ERRORS.iter().any(|start| error.starts_with(start));
        let wanted = wanted.get("text").unwrap_or(wanted).as_str();
        match (wanted, rendered) {
            (Some(wanted), Rendered::Text(text)) if text == wanted => self.equal += 1,
            (Some(wanted), Rendered::Text(text)) => return Err(difference(&text, wanted)),
            (None, Rendered::Raised(message)) if message == error => self.refused += 1,
            (None, Rendered::Failed(_)) if is_type_error => self.refused += 1,
            (None, Rendered::Text(_)) if is_type_error => self.lenient += 1,
            (_, rendered) => return Err(format!("{rendered} is not {:?}", wanted.unwrap_or(error))),
        }
        Ok(())
    }
}

impl std::fmt::Display for Rendered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => write!(f, "the text {text:?}"),
            Self::Raised(message) => write!(f, "the exception {message:?}"),
            Self::Failed(error) | Self::Refused(error) => write!(f, "the error {error:?}"),
        }
    }
}

/// The first difference of two texts, with what stands around it.
fn difference(text: &str, wanted: &str) -> String {
    let at = text.bytes().zip(wanted.bytes()).take_while(|(a, b)| a == b).count();
    let near = |text: &str| {
        let around = String::from_utf8_lossy(&text.as_bytes()[at.saturating_sub(30)..]).into_owned();
        around.chars().take(90).collect::<String>()
    };
    format!("{:?} is not {:?}", near(text), near(wanted))
}
