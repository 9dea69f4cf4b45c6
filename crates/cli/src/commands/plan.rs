//! `omnibus plan`: what a model would need on this machine or on a Mac, before it is downloaded.

use std::path::Path;
use std::process::ExitCode;

use omnibus_engine::{DeviceChoice, Mac, PlannedMemory, gigabytes, machine, memory_for_models};
use omnibus_hub::{Hub, HubSettings};
use omnibus_offline::bench::RandomWeights;
use omnibus_offline::planned_step::{PlannedGpu, plan_step};
use serde_json::{Value, json};

use super::doctor_as;
use crate::error::Error;
use crate::settings::{Config, Output};
use crate::{completion_output, gguf, model, output};

/// Packings that are proposed where a model does not fit, in bits.
const PROPOSED_BITS: [usize; 4] = [8, 6, 4, 3];
/// Tokens of a stream, beside the whole context.
const STREAM_TOKENS: u64 = 8192;

/// A model as its files describe it.
struct Subject {
    name: String,
    config: String,
    /// Bytes of weights, as they are stored; 0 where only the config says.
    weight_bytes: u64,
    /// Files and bytes to download; `None` where nothing is.
    download: Option<(usize, u64)>,
}

/// What a model takes.
#[derive(Clone, Copy)]
struct Taken {
    weight_bytes: u64,
    /// Of all layers, for a token.
    kv_token_bytes: u64,
}

/// The model of `--draft-model`.
struct Draft {
    subject: Subject,
    taken: Taken,
}

/// What a model needs, and what there is.
struct Needs {
    taken: Taken,
    /// Tokens that fit beside the weights; `None` where the memory is unknown, an error where the weights do not fit.
    tokens: Result<Option<u64>, String>,
}

/// Prints the plan of one model.
pub fn run(config: &Config, arguments: &[String]) -> Result<ExitCode, Error> {
    let [name] = arguments else {
        return Err(Error::usage("name one model: a directory, a GGUF file or org/name"));
    };
    let subject = Subject::read(name)?;
    let weights = RandomWeights::new(name, &subject.config, None).map_err(Error::failed)?;
    let mut config = config.clone();
    // It is counted here, since its files need not be on this machine.
    let draft = config.engine.speculation.draft_model.take();
    let draft = draft.map(|draft| Draft::read(&draft.to_string_lossy())).transpose()?;
    let place =
        Place { mac: config.doctor.mac, config: &config, draft: draft.as_ref().map(|draft| draft.taken) };
    let needs = place.needs(&weights, Some(subject.weight_bytes))?;
    let instead = match needs.fits() {
        true => None,
        false => place.smaller(&subject, needs.taken.weight_bytes)?,
    };
    let report = Report {
        subject,
        needs,
        instead,
        place: place.name()?,
        context: context(&weights),
        is_bounded_less: place.is_cpu(),
        draft,
    };
    match config.output {
        Output::Json => output::line(report.as_json().to_string()),
        Output::Text => report.lines().into_iter().for_each(output::line),
    }
    Ok(ExitCode::SUCCESS)
}

/// The longest context of the config.
fn context(weights: &RandomWeights) -> Option<u64> {
    let field = |config: &serde_json::Map<String, Value>| config.get("max_position_embeddings")?.as_u64();
    let text = || weights.config().get("text_config").and_then(Value::as_object).and_then(field);
    field(weights.config()).or_else(text)
}

impl Subject {
    fn read(name: &str) -> Result<Self, Error> {
        let path = Path::new(name);
        if let Some(file) = gguf::file(path)? {
            let file = omnibus_gguf::Gguf::open(&file).map_err(Error::failed)?;
            let config = Value::Object(file.config().map_err(Error::failed)?).to_string();
            // What it becomes is in the config, and may be more than the file has.
            return Ok(Self { name: name.to_owned(), config, weight_bytes: 0, download: None });
        }
        if path.is_dir() {
            return Self::of_directory(name, path);
        }
        let id = model::hub_id(name).ok_or_else(|| {
            Error::failed(format!(
                "`{name}` is no directory, no GGUF file and no org/name of a model on the hub"
            ))
        })?;
        let hub = Hub::new(HubSettings::from_environment()).map_err(Error::failed)?;
        let found = completion_output::runtime()?.block_on(hub.describe(&id)).map_err(Error::failed)?;
        let config = found.config.ok_or_else(|| {
            Error::failed(format!(
                "{id} is a GGUF file of {}: pull it, and plan the file",
                gigabytes(found.bytes)
            ))
        })?;
        let download = Some((found.files, found.bytes));
        Ok(Self { name: id.to_string(), config, weight_bytes: found.weight_bytes, download })
    }

    /// Where its files are.
    fn files(&self) -> String {
        match self.download {
            Some((files, bytes)) => format!("{} to download in {files} files", gigabytes(bytes)),
            None => "on this machine".to_owned(),
        }
    }

