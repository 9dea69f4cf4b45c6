//! Loops with random faults: each request ends, with an answer or an error that says why, and nothing of it is left.
//!
//! `OMNIBUS_FUZZ_LOOPS` sets how many, `OMNIBUS_FUZZ_FIRST` the seed of the first.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use omnibus_server::{Engine as _, Settings};
use omnibus_testing::client::{self, JSON, Reply, exchange};
use omnibus_testing::mcp::entry_with;
use omnibus_testing::mutate::{Rng, cases};
use serde_json::{Value, json};
use stats_alloc::INSTRUMENTED_SYSTEM;

use super::faulty_server::{FaultyServer, TOOLS};
use super::{WithTools, with_settings};

/// Clients that send loops at once.
const CLIENTS: usize = 8;
/// Servers of the configuration that fail, and then are not called for a while.
const FAULTY: usize = 4;
/// A server that answers nothing within this time is late, in seconds.
const TIMEOUT_S: f64 = 0.2;
/// With so many loops, alone in the program, its memory after the first tenth and after all is compared.
const COMPARED_LOOPS: u64 = 1_000;
/// By how many bytes what is allocated and not freed may grow. Resident memory grows by more: the allocator keeps pages of
/// large results, which no two threads share.
const GROWTH_BYTES_MAX: usize = 1 << 20;
/// How long what is cancelled may need to end.
const SETTLED: Duration = Duration::from_secs(60);

/// An API, and how its responses end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Api {
    Chat,
    Responses,
    Messages,
}

/// One request.
struct Case {
    api: Api,
    path: &'static str,
    body: Value,
    streams: bool,
    /// The client reads so many bytes, and leaves.
    leaves: Option<usize>,
}

/// What the loops run against.
struct World {
    with: WithTools,
    faulty: FaultyServer,
    /// In the arguments of its processes.
    marker: String,
    _folder: tempfile::TempDir,
}

fn world() -> World {
    let faulty = FaultyServer::start();
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().display().to_string();
    let http = |timeout: f64| {
        json!({"type": "http", "url": faulty.url(), "approval": "never", "timeout": timeout,
            "startTimeout": 5})
    };
    let names: Vec<String> = (0..FAULTY).map(|number| format!("bad{number}")).collect();
    let mut entries = vec![("good", http(20.0))];
    entries.extend(names.iter().map(|name| (name.as_str(), http(TIMEOUT_S))));
    entries.push(("proc", entry_with(&[&marker], json!({"approval": "never", "timeout": TIMEOUT_S}))));
    let own =
        json!({"auto": ["good", "proc", "bad0", "bad1", "bad2", "bad3"], "maxRounds": 4, "maxToolCalls": 8});
    let domains = [faulty.address.to_string()];
    World {
        with: with_settings(&entries, own, &domains, Settings::default()),
        faulty,
        marker,
        _folder: folder,
    }
}

