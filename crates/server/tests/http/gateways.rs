//! What gateways read of a replica.

use serde_json::json;

use super::client::get;
use super::server;

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
    assert_eq!(get(server.address, "/server_info").json()["tp_size"], 1);
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
