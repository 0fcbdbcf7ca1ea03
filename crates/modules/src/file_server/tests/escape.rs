//! No request path leads out of the root.

use proptest::prelude::*;

use super::*;

const SECRET: &str = "the secret outside";

fn tree() -> Directory {
    let directory = Directory::new();
    directory.file("secret.txt", SECRET).file("root-secret/secret.txt", SECRET);
    directory.file("root/index.html", "inside").file("root/a/b/c.txt", "inside").file("root/a/secret", "inside");
    directory
}

fn kit(directory: &Directory) -> Kit {
    directory.kit(json!({ "root": directory.0.join("root"), "browse": {} }))
}

#[track_caller]
fn check(kit: &mut Kit, target: &str) {
    let answer = kit.send(&Request::get(target));
    let text = String::from_utf8_lossy(&answer.body);
    assert!(!text.contains(SECRET) && !text.contains("secret.txt"), "{target:?} shows {text}");
    assert!(matches!(answer.status, 200 | 308 | 400 | 404), "{target:?}: {}", answer.status);
    if let Some(location) = answer.field("location") {
        assert!(location.starts_with('/') && !location.starts_with("//"), "{target:?} leads to {location}");
    }
}

#[test]
fn known_attacks() {
    let directory = tree();
    let mut kit = kit(&directory);
    for target in [
        "/../secret.txt",
        "/../../../../../../../../etc/passwd",
        "/a/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..%2fsecret.txt",
        "/a/..%2f..%2fsecret.txt",
        "/%252e%252e/secret.txt",
        "/..%5csecret.txt",
        "/..%00/secret.txt",
        "/a%00/../../secret.txt",
        "/.%2e/.%2e/secret.txt",
        "/...//....//secret.txt",
        "/../root-secret/secret.txt",
        "/..root-secret/secret.txt",
        "//secret.txt",
        "/-secret/secret.txt",
        "/%c0%ae%c0%ae/secret.txt",
    ] {
        check(&mut kit, target);
    }
    // RFC 3986 has no zero byte in a name: the request is invalid, not the file missing.
    assert_eq!(kit.send(&Request::get("/a%00")).status, 400);
    // Checks that the attacked files exist.
    assert_eq!(kit.send(&Request::get("/a/b/../secret")).text(), "inside");
}

// As in Caddy, links are followed, also out of the root: write access below the root decides.
#[test]
fn links_are_followed() {
    let directory = tree();
    std::os::unix::fs::symlink("../secret.txt", directory.0.join("root/out")).expect("a link");
    assert_eq!(kit(&directory).send(&Request::get("/out")).text(), SECRET);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_path_leaves_the_root(segments in prop::collection::vec(prop::sample::select(vec![
        "..", ".", "", "a", "b", "secret", "secret.txt", "root", "root-secret", "c.txt", "%2e%2e", "%2E.", ".%2e", "%2f", "..%2f",
        "%2f..", "%5c", "..%5c", "%00", "%252e", "...", "~", "index.html", "..%2f..%2f", "etc", "passwd", "%c0%ae",
    ]), 0..9), separators in prop::collection::vec(prop::sample::select(vec!["/", "//", "%2f", "/./"]), 9)) {
        thread_local! {
            static TREE: Directory = tree();
        }
        TREE.with(|directory| {
            let mut target = String::from("/");
            for (segment, separator) in segments.iter().zip(&separators) {
                target.push_str(segment);
                target.push_str(separator);
            }
            check(&mut kit(directory), &target);
            check(&mut kit(directory), target.trim_end_matches('/').get(..).filter(|t| t.starts_with('/')).unwrap_or("/"));
        });
    }
}