/// The steps of a conversation in which the model calls tools of these servers.
fn script(rng: &mut Rng, servers: &[&str], tools: &[&str]) -> String {
    let call = |rng: &mut Rng| {
        let (server, tool) = (rng.pick(servers), rng.pick(tools));
        let right = match *tool {
            "echo" => format!(r#"{{"text":"{}"}}"#, rng.below(1000)),
            "pick" => format!(r#"{{"n":{}}}"#, rng.below(10)),
            _ => "{}".to_owned(),
        };
        let wrong = ["{\"n\":99}", "[1", "7", "{\"text\":{}}", "{\"x\":\"<|im_end|>\"}", "null"];
        let arguments = if rng.below(4) == 0 { (*rng.pick(&wrong)).to_owned() } else { right };
        format!("call {server}__{tool} {arguments}")
    };
    let mut steps = Vec::new();
    for _ in 0..rng.below(4) {
        let calls: Vec<String> = (0..=rng.below(3)).map(|_| call(rng)).collect();
        steps.push(calls.join(" & "));
    }
    steps.push((*rng.pick(&["results", "say done", "say a & call client_tool {}"])).to_owned());
    steps.join(" | ")
}

/// A case, for a server at this address.
fn case(seed: u64, faulty: SocketAddr) -> Case {
    let mut rng = Rng::new(seed);
    let api = *rng.pick(&[Api::Chat, Api::Responses, Api::Messages]);
    let streams = rng.below(2) == 0;
    let leaves = (rng.below(5) == 0).then(|| rng.below(600));
    let remote = api != Api::Chat && rng.below(2) == 0;
    // A server of the request has a limit of its own, which is long: it waits for clients that leave.
    let is_endless = |tool: &&str| matches!(*tool, "never" | "flood");
    let finite: Vec<&str> = TOOLS.iter().copied().filter(|tool| !is_endless(tool)).collect();
    let process = ["echo", "steer", "long", "fail", "die", "never", "change", "unknown"];
    let servers = ["good", "bad0", "bad1", "bad2", "bad3", "proc"];
    let named = *rng.pick(&servers);
    let script = match (remote, named) {
        (true, _) if leaves.is_some() => script(&mut rng, &["far"], TOOLS),
        (true, _) => script(&mut rng, &["far"], &finite),
        (false, "good") => script(&mut rng, &["good"], &finite),
        (false, "proc") => script(&mut rng, &["proc"], &process),
        (false, _) => {
            script(&mut rng, &[named, "good"], &["echo", "pick", "never", "flood", "drop", "status"])
        }
    };
    let text = format!("script: {script}");
    let url = format!("http://{faulty}/mcp");
    let (path, mut body) = match api {
        Api::Chat => (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": text}], "tools": "auto"}),
        ),
        Api::Responses => {
            let tool = match remote {
                true => {
                    json!({"type": "mcp", "server_label": "far", "server_url": url, "require_approval": "never"})
                }
                false => json!({"type": "mcp", "server_label": named}),
            };
            ("/v1/responses", json!({"input": text, "tools": [tool], "store": false}))
        }
        Api::Messages => {
            let server = match remote {
                true => json!({"type": "url", "name": "far", "url": url}),
                false => json!({"type": "url", "name": named}),
            };
            let messages = json!([{"role": "user", "content": text}]);
            (
                "/v1/messages",
                json!({"model": "m", "max_tokens": 9, "mcp_servers": [server], "messages": messages}),
            )
        }
    };
    body["stream"] = json!(streams);
    Case { api, path, body, streams, leaves }
}

/// How a request ended. Fails where its end is not one that the API has.
fn end(case: &Case, reply: &Reply) -> Result<String, String> {
    if reply.status == 503 && reply.body.contains("is not available") {
        return Ok("503".to_owned());
    }
    if reply.status != 200 {
        return Err(format!("status {}: {}", reply.status, reply.body));
    }
    let reason = match case.streams {
        true => streamed_end(case.api, &reply.events()),
        false => whole_end(case.api, &reply.json()),
    };
    reason.ok_or_else(|| format!("it has no end: {}", reply.body.chars().take(2000).collect::<String>()))
}

fn whole_end(api: Api, body: &Value) -> Option<String> {
    let reason = match api {
        Api::Chat => &body["choices"][0]["finish_reason"],
        Api::Responses => &body["status"],
        Api::Messages => &body["stop_reason"],
    };
    reason.as_str().map(str::to_owned)
}

fn streamed_end(api: Api, events: &[String]) -> Option<String> {
    let last = events.last()?;
    if api == Api::Chat {
        return (last == "[DONE]").then(|| "done".to_owned());
    }
    let kind = serde_json::from_str::<Value>(last).ok()?["type"].as_str()?.to_owned();
    ["response.completed", "response.incomplete", "message_stop"].contains(&kind.as_str()).then_some(kind)
}

/// Bytes that this program has allocated and not freed.
fn live_bytes() -> usize {
    let stats = INSTRUMENTED_SYSTEM.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// Memory of this process that is resident, in KiB. None where the system does not say.
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?.parse().ok()
}

/// Processes whose arguments have a text.
fn processes(marker: &str) -> usize {
    let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
    let command = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    let commands = entries.flatten().filter_map(command);
    commands.filter(|command| String::from_utf8_lossy(command).contains(marker)).count()
}

/// Waits until something is so. Fails with what it is in place of that.
fn settles(what: &str, current: impl Fn() -> usize, most: usize) {
    let since = Instant::now();
    while current() > most {
        assert!(since.elapsed() < SETTLED, "{} {what} are left, of at most {most}", current());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a request, reads so much of the response, or all of one that is shorter, and disconnects.
fn leave(address: SocketAddr, bytes: &[u8], read: usize) {
    let mut stream = client::connect(address);
    _ = stream.write_all(bytes);
    let mut response = vec![0; read];
    _ = stream.read_exact(&mut response);
}

/// Runs a case. Returns how it ended.
fn run(case: &Case, address: SocketAddr) -> Result<String, String> {
    let bytes = client::request("POST", case.path, &[JSON], case.body.to_string().as_bytes());
    match case.leaves {
        Some(read) => {
            leave(address, &bytes, if case.streams { read } else { 0 });
            Ok("left".to_owned())
        }
        None => {
            let reply = exchange(address, &bytes).ok_or("there is no reply in time")?;
            end(case, &reply)
        }
    }
}

/// What all clients share.
struct Progress {
    server: SocketAddr,
    faulty: SocketAddr,
    next: AtomicU64,
    ends: Mutex<BTreeMap<String, usize>>,
    failures: Mutex<Vec<String>>,
}

impl Progress {
    /// Runs these seeds, and waits until nothing of them is running.
    fn run(&self, seeds: Range<u64>, world: &World) {
        self.next.store(seeds.start, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| work(seeds.end, self));
            }
        });
        settles("generations", || world.with.server.engine.requests().len(), 0);
        settles("requests to MCP servers", || world.faulty.running(), 0);
        // What the engine recorded for other tests.
        _ = world.with.server.request_events.try_iter().count();
    }
}

fn work(end: u64, progress: &Progress) {
    loop {
        let seed = progress.next.fetch_add(1, Ordering::SeqCst);
        if seed >= end {
            return;
        }
        let case = case(seed, progress.faulty);
        match run(&case, progress.server) {
            Ok(end) => {
                let mut ends = progress.ends.lock().unwrap_or_else(PoisonError::into_inner);
                *ends.entry(format!("{:?} {end}", case.api)).or_default() += 1;
            }
            Err(why) => {
                progress
                    .failures
                    .lock()
                    .unwrap()
                    .push(format!("seed {seed}: {} {}: {why}", case.path, case.body));
            }
        }
    }
}

#[test]
fn loops_with_random_faults_end_and_leave_nothing() {
    let seeds = cases("OMNIBUS_FUZZ_LOOPS", 100);
    let world = world();
    let since = Instant::now();
    let progress = Progress {
        server: world.with.server.address,
        faulty: world.faulty.address,
        next: AtomicU64::default(),
        ends: Mutex::default(),
        failures: Mutex::default(),
    };
    let tenth = seeds.start + (seeds.end - seeds.start) / 10;
    progress.run(seeds.start..tenth, &world);
    let before = (live_bytes(), resident_kib());
    progress.run(tenth..seeds.end, &world);
    let after = (live_bytes(), resident_kib());
    let failures = progress.failures.into_inner().unwrap();
    let (count, seconds) = (seeds.end - seeds.start, since.elapsed().as_secs_f64());
    println!(
        "{count} loops from seed {} in {seconds:.1} s: {:?}",
        seeds.start,
        progress.ends.into_inner().unwrap()
    );
    assert!(failures.is_empty(), "{} failed, the first: {}", failures.len(), failures[0]);

    let marker = world.marker.clone();
    // A server that ended is started again: one program, and what confines it.
    settles("processes", || processes(&marker), 3);
    println!("bytes in use and resident KiB: {before:?} after a tenth, {after:?} after all");
    if count >= COMPARED_LOOPS {
        assert!(
            after.0 < before.0 + GROWTH_BYTES_MAX,
            "memory in use grew from {} to {} bytes",
            before.0,
            after.0
        );
    }
    drop(world);
    settles("processes", || processes(&marker), 0);
}
