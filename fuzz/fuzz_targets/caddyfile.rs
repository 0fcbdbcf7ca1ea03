//! A Caddyfile, and a request to its site: the Caddyfile is rejected with an error or the request gets a response.
//!
//! The input is the Caddyfile, then after a NUL the request's target, then after another NUL its host.
#![no_main]

use std::sync::LazyLock;

use causeway_config::caddyfile::{Directives, adapt, format};
use causeway_config::plan;
use causeway_message::Target;
use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request};
use libfuzzer_sys::fuzz_target;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    registry
});
static DIRECTIVES: LazyLock<Directives> = LazyLock::new(Directives::standard);

/// Words with which a Caddyfile accesses files or names of this machine, or requests password hashes that take seconds.
const OUTSIDE: [&str; 5] = ["import", "file", "bind", "admin", "auth"];

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(3, |byte| *byte == 0).map(|part| std::str::from_utf8(part).unwrap_or_default());
    let source = parts.next().unwrap_or_default();
    let (target, host) = (parts.next().unwrap_or("/"), parts.next().unwrap_or("localhost"));
    format(source.as_bytes());
    if OUTSIDE.iter().any(|word| source.contains(word)) {
        return;
    }
    let Ok(adapted) = adapt(source, "Caddyfile", &DIRECTIVES, &|_| None) else { return };
    let Ok(loaded) = plan::load(&adapted.json, &REGISTRY) else { return };
    let is_target = target.starts_with('/') && Target::parse(target).is_ok();
    let is_host = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
    if loaded.listeners.is_empty() || !is_target || !is_host {
        return;
    }
    let mut kit = Kit::of_plan(loaded.plan);
    let request = Request::new("POST", target).field("Host", host).field("X-A", "a").content("body");
    // The second request uses the storage recycled from the first.
    let (first, second) = (kit.send(&request), kit.send(&request));
    assert_eq!((first.status, first.aborted), (second.status, second.aborted));
});
