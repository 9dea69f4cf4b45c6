//! What a server's process has, and how it ends.

use omnibus_mcp::{Sandbox, ServerState};
use omnibus_testing::environment::variable;
use omnibus_testing::mcp::{entry, entry_with};
use serde_json::{Value, json};

use super::{call, server, status, text, until};

#[tokio::test]
async fn a_process_has_its_own_environment_and_nothing_of_ours() {
    let servers = server(entry_with(&[], json!({"env": {"OWN": "1"}}))).await;
    let environment: Value = serde_json::from_str(&text(&servers, "environment", json!({})).await).unwrap();
    let names = environment.as_object().unwrap();
    assert_eq!(names["OWN"], "1");
    assert!(names.contains_key("PATH"));
    // Cargo sets this for tests.
    assert!(variable("CARGO_MANIFEST_DIR").is_some());
    assert!(!names.keys().any(|name| name.starts_with("CARGO")), "{names:?}");
}

#[tokio::test]
async fn a_process_has_a_folder_of_its_own_which_goes_with_it() {
    let servers = server(entry(&[])).await;
    let folder = std::path::PathBuf::from(text(&servers, "folder", json!({})).await);
    assert!(folder.is_dir() && std::fs::read_dir(&folder).unwrap().next().is_none());
    drop(servers);
    until(|| !folder.exists()).await;
}

#[tokio::test]
async fn a_process_ends_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    let servers = server(entry_with(
        &["child", "stays"],
        json!({"env": {"PID_FILE": file}, "sandbox": {"mode": "off"}}),
    ))
    .await;
    assert_eq!(status(&servers).state, ServerState::Ready);
    let pid = || std::fs::read_to_string(&file).ok()?.parse::<i32>().ok();
    until(|| pid().is_some()).await;
    let pid = rustix::process::Pid::from_raw(pid().unwrap()).unwrap();
    let is_alive = || rustix::process::test_kill_process(pid).is_ok() && !is_zombie(pid);
    assert!(is_alive());
    drop(servers);
    until(|| !is_alive()).await;
}

/// A process that has ended, and whose parent has not read how.
fn is_zombie(pid: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z')))
}

#[tokio::test]
async fn a_process_is_confined_where_something_can() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
    std::fs::create_dir_all(&inside).unwrap();
    let rules = json!({"env": {"WRITE": format!("{}:{}", inside.join("a").display(), outside.display())},
        "sandbox": {"writable": [inside]}});
    let servers = server(entry_with(&["writes"], rules)).await;
    let written = text(&servers, "writes", json!({})).await;
    match Sandbox::of_machine() {
        Sandbox::None(why) => {
            assert_eq!(status(&servers).sandbox, format!("none ({why})"));
            assert_eq!(written, "[true, true]");
        }
        found => {
            assert_eq!(status(&servers).sandbox, found.name());
            assert_eq!(written, "[true, false]");
            assert!(inside.join("a").exists() && !outside.exists());
        }
    }
}

#[tokio::test]
async fn a_process_has_limits() {
    let entry = |limits: Value| entry_with(&["limits"], limits);
    let servers = server(entry(json!({"memoryBytes": 1u64 << 30, "cpuSeconds": 77}))).await;
    let limits = text(&servers, "limits", json!({})).await;
    assert_eq!(limits, "[1073741824, 77]");
    assert!(call(&servers, "limits", json!({})).await.is_ok());
}
