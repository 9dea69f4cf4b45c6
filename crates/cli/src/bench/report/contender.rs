//! The servers of a report: this one, this one without a part, and peers.

use crate::error::Error;
use crate::launch::server::{OwnServer, ServerFlags};
use crate::settings::Config;

/// The name of this server with all its parts.
pub const OURS: &str = "omnibus";

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
    let mut contenders = vec![own(config, OURS, &[], &[])?];
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

    use crate::settings::ablation::Ablation;

    /// The settings of a server with these flags.
    fn settings(flags: &[&str]) -> Settings {
        let words = ["omnibus", "serve"].iter().chain(flags).map(std::ffi::OsString::from);
        crate::args::parse(words).unwrap().resolve().unwrap().config.engine
    }

    /// A load on a simulated server with these flags.
    fn simulated(workload: Workload, flags: &[&str]) -> Report {
        let arrivals = workload.arrivals(7, 64, 0.5);
        sim::simulate(&settings(flags), &Machine::m5_max_70b(), &arrivals, None)
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
