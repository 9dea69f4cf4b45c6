//! The sampling parameters that a model's publisher recommends, in `generation_config.json`.
//!
//! They are the values of parameters that a request leaves out. Which fields are read is vLLM's choice: `do_sample` is
//! not, and `max_new_tokens` neither, which would cut answers off.

use std::path::PathBuf;

use omnibus_model::Source;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::StartError;
use crate::request::{Request, Sampling};
use crate::sampling_parameter::{SAMPLING_PARAMETERS, SamplingDefaults, SamplingParameter};

/// Which values the parameters have that a request leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GenerationConfig {
    /// Recommended in the file of the model's directory.
    #[default]
    Model,
    /// The server's own.
    Server,
    /// Recommended in the file of another directory.
    Directory(PathBuf),
}

const FILE: &str = "generation_config.json";

impl SamplingDefaults {
    /// Reads the file that the setting names. A model without one has none of its own; a named directory must have one.
    pub fn read(config: &GenerationConfig, source: &Source) -> Result<Self, StartError> {
        match config {
            GenerationConfig::Server => Ok(Self::default()),
            GenerationConfig::Model => of_source(source),
            GenerationConfig::Directory(path) => {
                let source = Source::Directory(path.clone());
                match source.bytes(FILE).map_err(StartError::new)? {
                    Some(_) => of_source(&source),
                    None => Err(StartError::new(format!(
                        "`{}` has no {FILE}: name a directory with one, `auto` or `none`",
                        path.display()
                    ))),
                }
            }
        }
    }

    /// Fills in what a request leaves out.
    pub(crate) fn fill(&self, request: &mut Request) {
        for (parameter, value) in &self.published {
            if request.unset.contains(parameter) {
                set(*parameter, &mut request.sampling, *value);
            }
        }
    }
}

fn of_source(source: &Source) -> Result<SamplingDefaults, StartError> {
    if let Source::Adapted { base, .. } = source {
        return of_source(base);
    }
    match source.bytes(FILE).map_err(StartError::new)? {
        Some(_) => of_file(&source.json(FILE).map_err(StartError::new)?),
        None => Ok(SamplingDefaults::default()),
    }
}

fn of_file(file: &Map<String, Value>) -> Result<SamplingDefaults, StartError> {
    let mut defaults = SamplingDefaults::default();
    for parameter in SAMPLING_PARAMETERS {
        let name = parameter.name();
        let Some(value) = file.get(name).filter(|value| !value.is_null()) else { continue };
        let wrong = |what: &str| {
            StartError::new(format!("{FILE}: `{name}` {what}; `--generation-config none` ignores the file"))
        };
        let number = value.as_f64().ok_or_else(|| wrong(&format!("must be a number, not {value}")))?;
        // −1 keeps all, as 0 does.
        let number = if *parameter == SamplingParameter::TopK { number.max(0.0) } else { number };
        let mut sampling = Sampling::default();
        set(*parameter, &mut sampling, number);
        sampling.validate().map_err(|_| wrong(&format!("cannot be {value}")))?;
        defaults.published.insert(*parameter, number);
    }
    Ok(defaults)
}

fn set(parameter: SamplingParameter, sampling: &mut Sampling, value: f64) {
    match parameter {
        SamplingParameter::Temperature => sampling.temperature = value as f32,
        SamplingParameter::TopP => sampling.top_p = value as f32,
        SamplingParameter::TopK => sampling.top_k = value as usize,
        SamplingParameter::MinP => sampling.min_p = value as f32,
        SamplingParameter::RepetitionPenalty => sampling.repetition_penalty = value as f32,
        SamplingParameter::PresencePenalty => sampling.presence_penalty = value as f32,
        SamplingParameter::FrequencyPenalty => sampling.frequency_penalty = value as f32,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::Input;

    fn defaults(file: Value) -> Result<SamplingDefaults, String> {
        let Value::Object(file) = file else { panic!("a test's file is an object") };
        of_file(&file).map_err(|error| error.to_string())
    }

    fn request(unset: &[SamplingParameter]) -> Request {
        let mut request = Request::new("r", Input::Text("a".to_owned()));
        request.unset = unset.iter().copied().collect();
        request
    }

    #[test]
    fn what_a_request_leaves_out_is_the_publishers() {
        let file = json!({ "do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.01,
            "repetition_penalty": 1.05, "presence_penalty": 1.5, "frequency_penalty": -0.5, "max_new_tokens": 9 });
        let defaults = defaults(file).unwrap();
        let mut request = request(SAMPLING_PARAMETERS);
        defaults.fill(&mut request);
        let want = Sampling {
            temperature: 0.6,
            top_k: 20,
            top_p: 0.95,
            min_p: 0.01,
            repetition_penalty: 1.05,
            presence_penalty: 1.5,
            frequency_penalty: -0.5,
            ..Sampling::default()
        };
        assert_eq!((request.sampling, request.max_new_tokens), (want, None));
    }

    #[test]
    fn parameters_without_a_choice_have_the_value_of_a_request_without_them() {
        let mut sampling = Sampling::default();
        SAMPLING_PARAMETERS.iter().for_each(|of| set(*of, &mut sampling, of.default_value()));
        assert_eq!(sampling, Sampling::default());
    }

    #[test]
    fn what_a_request_says_wins() {
        let defaults = defaults(json!({ "temperature": 0.6, "top_k": 20 })).unwrap();
        let mut request = request(&[SamplingParameter::TopK, SamplingParameter::TopP]);
        request.sampling.temperature = 0.2;
        defaults.fill(&mut request);
        assert_eq!(request.sampling, Sampling { temperature: 0.2, top_k: 20, ..Sampling::default() });
    }

    #[test]
    fn values_say_whose_they_are_and_do_sample_chooses_none() {
        let greedy = defaults(json!({ "do_sample": false, "top_k": -1, "temperature": null })).unwrap();
        let values: Vec<_> =
            greedy.values().map(|(of, value, published)| (of.name(), value, published)).collect();
        assert_eq!(values[..3], [("temperature", 1.0, false), ("top_p", 1.0, false), ("top_k", 0.0, true)]);
        let cool = defaults(json!({ "temperature": 0.6 })).unwrap();
        assert_eq!(cool.values().next(), Some((SamplingParameter::Temperature, 0.6, true)));
    }

    #[test]
    fn a_value_that_no_request_may_have_names_its_field_and_the_way_out() {
        let error = |file: Value| defaults(file).unwrap_err();
        assert_eq!(
            error(json!({ "top_p": 0 })),
            "generation_config.json: `top_p` cannot be 0; `--generation-config none` ignores the file"
        );
        assert_eq!(
            error(json!({ "temperature": "hot" })),
            "generation_config.json: `temperature` must be a number, not \"hot\"; `--generation-config none` ignores the file"
        );
    }
}
