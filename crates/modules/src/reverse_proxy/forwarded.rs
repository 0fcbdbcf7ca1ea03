//! `X-Forwarded-For`, `-Proto` and `-Host`. The client's values are kept only if the peer is a trusted proxy: by the
//! server's configuration, or by this handler's `trusted_proxies`.

use std::net::IpAddr;

use causeway_message::{FieldValue, Head, KnownName, names};
use causeway_pipeline::{Build, BuildError, Context, Scheme};
use ipnet::IpNet;

use crate::ip_text::put_ip;
use crate::rendered::with_field_value;

const HTTP: FieldValue<'static> = FieldValue::from_static("http");
const HTTPS: FieldValue<'static> = FieldValue::from_static("https");

/// Parses `trusted_proxies`.
pub(super) fn ranges(written: &[String], build: &mut Build<'_>) -> Result<Box<[IpNet]>, BuildError> {
    let mut ranges = Vec::with_capacity(written.len());
    for (index, range) in written.iter().enumerate() {
        let network = range.parse::<IpAddr>().map(IpNet::from).or_else(|_| range.parse::<IpNet>());
        match network {
            Ok(network) => ranges.push(network),
            Err(_) => {
                let expected = "an address or a network such as 10.0.0.0/8";
                return build.at(format!("[{index}]"), |build| Err(build.refuse(range.clone(), expected)));
            }
        }
    }
    Ok(ranges.into())
}

/// Sets the three fields of the upstream request, which is a copy of the client's.
pub(super) fn set(cx: &mut Context, request: &mut Head, trusted: &[IpNet]) {
    let peer = cx.arrival().ends.peer_ip();
    let is_in = |ranges: &[IpNet]| peer.is_some_and(|peer| ranges.iter().any(|range| range.contains(&peer)));
    let is_trusted = cx.client().proxied || is_in(trusted);
    if peer.is_none() && !is_trusted {
        // As in Caddy: nothing is known of an untrusted peer of a Unix socket, so the fields say nothing either.
        for name in [names::X_FORWARDED_FOR, names::X_FORWARDED_PROTO, names::X_FORWARDED_HOST] {
            request.fields_mut().remove(name);
        }
        return;
    }
    cx.with_scratch(|cx, text| {
        if is_trusted {
            for (number, prior) in request.fields().get_all(names::X_FORWARDED_FOR).enumerate() {
                if number > 0 {
                    text.extend_from_slice(b", ");
                }
                text.extend_from_slice(prior);
            }
            if !text.is_empty() && peer.is_some() {
                text.extend_from_slice(b", ");
            }
        }
        // The peer is appended, so the last address is always the one that this server saw. A Unix socket's has none.
        if let Some(peer) = peer {
            put_ip(peer, text);
        }
        let fields = request.fields_mut();
        if text.is_empty() {
            fields.remove(names::X_FORWARDED_FOR);
        } else {
            with_field_value(text, |value| fields.insert(names::X_FORWARDED_FOR, value));
        }

        if !(is_trusted && keep_last(fields, names::X_FORWARDED_PROTO, text)) {
            let scheme = if cx.arrival().scheme == Scheme::Https { HTTPS } else { HTTP };
            fields.insert(names::X_FORWARDED_PROTO, scheme);
        }
        if !(is_trusted && keep_last(fields, names::X_FORWARDED_HOST, text)) {
            text.clear();
            text.extend_from_slice(cx.head().authority().unwrap_or_default().as_bytes());
            with_field_value(text, |value| request.fields_mut().insert(names::X_FORWARDED_HOST, value));
        }
    });
}

/// Reduces repeated fields to the last one. Returns false if it is absent or empty.
fn keep_last(fields: &mut causeway_message::FieldMap, name: KnownName, text: &mut Vec<u8>) -> bool {
    let Some(last) = fields.get_all(name).last().filter(|last| !last.is_empty()) else { return false };
    if fields.is_repeated(name) {
        text.clear();
        text.extend_from_slice(last);
        with_field_value(text, |value| fields.insert(name, value));
    }
    true
}
