//! The client against peers that play a part.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;

use super::*;
use crate::block::BlockHeader;

const MODEL: Fingerprint = Fingerprint([9; 32]);

fn names(keys: &[u128]) -> Vec<BlockName> {
    keys.iter().map(|key| BlockName { group: 0, key: *key }).collect()
}

fn record(key: u128) -> Vec<u8> {
    let (name, bytes) = (BlockName { group: 0, key }, [key as u8; 8]);
    [BlockHeader::of(&MODEL, name, &bytes).bytes().as_slice(), &bytes].concat()
}

fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A peer that answers every request with these bytes.
fn peer(bytes: Vec<u8>) -> String {
    peer_that(move |mut client| {
        let _client_gone = client.write_all(&bytes);
    })
}

fn peer_that(plays: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut request = [0; 4096];
            let _request = client.read(&mut request);
            plays(client);
        }
    });
    url
}

/// The reply to a request, and the statistics after it.
fn ask(urls: Vec<String>, request: Request) -> (Reply, PeerStats) {
    let (replies, reply) = channel();
    let shape = BlockShape { fingerprint: MODEL, block_bytes: vec![8] };
    let settings = PeerSettings { urls, key: None, timeout: Duration::from_millis(300) };
    let peers = Peers::start(settings, shape, move |reply| replies.send(reply).unwrap()).unwrap();
    assert!(peers.send(request));
    (reply.recv().unwrap(), peers.stats())
}

fn keys((reply, stats): (Reply, PeerStats)) -> (Vec<u128>, PeerStats) {
    let Reply::Blocks(blocks, _) = reply else { panic!("{reply:?}") };
    assert!(blocks.iter().all(|(name, bytes)| *bytes == [name.key as u8; 8]), "{blocks:?}");
    (blocks.iter().map(|(name, _)| name.key).collect(), stats)
}

#[test]
fn the_peer_with_most_blocks_is_chosen() {
    let few = peer(answer("200 OK", br#"{"found":[0]}"#));
    let many = peer(answer("200 OK", br#"{"found":[0,2]}"#));
    let (reply, _) = ask(vec![few, many], Request::Lookup(names(&[5, 6, 7])));
    assert_eq!(reply, Reply::Found(1, names(&[5, 7])));
}

#[test]
fn blocks_are_read() {
    let url = peer(answer("200 OK", &[record(1), record(3)].concat()));
    let (got, stats) = keys(ask(vec![url], Request::Read(0, names(&[1, 2, 3]))));
    assert_eq!(got, [1, 3]);
    assert_eq!((stats.fetched_blocks_total, stats.fetched_bytes_total), (2, 16));
    assert!(stats.peers[0].usable);
}

#[test]
fn blocks_before_a_changed_byte_are_of_use() {
    let mut body = [record(1), record(2)].concat();
    let last = body.len() - 1;
    body[last] ^= 1;
    let (got, stats) = keys(ask(vec![peer(answer("200 OK", &body))], Request::Read(0, names(&[1, 2]))));
    assert!(got.len() <= 1, "{got:?}");
    assert_eq!(stats.failures.invalid_total, 1);
    assert!(!stats.peers[0].usable);
}

#[test]
fn a_peer_that_dies_hangs_floods_or_lies_is_a_failure() {
    let read = || Request::Read(0, names(&[1, 2]));
    let dies = peer(answer("200 OK", &[record(1), record(2)].concat())[..200].to_vec());
    assert_eq!(keys(ask(vec![dies], read())).1.failures.unreachable_total, 1);
    let hangs = peer_that(std::mem::forget);
    assert_eq!(keys(ask(vec![hangs], read())).1.failures.timeout_total, 1);
    let flood = peer_that(|mut client| {
        let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        let mut sent = client.write_all(head);
        while sent.is_ok() {
            sent = client.write_all(&record(1));
        }
    });
    assert_eq!(keys(ask(vec![flood], read())).1.failures.invalid_total, 1);
    let other = peer(answer("409 Conflict", b""));
    assert_eq!(keys(ask(vec![other], read())).1.failures.other_model_total, 1);
    let refuses = peer(answer("401 Unauthorized", b""));
    assert_eq!(keys(ask(vec![refuses], read())).1.failures.refused_total, 1);
    for lie in [&br#"{"found":[3]}"#[..], br#"{"found":[1,0]}"#, b"{", &[b' '; 500]] {
        let (reply, stats) = ask(vec![peer(answer("200 OK", lie))], Request::Lookup(names(&[1, 2, 3])));
        assert_eq!((reply, stats.failures.invalid_total), (Reply::Found(0, Vec::new()), 1), "{lie:?}");
    }
}

#[test]
fn a_key_is_not_printed() {
    let settings = PeerSettings { key: Some("sk-secret".to_owned()), ..PeerSettings::default() };
    assert!(!format!("{settings:?}").contains("secret"));
}

/// What a peer with this answer computed of a prompt of three tokens.
fn prefill(url: String) -> (Option<PrefillAnswer>, PeerStats) {
    let timeout = Duration::from_millis(300);
    let order = RemotePrefill { id: 7, peer: 0, tokens: vec![1, 2, 3], cache_salt: 5, timeout };
    let (reply, stats) = ask(vec![url], Request::Prefill(order));
    let Reply::Prefilled(7, computed) = reply else { panic!("{reply:?}") };
    (computed.map(|(answer, _)| answer), stats)
}

#[test]
fn a_prompt_is_computed_by_a_peer() {
    let (computed, stats) = prefill(peer(answer("200 OK", br#"{"prompt_tokens":3,"cached_tokens":1}"#)));
    assert_eq!(computed, Some(PrefillAnswer { prompt_tokens: 3, cached_tokens: 1 }));
    assert_eq!((stats.prefills_total, stats.prefill_tokens_total), (1, 3));
}

#[test]
fn a_prompt_that_a_peer_does_not_compute_is_a_failure() {
    for lie in
        [&br#"{"prompt_tokens":2,"cached_tokens":0}"#[..], br#"{"prompt_tokens":3,"cached_tokens":4}"#, b"{"]
    {
        let (computed, stats) = prefill(peer(answer("200 OK", lie)));
        assert_eq!((computed, stats.failures.invalid_total, stats.prefills_total), (None, 1, 0));
    }
    assert_eq!(prefill(peer_that(std::mem::forget)).1.failures.timeout_total, 1);
    assert_eq!(prefill(peer(answer("404 Not Found", b""))).1.failures.refused_total, 1);
}

#[test]
fn prompts_that_begin_alike_go_to_one_peer() {
    let settings =
        PeerSettings { urls: vec!["http://a".into(), "http://b".into()], ..PeerSettings::default() };
    let shape = BlockShape { fingerprint: MODEL, block_bytes: vec![8] };
    let peers = Peers::start(settings, shape, |_| {}).unwrap();
    let chosen = |affinity| peers.prefill_peer(affinity);
    assert_eq!((chosen(4), chosen(5), chosen(4)), (Some(0), Some(1), Some(0)));
}
