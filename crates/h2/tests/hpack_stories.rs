//! The stories of http2jp/hpack-test-case that are in `hpack` of the peer suite: `PEER_SUITE`, or
//! `../shared/peer-suite` next to the project. Without the suite the test is skipped with a message.
#![allow(missing_docs, reason = "a test")]

mod hpack;

use std::path::{Path, PathBuf};

use causeway_h2::hpack::{Decoder, Encoder};
use hpack::{Fields, decoded, encoded, unhex};
use serde_json::Value;

/// Reads every story of a directory: for each case the table's size, if given, the block, and its fields.
fn stories(directory: &Path) -> Vec<(PathBuf, Value)> {
    let files = std::fs::read_dir(directory).expect("a directory of stories");
    let mut stories: Vec<_> = files
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .map(|path| {
            let text = std::fs::read(&path).expect("a story");
            (path, serde_json::from_slice(&text).expect("JSON"))
        })
        .collect();
    stories.sort_by(|(a, _), (b, _)| a.cmp(b));
    stories
}

fn fields(case: &Value) -> Fields {
    let lines = case["headers"].as_array().expect("a list of fields").iter();
    lines
        .flat_map(|line| line.as_object().expect("a field"))
        .map(|(name, value)| (name.as_bytes().into(), value.as_str().expect("a text").as_bytes().into()))
        .collect()
}

#[test]
fn hpack_stories_round_trip() {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peer-suite");
    let suite = std::env::var_os("PEER_SUITE").map_or_else(beside, PathBuf::from).join("hpack");
    let Ok(directories) = std::fs::read_dir(&suite) else {
        println!("skipped: no stories in ../shared/peer-suite/hpack or $PEER_SUITE/hpack");
        return;
    };
    let (mut story_count, mut blocks) = (0, 0);
    for directory in directories.map(|directory| directory.expect("a directory").path()).filter(|path| path.is_dir()) {
        for (path, story) in stories(&directory) {
            let (mut theirs, mut ours, mut encoder) = (Decoder::new(4096), Decoder::new(4096), Encoder::new(4096));
            for case in story["cases"].as_array().expect("cases") {
                let (place, want) = (format!("{} {}", path.display(), case["seqno"]), fields(case));
                if let Some(size) = case["header_table_size"].as_u64() {
                    encoder.set_table_bytes_max(u32::try_from(size).expect("a size"));
                }
                let block = unhex(case["wire"].as_str().expect("bytes"));
                assert_eq!(decoded(&mut theirs, &block).as_ref(), Ok(&want), "{place}");
                let block = encoded(&mut encoder, &want);
                assert_eq!(decoded(&mut ours, &block), Ok(want), "{place}, encoded by us");
                blocks += 1;
            }
            story_count += 1;
        }
    }
    assert!(story_count > 0, "a suite without stories");
    println!("{story_count} stories, {blocks} blocks");
}
