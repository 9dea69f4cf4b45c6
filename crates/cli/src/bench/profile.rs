//! The kernels of one step, and how long each takes by itself.

use std::fmt::Write as _;

use omnibus_offline::bench::{PassProfile, ProfiledPass, measure_kernels};

use super::engine::bench_model;
use crate::error::Error;
use crate::log;
use crate::settings::{Config, Log};

/// Measures a decode step for each number of streams, and a prompt if one is named.
pub fn run(config: &Config) -> Result<Vec<PassProfile>, Error> {
    log::install(&Log { filter: "warn".to_owned(), ..config.log.clone() });
    let bench = &config.engine_bench;
    let decode =
        bench.streams.iter().map(|&streams| ProfiledPass::Decode { streams, context: bench.context });
    let prefill = bench.prefill.map(|tokens| ProfiledPass::Prefill { tokens });
    let passes: Vec<ProfiledPass> = decode.chain(prefill).collect();
    measure_kernels(&bench_model(config)?, config.engine.device, &passes).map_err(Error::failed)
}

/// A Markdown table for each pass.
pub fn tables(profiles: &[PassProfile]) -> String {
    profiles.iter().map(table).collect::<Vec<_>>().join("\n\n")
}

fn table(profile: &PassProfile) -> String {
    let all: f64 = profile.kernels.iter().map(|kernel| kernel.milliseconds).sum();
    let launches: usize = profile.kernels.iter().map(|kernel| kernel.launches).sum();
    let mut table = format!(
        "{}\n\n| kernel | launches | us each | ms | share |\n| --- | ---: | ---: | ---: | ---: |",
        profile.pass
    );
    for kernel in &profile.kernels {
        let each = 1e3 * kernel.milliseconds / kernel.launches.max(1) as f64;
        let share = 100.0 * kernel.milliseconds / all.max(f64::MIN_POSITIVE);
        let _ = write!(
            table,
            "\n| `{}` | {} | {each:.1} | {:.3} | {share:.0} % |",
            kernel.kernel, kernel.launches, kernel.milliseconds
        );
    }
    let _ = write!(table, "\n| all | {launches} | | {all:.3} | |");
    table
}

#[cfg(test)]
mod tests {
    use omnibus_offline::bench::KernelShare;

    use super::*;

    #[test]
    fn a_table_has_each_kernel_and_their_sum() {
        let kernel = |name: &str, launches, milliseconds| KernelShare {
            kernel: name.to_owned(),
            launches,
            milliseconds,
        };
        let kernels = vec![kernel("wmm", 4, 0.3), kernel("attn_mma", 1, 0.1)];
        let profile = PassProfile { pass: "decode, 1 stream at 8".to_owned(), kernels };
        expect_test::expect![[r"
            decode, 1 stream at 8

            | kernel | launches | us each | ms | share |
            | --- | ---: | ---: | ---: | ---: |
            | `wmm` | 4 | 75.0 | 0.300 | 75 % |
            | `attn_mma` | 1 | 100.0 | 0.100 | 25 % |
            | all | 5 | | 0.400 | |"]]
        .assert_eq(&tables(&[profile]));
    }
}
