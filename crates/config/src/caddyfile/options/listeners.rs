//! `listener_wrappers` and `packet_conn_wrappers` of `servers`: modules that wrap a server's sockets.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use causeway_pipeline::build::nanoseconds;

/// Parses `listener_wrappers { http_redirect; proxy_protocol { … }; tls }`.
pub(super) fn wrappers(d: &Dispenser<'_>) -> Result<Vec<Value>, Error> {
    d.lines().map(|mut line| wrapper(&mut line)).collect()
}

fn wrapper(line: &mut Dispenser<'_>) -> Result<Value, Error> {
    match &*line.name().text {
        name @ ("http_redirect" | "tls") => {
            line.expect_no_argument()?;
            Ok(json!({ "wrapper": name }))
        }
        "proxy_protocol" => proxy_protocol(line),
        _ => {
            let rule = "getting module named 'caddy.listeners.{}': module not registered";
            Err(line.unknown(rule, &["http_redirect", "proxy_protocol", "tls"]))
        }
    }
}

/// Parses `packet_conn_wrappers { … }`. Caddy itself has no such module, so every line is an error.
pub(super) fn packet_wrappers(d: &Dispenser<'_>) -> Result<(), Error> {
    match d.lines().next() {
        Some(line) => Err(line.unknown("getting module named 'caddy.packetconns.{}': module not registered", &[])),
        None => Ok(()),
    }
}

/// Parses `proxy_protocol { timeout …; allow …; deny …; fallback_policy ignore|use|reject|require|skip }`.
fn proxy_protocol(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    d.expect_no_argument()?;
    let mut wrapper = Map::from_iter([("wrapper".to_owned(), Value::from("proxy_protocol"))]);
    for mut line in d.lines() {
        let name = &*line.name().text;
        match name {
            "timeout" => {
                let timeout = nanoseconds(&line.require()?.text).ok_or_else(|| {
                    line.word("parsing proxy_protocol timeout duration: '{}' is no duration; expected one such as 5s")
                })?;
                line.expect_no_argument()?;
                match timeout {
                    0 => drop(wrapper.shift_remove(name)),
                    _ => drop(wrapper.insert(name.to_owned(), timeout.into())),
                }
            }
            "allow" | "deny" => {
                let ranges = line.rest().iter().map(|token| Value::from(&*token.text));
                if let Value::Array(list) = wrapper.entry(name).or_insert_with(|| json!([])) {
                    list.extend(ranges);
                }
            }
            "fallback_policy" => {
                let policy = line.require()?.text.to_uppercase();
                line.expect_no_argument()?;
                match &*policy {
                    "IGNORE" => drop(wrapper.shift_remove(name)),
                    "USE" | "REJECT" | "REQUIRE" | "SKIP" => drop(wrapper.insert(name.to_owned(), policy.into())),
                    _ => return Err(line.word("{} is invalid policy; expected ignore, use, reject, require or skip")),
                }
            }
            _ => return Err(line.count_error()),
        }
    }
    wrapper.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
    Ok(wrapper.into())
}