    fn of_directory(name: &str, path: &Path) -> Result<Self, Error> {
        let failed =
            |path: &Path, error: &std::io::Error| Error::failed(format!("{}: {error}", path.display()));
        let file = path.join("config.json");
        let config = std::fs::read_to_string(&file).map_err(|error| failed(&file, &error))?;
        let mut weight_bytes = 0;
        for entry in std::fs::read_dir(path).map_err(|error| failed(path, &error))? {
            let entry = entry.map_err(|error| failed(path, &error))?.path();
            if entry.extension().is_some_and(|ending| ending == "safetensors") {
                weight_bytes += entry.metadata().map_err(|error| failed(&entry, &error))?.len();
            }
        }
        Ok(Self { name: name.to_owned(), config, weight_bytes, download: None })
    }
}

impl Draft {
    fn read(name: &str) -> Result<Self, Error> {
        let subject = Subject::read(name)?;
        let weights = RandomWeights::new(name, &subject.config, None).map_err(Error::failed)?;
        let taken = Taken::by(&weights, Some(subject.weight_bytes))?;
        Ok(Self { subject, taken })
    }
}

impl Taken {
    /// `stored`: bytes of the weights, where they are known better than from the config.
    fn by(weights: &RandomWeights, stored: Option<u64>) -> Result<Self, Error> {
        let step = plan_step(weights, PlannedGpu::Mac, 1, 0).map_err(Error::failed)?;
        let weight_bytes = stored.filter(|bytes| *bytes > 0).unwrap_or(step.weight_bytes);
        Ok(Self { weight_bytes, kv_token_bytes: step.kv_token_bytes })
    }

    fn line(self) -> String {
        format!(
            "{} of weights, {:.1} KB of keys and values a token",
            gigabytes(self.weight_bytes),
            self.kv_token_bytes as f64 / 1e3
        )
    }
}

/// Where a model would run.
struct Place<'a> {
    mac: Option<&'static Mac>,
    config: &'a Config,
    /// What a draft model takes there.
    draft: Option<Taken>,
}

impl Place<'_> {
    fn name(&self) -> Result<String, Error> {
        if let Some(mac) = self.mac {
            return Ok(format!("{} with {} of memory", mac.name, gigabytes(mac.memory_bytes())));
        }
        let limit = memory_for_models(&self.config.engine).map_err(Error::failed)?;
        Ok(limit.map_or("this machine".to_owned(), |limit| {
            format!("this machine: {} for models ({})", gigabytes(limit.bytes), limit.source)
        }))
    }

    fn is_cpu(&self) -> bool {
        self.mac.is_none() && (self.config.engine.device == DeviceChoice::Cpu || machine().gpu.is_none())
    }

    /// `stored`: bytes of the weights, where they are known better than from the config.
    fn needs(&self, weights: &RandomWeights, stored: Option<u64>) -> Result<Needs, Error> {
        let mut taken = Taken::by(weights, stored)?;
        let tokens = match self.mac {
            Some(mac) => self.on_mac(mac, weights, taken)?,
            None => {
                // A CPU computes in float32, and so are its keys and values.
                taken.kv_token_bytes *= if self.is_cpu() { 2 } else { 1 };
                self.here(taken)?
            }
        };
        Ok(Needs { taken, tokens })
    }

    /// The tokens of a model's memory plan; beside a draft model, those that its bytes have room for.
    fn on_mac(
        &self,
        mac: &'static Mac,
        weights: &RandomWeights,
        taken: Taken,
    ) -> Result<Result<Option<u64>, String>, Error> {
        let plan = doctor_as::planned(mac, weights, self.config)?;
        Ok(match plan.planned {
            Ok(PlannedMemory { plan, .. }) => {
                let bytes = (plan.kv_tokens as u64).saturating_mul(taken.kv_token_bytes);
                Ok(Some(self.draft.map_or(plan.kv_tokens as u64, |draft| {
                    bytes.saturating_sub(draft.weight_bytes)
                        / (taken.kv_token_bytes + draft.kv_token_bytes).max(1)
                })))
            }
            Err(error) => Err(error.to_string()),
        })
    }

    /// What is left beside the weights, divided by what a token takes.
    fn here(&self, taken: Taken) -> Result<Result<Option<u64>, String>, Error> {
        let limit = memory_for_models(&self.config.engine).map_err(Error::failed)?;
        let of_cpu = if self.is_cpu() { 2 } else { 1 };
        let (draft_weights, draft_token) =
            self.draft.map_or((0, 0), |draft| (draft.weight_bytes, of_cpu * draft.kv_token_bytes));
        let (weights, token) = (taken.weight_bytes + draft_weights, taken.kv_token_bytes + draft_token);
        Ok(match limit {
            None => Ok(None),
            Some(limit) if limit.bytes <= weights => Err(format!(
                "the weights take {} of the {} for models",
                gigabytes(weights),
                gigabytes(limit.bytes)
            )),
            Some(limit) => Ok(Some((limit.bytes - weights) / token.max(1))),
        })
    }

    /// The packing with the most bits that fits in less than `most` bytes of weights, with their bytes.
    fn smaller(&self, subject: &Subject, most: u64) -> Result<Option<(usize, u64)>, Error> {
        for bits in PROPOSED_BITS {
            let weights =
                RandomWeights::new(&subject.name, &subject.config, Some(bits)).map_err(Error::failed)?;
            let bytes = weights.bytes();
            if bytes < most && self.needs(&weights, None)?.fits() {
                return Ok(Some((bits, bytes)));
            }
        }
        Ok(None)
    }
}

