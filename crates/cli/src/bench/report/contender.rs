//! The servers of a report: this one, this one without a part, and peers.

use crate::error::Error;
use crate::launch::server::{OwnServer, ServerFlags};
use crate::settings::Config;

/// A part that can be switched off. Each is one set of flags or variables of `serve`.
#[derive(Debug, PartialEq, Eq)]
pub struct Ablation {
    /// Its name on the command line.
    pub name: &'static str,
    /// What `serve` gets.
    pub flags: &'static [&'static str],
    /// What its environment gets.
    pub variables: &'static [(&'static str, &'static str)],
}

const fn flags(name: &'static str, flags: &'static [&'static str]) -> Ablation {
    Ablation { name, flags, variables: &[] }
}

const fn variables(name: &'static str, variables: &'static [(&'static str, &'static str)]) -> Ablation {
    Ablation { name, flags: &[], variables }
}

/// Every ablation.
pub const ABLATIONS: &[Ablation] = &[
    flags("prefix-cache", &["--prefix-cache", "off"]),
    // A prompt of up to so many tokens is one chunk: `fcfs` has no targets that make it smaller.
    flags("chunked-prefill", &["--schedule", "fcfs", "--max-num-batched-tokens", "131072"]),
    flags("fair", &["--schedule", "fcfs"]),
    flags("spec", &["--draft", "off"]),
    variables("graphs", &[("OMNIBUS_KERNELS", "launch")]),
    variables("kernels", &[("OMNIBUS_KERNELS", "mlx")]),
    flags("isolation", &["--in-process"]),
    flags("media-cache", &["--media-cache-memory", "0"]),
];

impl Ablation {
    /// The one of this name. Fails with the names that there are.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        ABLATIONS.iter().find(|ablation| ablation.name == name).ok_or_else(|| {
            let names: Vec<&str> = ABLATIONS.iter().map(|ablation| ablation.name).collect();
            format!("--ablate: there is no `{name}`; choose from {}", names.join(", "))
        })
    }
}

/// A server that gets the loads.
pub struct Contender {
    /// Its name in the report.
    pub name: String,
    /// Base URL of its API: `http://…/v1`.
    pub url: String,
    /// Its flags and variables beside the model, for readers.
    pub setup: String,
    /// One that was started for the report, and has our `/v1/status`.
    pub own: Option<OwnServer>,
}

/// Starts our servers, and takes the peers as they are.
pub fn all(config: &Config) -> Result<Vec<Contender>, Error> {
    let mut contenders = vec![own(config, "omnibus", &[], &[])?];
    for ablation in &config.report.ablations {
        let name = format!("without {}", ablation.name);
        contenders.push(own(config, &name, ablation.flags, ablation.variables)?);
    }
    contenders.extend(config.report.peers.iter().map(|(name, url)| Contender {
        name: name.clone(),
        url: url.clone(),
        setup: url.clone(),
        own: None,
    }));
    Ok(contenders)
}

fn own(config: &Config, name: &str, flags: &[&str], variables: &[(&str, &str)]) -> Result<Contender, Error> {
    let mut all: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    if let Some(watts) = config.engine.power_model_watts {
        all.extend(["--power-model".to_owned(), watts.to_string()]);
    }
    let server =
        OwnServer::start_with(config.model.as_deref(), None, &ServerFlags { flags: &all, variables })?;
    let shown = variables.iter().map(|(name, value)| format!("{name}={value}"));
    let setup = shown.chain(all.iter().cloned()).collect::<Vec<_>>().join(" ");
    Ok(Contender { name: name.to_owned(), url: format!("{}/v1", server.url), setup, own: Some(server) })
}

#[cfg(test)]
mod tests {
    use omnibus_engine::{PrefixCache, Settings};
    use omnibus_offline::sim::{self, Machine, Report, Workload};

    use super::*;

    #[test]
    fn an_unknown_ablation_is_refused_with_the_names() {
        let error = Ablation::named("magic").unwrap_err();
        assert!(error.contains("`magic`") && error.contains("prefix-cache, chunked-prefill"), "{error}");
        assert_eq!(Ablation::named("spec").map(|ablation| ablation.flags), Ok(&["--draft", "off"][..]));
    }

    /// The settings of a server with these flags.
    fn settings(flags: &[&str]) -> Settings {
        let words = ["omnibus", "serve"].iter().chain(flags).map(std::ffi::OsString::from);
        crate::args::parse(words).unwrap().resolve().unwrap().config.engine
    }

    /// The same load on a simulated server with these flags.
    fn simulated(workload: Workload, flags: &[&str]) -> Report {
        let arrivals = workload.arrivals(7, 64, 0.5);
        sim::simulate(&settings(flags), &Machine::m5_max_70b(), &arrivals)
    }

    fn without(name: &str) -> &'static [&'static str] {
        Ablation::named(name).unwrap().flags
    }

    #[test]
    fn in_a_simulation_each_ablation_of_the_scheduler_changes_what_it_should() {
        let (all, uncached) =
            (simulated(Workload::Agents, &[]), simulated(Workload::Agents, without("prefix-cache")));
        assert_eq!(settings(without("prefix-cache")).prefix_cache, PrefixCache::Off);
        assert!(uncached.ttft.p50 > 2 * all.ttft.p50, "{:?} {:?}", uncached.ttft, all.ttft);
        let (all, unfair) = (simulated(Workload::Long, &[]), simulated(Workload::Long, without("fair")));
        assert!(unfair.ttft.p50 > all.ttft.p50, "{:?} {:?}", unfair.ttft, all.ttft);
        let chunked = simulated(Workload::Agents, without("fair"));
        let whole = simulated(Workload::Agents, without("chunked-prefill"));
        assert!(whole.itl_max > chunked.itl_max, "{} {}", whole.itl_max, chunked.itl_max);
    }

    #[test]
    fn in_a_simulation_what_is_outside_of_the_scheduler_changes_nothing() {
        let all = format!("{:?}", simulated(Workload::Agents, &[]));
        for name in ["isolation", "media-cache", "graphs", "kernels"] {
            assert_eq!(format!("{:?}", simulated(Workload::Agents, without(name))), all, "{name}");
        }
    }
}
