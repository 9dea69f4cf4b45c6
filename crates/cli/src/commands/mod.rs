//! Runs commands.

mod batch;
mod bench_energy;
mod bench_engine;
mod bench_prefix;
mod bench_report;
mod bench_serve;
mod bench_sim;
mod bench_speculation;
mod cache;
mod chat;
mod completions;
mod convert;
mod doctor;
mod doctor_as;
mod doctor_kernels;
mod doctor_plan;
mod doctor_report;
mod generate;
mod hub;
mod launch;
mod mcp;
mod models;
mod named;
mod perplexity;
mod plan;
mod ps;
mod push;
mod replay;
mod run;
mod sampling_defaults;
mod serve;
mod serve_announcement;
mod serve_settings;
mod service;

use std::process::ExitCode;

use crate::args::ParsedArgs;
use crate::command_name::CommandName;
use crate::error::Error;
use crate::settings::{Action, Config, DoctorSubject, Resolved, runs_on_device};
use crate::{libmlx, output};

/// Runs a command.
pub fn run(args: &ParsedArgs) -> Result<ExitCode, Error> {
    let resolved = args.resolve()?;
    if resolved.config.action == Action::PrintConfig {
        output::line(resolved.printed());
        if args.name == CommandName::Serve {
            output::line(sampling_defaults::printed(&resolved.config, &args.arguments)?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let shown = resolved.shown();
    let Resolved { mut config, .. } = resolved;
    config.listen.shown_settings = shown;
    let arguments = named::take(args.name, &args.arguments, &mut config)?;
    if computes(args.name, &config) {
        libmlx::load(&config.isolation, config.engine.device)?;
    }
    match args.name {
        CommandName::Serve => serve::run(config, &arguments),
        CommandName::Generate => generate::run(&config),
        CommandName::Chat => chat::run(&config),
        CommandName::Run => run::run(config, &arguments),
        CommandName::Ps => ps::run(&config),
        CommandName::Batch => batch::run(&config),
        CommandName::Launch => launch::run(&config, &arguments),
        CommandName::Replay => replay::run(&config, &arguments),
        CommandName::Convert => convert::run(&config),
        CommandName::Perplexity => perplexity::run(&config, &arguments),
        CommandName::Plan => plan::run(&config, &arguments),
        CommandName::Models => models::run(&config),
        CommandName::Doctor => match &config.doctor.subject {
            DoctorSubject::Plan(name) => doctor_plan::run(name, &config),
            _ if config.doctor.rows.is_some() => Err(Error::usage("--rows needs --plan")),
            DoctorSubject::Kernels if config.doctor.mac.is_some() => {
                Err(Error::usage("--as plans; --kernels runs on this machine's GPU"))
            }
            DoctorSubject::Machine => match config.doctor.mac {
                Some(mac) => doctor_as::run(mac, &config),
                None => doctor::run(&config),
            },
            DoctorSubject::Kernels => doctor_kernels::run(config.output),
            DoctorSubject::Report(_) if config.doctor.mac.is_some() => {
                Err(Error::usage("--as plans; --report runs on this machine"))
            }
            DoctorSubject::Report(path) => doctor_report::run(path, &config),
        },
        CommandName::BenchServe => bench_serve::run(&config),
        CommandName::BenchPrefix => bench_prefix::run(&config),
        CommandName::BenchEngine => bench_engine::run(&config),
        CommandName::BenchEnergy => bench_energy::run(&config),
        CommandName::BenchReport => bench_report::run(&config),
        CommandName::BenchCompare => bench_report::compare(&config, &arguments),
        CommandName::BenchSpeculation => bench_speculation::run(&config),
        CommandName::BenchSim => bench_sim::run(&config),
        CommandName::CachePrompt => cache::prompt(&config),
        CommandName::CacheList => cache::list(&config),
        CommandName::CacheRemove => cache::remove(&config, &arguments),
        CommandName::Pull => hub::pull(&arguments),
        CommandName::Push => push::run(&arguments, config.conversion.visibility),
        CommandName::ListModels => hub::list(config.output),
        CommandName::RemoveModels => hub::remove(&arguments),
        CommandName::McpList => mcp::list(&config),
        CommandName::McpCall => mcp::call(&config, &arguments),
        CommandName::ServiceInstall => service::install(&config, &arguments),
        CommandName::ServiceUninstall => service::uninstall(&config),
        CommandName::ServiceStatus => service::status(&config),
        CommandName::ServiceLogs => service::logs(&config),
        CommandName::Completions => completions::run(&arguments),
    }
}

/// Whether a command needs libmlx. `doctor` needs none to say that it is missing.
fn computes(name: CommandName, config: &Config) -> bool {
    let says_what_is_missing = match config.doctor.subject {
        DoctorSubject::Machine => config.doctor.mac.is_none(),
        DoctorSubject::Report(_) => true,
        DoctorSubject::Kernels | DoctorSubject::Plan(_) => false,
    };
    runs_on_device(name) || (name == CommandName::Doctor && !says_what_is_missing)
}
