//! rate_limit, the directive of the plugin `caddy-ratelimit`. `redis` is ours.

use causeway_pipeline::build::nanoseconds;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::matcher;
use super::super::members::Members;
use super::super::quantity::integer;
use super::{DURATION, Handler};

const REDIS: &str = "this is no address of a Redis server; expected host:port, redis://[user:password@]host[:port][/db], the same with \
    rediss:// for TLS, or unix//path";

/// Parses `rate_limit [<matcher>] { zone <name> { match …; key <text>; window <duration>; events <number> }; jitter
/// <share>; sweep_interval <duration>; log_key; redis <address> }`.
pub(super) fn rate_limit(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut handler = Handler::new("rate_limit");
    let mut zones = Map::new();
    d.expect_no_argument()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "zone" => {
                let name = line.sole_argument()?.text.to_string();
                if zones.contains_key(&name) {
                    return Err(line.word("the zone '{}' is defined above; expected another name"));
                }
                zones.insert(name, zone(&line)?);
            }
            "jitter" => {
                let jitter =
                    line.sole_argument()?.text.parse::<f64>().ok().filter(|jitter| (0.0..=100.0).contains(jitter));
                let jitter = jitter.ok_or_else(|| line.word("'{}' is no share; expected a number such as 0.2"))?;
                handler.set("jitter", jitter);
            }
            "sweep_interval" => {
                let interval = nanoseconds(&line.sole_argument()?.text).ok_or_else(|| line.word(DURATION))?;
                handler.0.number("sweep_interval", interval);
            }
            "log_key" => {
                line.expect_no_argument()?;
                handler.0.switch_on("log_key");
            }
            "redis" => {
                let address = &*line.sole_argument()?.text;
                // The sentence does not repeat the address, which may contain a password.
                let server = redis(address).ok_or_else(|| line.rule(REDIS))?;
                if handler.0.insert("redis".to_owned(), server.into()).is_some() {
                    return Err(line.rule("this option is given above; expected it once"));
                }
            }
            "distributed" | "storage" => {
                return Err(line.word(
                    "'{}' is not supported; 'redis <address>' adds up the requests of several servers (docs/caddyfile.md, Rate limits)",
                ));
            }
            _ => {
                let expected = &["jitter", "log_key", "redis", "sweep_interval", "zone"];
                return Err(line.unknown("unrecognized subdirective '{}'", expected));
            }
        }
    }
    if !zones.is_empty() {
        handler.set("rate_limits", zones);
    }
    Ok(handler.json())
}

/// Reads an address of Redis. `None`: it is none. Placeholders are resolved and checked when the configuration is
/// loaded.
fn redis(text: &str) -> Option<Map<String, Value>> {
    let mut server = Map::new();
    let (is_tls, rest) = match (text.strip_prefix("redis://"), text.strip_prefix("rediss://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => {
            let is_address =
                text.strip_prefix("unix/").map_or_else(|| is_host_port(text), |path| path.starts_with('/'));
            server.insert("address".to_owned(), text.into());
            return is_address.then_some(server);
        }
    };
    // A password may contain an '@'.
    let (login, place) = rest.rsplit_once('@').map_or((None, rest), |(login, place)| (Some(login), place));
    let (address, db) = place.split_once('/').unwrap_or((place, ""));
    let address = if is_host_port(address) { address.to_owned() } else { format!("{address}:6379") };
    if !is_host_port(&address) {
        return None;
    }
    server.insert("address".to_owned(), address.into());
    if let Some(login) = login {
        let (username, password) = login.split_once(':').unwrap_or((login, ""));
        for (key, text) in [("username", username), ("password", password)] {
            let text = percent_decode_str(text).decode_utf8().ok()?;
            if !text.is_empty() {
                server.insert(key.to_owned(), text.into());
            }
        }
    }
    if !db.is_empty() {
        server.insert("db".to_owned(), db.parse::<u32>().ok()?.into());
    }
    if is_tls {
        server.insert("tls".to_owned(), true.into());
    }
    Some(server)
}

/// Whether a text is `HOST:PORT`. A placeholder may stand for both, or for either.
fn is_host_port(text: &str) -> bool {
    let has_placeholder = |text: &str| text.starts_with('{') && text.ends_with('}');
    if has_placeholder(text) {
        return true;
    }
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_bare = !host.is_empty() && !host.contains(':');
    let is_host = is_bare || has_placeholder(host) || (host.len() > 2 && host.starts_with('[') && host.ends_with(']'));
    let is_port = has_placeholder(port) || port.parse::<u16>().is_ok_and(|port| port > 0);
    is_host && is_port && !host.contains(['/', '@', '?', '#'])
}

fn zone(d: &Dispenser<'_>) -> Result<Value, Error> {
    let mut zone = Map::new();
    for mut line in d.lines() {
        let key = match &*line.name().text {
            "events" => "max_events",
            name @ ("match" | "key" | "window") => name,
            _ => {
                return Err(line.unknown("unrecognized subdirective '{}'", &["events", "key", "match", "window"]));
            }
        };
        if key == "match" {
            zone.extend_list(key, vec![matcher::nested(&line.take_segment())?.into()]);
            continue;
        }
        let text = &*line.sole_argument()?.text;
        let value = match key {
            "key" => Value::from(text),
            "window" => nanoseconds(text).ok_or_else(|| line.word(DURATION))?.into(),
            _ => {
                integer(text).ok_or_else(|| line.word("'{}' is no number of events; expected one such as 100"))?.into()
            }
        };
        if zone.insert(key.to_owned(), value).is_some() {
            return Err(line.rule("this option is given above; expected it once"));
        }
    }
    let is_positive = |key: &str| zone.get(key).and_then(Value::as_i64).is_some_and(|number| number > 0);
    if !is_positive("window") || !is_positive("max_events") {
        return Err(d.rule("a zone needs 'window' and 'events', both above 0"));
    }
    Ok(zone.into())
}
