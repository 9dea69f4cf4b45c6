//! What repeated pictures cost, and whose pictures are shared.

use omnibus_engine::{DiskSettings, PrefixCache, Settings};
use serde_json::{Value, json};

use super::files::{Picture, animation, data_url};
use super::{VisionServer, image, refused, sounds, text};

fn settings() -> Settings {
    Settings { block_size: 4, ..Settings::default() }
}

/// A picture of the same size has the same tokens.
fn other() -> Picture {
    Picture::new(61, 47, 12)
}

fn question(picture: &Picture, before: &str, behind: &str) -> Value {
    json!([text(before), image(picture), text(behind)])
}

#[test]
fn another_picture_with_the_same_tokens_shares_no_block() {
    let server = VisionServer::new(settings());
    let (before, behind) = ("w1 w2 w3 w4 w5", "w6 w7 w8 w9 w10 w11 w12 w13");
    let first = server.answer(&question(&Picture::one(), before, behind));
    let second = server.answer(&question(&other(), before, behind));
    assert_eq!(first.cached_tokens(), 0);
    assert!(second.cached_tokens() <= 6, "only what is before the picture: {}", second.cached_tokens());
    assert_ne!(first.exact(), second.exact());
    let alone = VisionServer::new(settings());
    assert_eq!(alone.answer(&question(&other(), before, behind)).exact(), second.exact());
    assert_eq!(server.media().encoder_runs_total, 2);
}

#[test]
fn a_longer_cut_of_a_video_encodes_only_what_is_new() {
    let server = VisionServer::new(settings());
    let cut = |frames: u32| {
        let frames: Vec<Picture> = (0..frames).map(|frame| Picture::new(60, 40, 21 + frame)).collect();
        let url = data_url("video/apng", &animation(&frames));
        json!([text("w1"), {"type": "video_url", "video_url": {"url": url}}, text("w2")])
    };
    // Ten frames are five steps in time, of which four are a group.
    server.answer(&cut(10));
    assert_eq!(server.media().encoder_runs_total, 2);
    let longer = server.answer(&cut(12));
    assert_eq!(server.media().encoder_runs_total, 3, "the first group was there");
    let alone = VisionServer::new(settings());
    assert_eq!(alone.answer(&cut(12)).exact(), longer.exact());
    assert_eq!(alone.media().encoder_runs_total, 2);
}

#[test]
fn a_repeated_picture_costs_neither_encoder_nor_prefill() {
    let server = VisionServer::new(Settings { media_cache_memory: 0, ..settings() });
    let asked = question(&Picture::one(), "w1 w2 w3 w4 w5", "w6 w7 w8 w9 w10 w11 w12 w13");
    let first = server.answer(&asked);
    let second = server.answer(&asked);
    assert_eq!(first.exact(), second.exact());
    assert!(second.cached_tokens() >= 15, "{}", second.cached_tokens());
    let stats = server.media();
    assert_eq!((stats.encoder_runs_total, stats.prefix_hits_total), (1, 1), "no features are kept");
}

#[test]
fn a_picture_in_another_place_costs_no_encoder() {
    let server = VisionServer::new(settings());
    let picture = Picture::one();
    server.answer(&question(&picture, "w1 w2 w3 w4 w5", "w6"));
    let moved = server.answer(&question(&picture, "w9 w8", "w6"));
    let details = &moved.0["usage"]["prompt_tokens_details"];
    assert_eq!((&details["image_tokens"], &details["encoded_images"]), (&2.into(), &0.into()), "{details}");
    assert_eq!(moved.cached_tokens(), 0);
    let stats = server.media();
    assert_eq!((stats.encoder_runs_total, stats.feature_hits_total), (1, 1));
    assert!(stats.bytes > 0 && stats.entries == 1, "{stats:?}");
    let alone = VisionServer::new(settings());
    assert_eq!(alone.answer(&question(&picture, "w9 w8", "w6")).exact(), moved.exact());
}

#[test]
fn features_stay_within_their_limit() {
    let one = {
        let server = VisionServer::new(settings());
        server.answer(&question(&Picture::one(), "w1", "w2"));
        server.media().bytes
    };
    let server = VisionServer::new(Settings { media_cache_memory: 2 * one, ..settings() });
    for seed in 20..25 {
        server.answer(&question(&Picture::new(61, 47, seed), "w1", "w2"));
        assert!(server.media().bytes <= 2 * one);
    }
    let stats = server.media();
    assert_eq!((stats.entries, stats.evicted_total, stats.cold_misses_total), (2, 3, 5));
    server.answer(&question(&Picture::new(61, 47, 20), "w7", "w2"));
    assert_eq!(server.media().evicted_misses_total, 1);
}

