//! Settings of a model on several machines: how many processes there are, and of which kind.

use crate::cluster::Cluster;
use crate::settings::Settings;

/// Settings with a process for each host: stages, unless they say otherwise. The error names what does not fit.
pub fn divided_among(cluster: Cluster, settings: Settings) -> Result<Settings, String> {
    let mut settings = settings;
    let (ranks, hosts) = (settings.tensor_parallel_size, cluster.hosts.len());
    if ranks * settings.pipeline_parallel_size == 1 {
        settings.pipeline_parallel_size = hosts;
    }
    let stages = settings.pipeline_parallel_size;
    let refused = [
        (settings.data_parallel_size > 1, "several hosts do not work with --data-parallel-size yet".to_owned()),
        (ranks > 1 && stages > 1, "on several hosts, only one of --tensor-parallel-size and --pipeline-parallel-size may be above 1 yet".to_owned()),
        (ranks * stages != hosts, format!(
            "there are {hosts} hosts, and --tensor-parallel-size {ranks} and --pipeline-parallel-size {stages} make {} processes",
            ranks * stages
        )),
    ];
    match refused.into_iter().find(|(is_refused, _)| *is_refused) {
        Some((_, why)) => Err(why),
        None => Ok(Settings { cluster: Some(cluster), ..settings }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Host, Reach};

    fn divided(hosts: usize, settings: Settings) -> Result<(usize, usize), String> {
        let host = Host { address: [127, 0, 0, 1].into(), reach: Reach::Listening(1) };
        let cluster = Cluster {
            hosts: vec![host; hosts],
            ssh: vec!["ssh".to_owned()],
            program: "omnibus".to_owned(),
            secret: None,
        };
        assert_eq!(cluster.processes_on_a_host(), hosts);
        let settings = divided_among(cluster, settings)?;
        Ok((settings.tensor_parallel_size, settings.pipeline_parallel_size))
    }

    #[test]
    fn each_host_has_a_process() {
        let settings = |ranks, stages| Settings {
            tensor_parallel_size: ranks,
            pipeline_parallel_size: stages,
            ..Settings::default()
        };
        assert_eq!(divided(3, settings(1, 1)), Ok((1, 3)));
        assert_eq!(divided(2, settings(2, 1)), Ok((2, 1)));
        assert!(divided(3, settings(2, 1)).unwrap_err().contains("3 hosts, and --tensor-parallel-size 2"));
        assert!(divided(4, settings(2, 2)).unwrap_err().contains("only one of"));
        let replicas = Settings { data_parallel_size: 2, ..settings(1, 1) };
        assert!(divided(2, replicas).unwrap_err().contains("--data-parallel-size"));
    }
}
