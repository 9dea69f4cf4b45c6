//! Two processes on this machine form a ring. The test runs itself again, once for each rank.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use mlx::group::{Group, Transport};
use mlx::{Array, Dtype, Result};
use omnibus_testing::environment::variable;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn two_ranks_add_up() -> Result<()> {
    if variable("MLX_RANK").is_some() {
        return one_rank();
    }
    let ports = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = ports.map(|socket| socket.local_addr().unwrap().port());
    let hosts = std::env::temp_dir().join(format!("mlx-hosts-{}.json", std::process::id()));
    std::fs::write(&hosts, format!(r#"[["127.0.0.1:{}"], ["127.0.0.1:{}"]]"#, ports[0], ports[1])).unwrap();
    let rank = |rank: &str| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["group::two_ranks_add_up", "--exact"])
            .env("MLX_RANK", rank)
            .env("MLX_HOSTFILE", &hosts);
        command.spawn().unwrap()
    };
    let ranks = ["0", "1"].map(rank);
    let ended = ranks.map(|rank| ends_well(rank, Instant::now() + LIMIT));
    std::fs::remove_file(hosts).unwrap();
    assert_eq!(ended, [true, true]);
    Ok(())
}

fn one_rank() -> Result<()> {
    let group = Group::join(Transport::Ring)?;
    assert_eq!(group.size(), 2);
    let mine = Array::from_slice(&[group.rank() as f32 + 1.0, 10.0], &[2])?;
    assert_eq!(group.all_sum(&mine)?.to_vec::<f32>()?, [3.0, 20.0]);
    assert_eq!(group.all_gather(&mine)?.to_vec::<f32>()?, [1.0, 10.0, 2.0, 10.0]);
    match group.rank() {
        0 => group.send(&mine, 1)?.eval()?,
        _ => assert_eq!(group.recv(&[2], Dtype::F32, 0)?.to_vec::<f32>()?, [1.0, 10.0]),
    }
    assert!(group.send(&mine, 2).is_err());
    Ok(())
}

fn ends_well(mut rank: Child, deadline: Instant) -> bool {
    while Instant::now() < deadline {
        if let Some(status) = rank.try_wait().unwrap() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    rank.kill().unwrap();
    rank.wait().unwrap();
    false
}

#[test]
fn a_group_that_the_environment_does_not_describe_is_an_error() {
    if variable("MLX_RANK").is_none() {
        assert!(Group::join(Transport::Ring).is_err());
    }
}