#[test]
fn tenants_share_no_pictures() {
    let server = VisionServer::new(settings());
    let mut asked = super::body(&question(&Picture::one(), "w1 w2 w3 w4 w5", "w6 w7 w8 w9"), 1);
    server.post(super::CHAT, &asked);
    asked["cache_salt"] = "other".into();
    let reply = server.post(super::CHAT, &asked).json();
    assert_eq!(reply["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(server.media().encoder_runs_total, 2);
}

/// Blocks on disk are found by the same chain.
#[test]
fn a_picture_outlives_the_process_on_disk() {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("media-disk");
    _ = std::fs::remove_dir_all(&directory);
    let disk = || Some(DiskSettings { directory: directory.clone(), ..DiskSettings::default() });
    let (before, behind) = ("w1 w2 w3 w4 w5", "w6 w7 w8 w9 w10 w11 w12 w13");
    let first = {
        let server = VisionServer::new(Settings { disk: disk(), ..settings() });
        server.answer(&question(&Picture::one(), before, behind))
    };
    let server = VisionServer::new(Settings { disk: disk(), ..settings() });
    let second = server.answer(&question(&Picture::one(), before, behind));
    assert_eq!(first.exact(), second.exact());
    assert!(second.cached_tokens() >= 12, "{}", second.cached_tokens());
    assert_eq!(server.media().encoder_runs_total, 0);
    assert!(server.answer(&question(&other(), before, behind)).cached_tokens() <= 6);
    _ = std::fs::remove_dir_all(&directory);
}

#[test]
fn features_outlive_the_process_on_disk() {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("media-features");
    _ = std::fs::remove_dir_all(&directory);
    let disk = || Some(DiskSettings { directory: directory.clone(), ..DiskSettings::default() });
    let picture = Picture::new(90, 70, 3);
    let first = {
        let server = VisionServer::new(Settings { disk: disk(), ..settings() });
        server.answer(&question(&picture, "w1 w2", "w3"));
        server.answer(&question(&picture, "w9 w8 w7", "w6")).exact()
    };
    let server = VisionServer::new(Settings { disk: disk(), prefix_cache: PrefixCache::Off, ..settings() });
    assert_eq!(server.answer(&question(&picture, "w9 w8 w7", "w6")).exact(), first);
    let stats = server.media();
    assert_eq!((stats.encoder_runs_total, stats.disk_hits_total), (0, 1), "{stats:?}");
    let scraped = super::client::get(server.address, "/metrics").body;
    assert!(scraped.contains("omnibus_media_hits_total{kind=\"disk\"} 1"), "{scraped}");
    drop(server);
    for file in std::fs::read_dir(directory.join("features")).unwrap().flatten() {
        for file in std::fs::read_dir(file.path()).unwrap().flatten() {
            std::fs::write(file.path(), b"damaged").unwrap();
        }
    }
    let server = VisionServer::new(Settings { disk: disk(), prefix_cache: PrefixCache::Off, ..settings() });
    assert_eq!(server.answer(&question(&picture, "w9 w8 w7", "w6")).exact(), first);
    assert_eq!(server.media().encoder_runs_total, 1, "a damaged file is not used");
    _ = std::fs::remove_dir_all(&directory);
}

/// Blocks for little more than one sequence: the others are preempted while they have pictures.
#[test]
fn preempted_sequences_with_pictures_give_the_same_answers() {
    let question = |seed: u32| question(&Picture::new(61, 47, seed), "w1 w2 w3", "w4 w5");
    let long = |content: &Value| super::body(content, 24);
    let roomy = VisionServer::new(settings());
    let expected: Vec<String> = (30..34)
        .map(|seed| super::Answer(roomy.post(super::CHAT, &long(&question(seed))).json()).exact())
        .collect();
    let blocks = 20 * 4 * 3 * 2 * 2 * 16 * 4;
    let tight =
        VisionServer::new(Settings { kv_cache_memory: Some(blocks), swap_space: Some(0), ..settings() });
    let threads: Vec<_> = (30..34)
        .map(|seed| {
            let (address, body) = (tight.address, long(&question(seed)).to_string());
            std::thread::spawn(move || super::client::post(address, super::CHAT, &body))
        })
        .collect();
    let found: Vec<String> =
        threads.into_iter().map(|thread| super::Answer(thread.join().unwrap().json()).exact()).collect();
    assert!(tight.engine.stats().scheduler.preemptions_total > 0, "the test needs fewer blocks");
    assert_eq!(found, expected);
}

#[test]
fn the_memory_plan_has_room_for_the_largest_picture() {
    let server = VisionServer::new(Settings::default());
    let plan = server.engine.details().unwrap().memory;
    // 8 × 8 patches of 16 × 16 pixels fit into 20,480; each is 1,536 numbers as it comes, and as it is cut.
    assert_eq!(plan.encoder_bytes, 64 * 1536 * 8);
    assert!(plan.expected_peak_bytes() >= plan.weights_bytes + plan.kv_bytes + plan.encoder_bytes);
    assert!(sounds::server(Settings::default()).engine.details().unwrap().memory.encoder_bytes > 1 << 20);
    assert_eq!(refused::blind().engine.details().unwrap().memory.encoder_bytes, 0);
}