impl Needs {
    fn fits(&self) -> bool {
        self.tokens.as_ref().is_ok_and(|tokens| tokens.is_none_or(|tokens| tokens > 0))
    }
}

struct Report {
    subject: Subject,
    needs: Needs,
    /// A packing that fits where the model does not: its bits, and the bytes of its weights.
    instead: Option<(usize, u64)>,
    place: String,
    context: Option<u64>,
    /// Whether `serve` gives keys and values less than there is room for, unless a flag says how much.
    is_bounded_less: bool,
    draft: Option<Draft>,
}

impl Report {
    fn as_json(&self) -> Value {
        let Self { subject, needs, instead, place, context, draft, .. } = self;
        json!({
            "model": subject.name,
            "place": place,
            "download_files": subject.download.map(|(files, _)| files),
            "download_bytes": subject.download.map(|(_, bytes)| bytes),
            "quantization": self.quantization(),
            "weight_bytes": needs.taken.weight_bytes,
            "kv_token_bytes": needs.taken.kv_token_bytes,
            "draft_model": draft.as_ref().map(|draft| &draft.subject.name),
            "draft_download_bytes": draft.as_ref().and_then(|draft| draft.subject.download).map(|(_, bytes)| bytes),
            "draft_weight_bytes": draft.as_ref().map(|draft| draft.taken.weight_bytes),
            "draft_kv_token_bytes": draft.as_ref().map(|draft| draft.taken.kv_token_bytes),
            "max_context": context,
            "fits": needs.fits(),
            "kv_tokens": needs.tokens.as_ref().ok(),
            "error": needs.tokens.as_ref().err(),
            "instead": instead.map(|(bits, bytes)| json!({ "bits": bits, "weight_bytes": bytes })),
        })
    }

    /// As the config has it: `4-bit`.
    fn quantization(&self) -> Option<String> {
        let config: Value = serde_json::from_str(&self.subject.config).ok()?;
        let section = config.get("quantization").or_else(|| config.get("quantization_config"))?;
        let bits = section.get("bits").and_then(Value::as_u64).map(|bits| format!("{bits}-bit"));
        bits.or_else(|| section.get("quant_method").and_then(Value::as_str).map(str::to_owned))
    }

    fn lines(&self) -> Vec<String> {
        let Self { subject, needs, place, draft, .. } = self;
        let quantization = self.quantization().unwrap_or_else(|| "not quantized".to_owned());
        let draft = draft.as_ref().map(|Draft { subject, taken }| {
            format!("draft model {}: {}, {}", subject.name, subject.files(), taken.line())
        });
        let model = format!("{}: {quantization}, {}", subject.name, subject.files());
        [model, place.clone(), needs.taken.line()].into_iter().chain(draft).chain([self.outcome()]).collect()
    }

    fn outcome(&self) -> String {
        match &self.needs.tokens {
            Ok(None) => "fits, as far as is known: the system says no limit".to_owned(),
            Ok(Some(tokens)) if *tokens > 0 => {
                let context = self.context.unwrap_or(*tokens).min(*tokens);
                let stream = context.min(STREAM_TOKENS);
                let streams = tokens / stream;
                let most = if self.is_bounded_less {
                    " with --kv-cache-memory (less by default on a CPU)"
                } else {
                    ""
                };
                format!(
                    "fits: {tokens} tokens of all streams together{most}, a context of {context}, or {streams} streams of {stream} tokens"
                )
            }
            tokens => {
                let why = tokens.as_ref().err().map_or("no token fits beside the weights", String::as_str);
                format!("does not fit: {why}; {}", self.advice())
            }
        }
    }

    fn advice(&self) -> String {
        match self.instead {
            Some((bits, bytes)) => format!(
                "in {bits} bits ({}) it does: take such a repository of mlx-community, or `omnibus convert -q --q-bits {bits}`",
                gigabytes(bytes)
            ),
            None => "no packing of it fits: take a smaller model".to_owned(),
        }
    }
}
