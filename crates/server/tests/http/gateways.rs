//! What gateways read of a replica.

use omnibus_server::Settings;
use serde_json::json;

use super::client::get;
use super::{server, server_with};

/// SGLang's `max_running_requests` counts what runs at once, and its `max_queued_requests` what waits.
#[test]
fn a_server_says_its_limits() {
    let server = server_with(Settings {
        max_num_seqs: 7,
        queue_places: 90,
        tensor_parallel_size: 2,
        ..Settings::default()
    });
    let info = get(server.address, "/server_info").json();
    let shown = ["tp_size", "max_running_requests", "max_queued_requests"].map(|name| &info[name]);
    assert_eq!(shown, [&json!(2), &json!(7), &json!(90)]);
}

#[test]
fn a_replica_says_what_it_serves_and_how_much_it_has_to_do() {
    let server = server();
    for path in ["/server_info", "/get_server_info", "/model_info", "/get_model_info"] {
        let info = get(server.address, path).json();
        assert_eq!(
            (&info["served_model_name"], &info["is_generation"]),
            (&json!("scripted"), &json!(true)),
            "{path}"
        );
    }
    for path in ["/v1/loads?include=all", "/loads"] {
        let loads = get(server.address, path).json();
        assert_eq!(
            loads["dp_rank_count"].as_u64().unwrap() as usize,
            loads["loads"].as_array().unwrap().len()
        );
        let load = &loads["loads"][0];
        for count in ["num_running_reqs", "num_waiting_reqs", "num_used_tokens", "max_total_num_tokens"] {
            assert!(load[count].is_u64(), "{path}: {load}");
        }
        assert!(
            load["token_usage"].is_number() && loads["aggregate"]["total_reqs"].is_u64(),
            "{path}: {loads}"
        );
    }
}
