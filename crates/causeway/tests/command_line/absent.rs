//! `null` means absent, everywhere in a configuration: Go programs send it for each unset pointer, slice and map.

use causeway::server::validate;
use causeway_config::caddyfile::adapt;
use serde_json::{Value, json};

const CADDYFILE: &str = include_str!("files/all.caddyfile");

/// One step of a JSON path.
#[derive(Clone)]
enum PathStep {
    Key(String),
    Index(usize),
}

/// Collects the paths of all object members.
fn members(value: &Value, path: &mut Vec<PathStep>, out: &mut Vec<Vec<PathStep>>) {
    let mut enter = |step: PathStep, value: &Value, is_member: bool| {
        path.push(step);
        if is_member {
            out.push(path.clone());
        }
        members(value, path, out);
        path.pop();
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| enter(PathStep::Key(key.clone()), value, true)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| enter(PathStep::Index(index), value, false));
        }
        _ => {}
    }
}

fn find<'v>(value: &'v mut Value, path: &[PathStep]) -> &'v mut Value {
    path.iter().fold(value, |value, step| match step {
        PathStep::Key(key) => &mut value[key],
        PathStep::Index(index) => &mut value[index],
    })
}

// encoding/json, Unmarshal: null has no effect on a member of a struct.
#[test]
fn each_member_of_a_configuration() {
    let registry = causeway::registry();
    let adapted = adapt(CADDYFILE, "Caddyfile", &causeway::directives(&registry), &|_| None).unwrap().json;
    validate(adapted.clone(), &registry).unwrap();
    let mut paths = Vec::new();
    members(&adapted, &mut Vec::new(), &mut paths);
    assert!(paths.len() > 200, "{}", paths.len());
    for path in paths {
        let Some((PathStep::Key(key), parent)) = path.split_last() else { continue };
        // Not comparable: a null matcher is refused, whereas a set without the matcher matches every request. A named
        // route exists even if its value is null.
        let is_set = |step: &PathStep| matches!(step, PathStep::Key(key) if key == "match" || key == "not");
        let keyed = parent.iter().rev().take(2).any(is_set)
            || matches!(parent.last(), Some(PathStep::Key(key)) if key == "named_routes");
        if keyed {
            continue;
        }
        let (mut null, mut absent) = (adapted.clone(), adapted.clone());
        *find(&mut null, &path) = Value::Null;
        find(&mut absent, parent).as_object_mut().unwrap().shift_remove(key);
        let outcome_of =
            |config| validate(config, &registry).map_err(|error| error.to_string().replace("\"module\":null", ""));
        assert_eq!(outcome_of(null), outcome_of(absent), "{key}");
    }
}

// Members that no Caddyfile sets. A null element of a list is the empty value of its type; members of free-form objects
// keep null.
#[test]
fn other_members() {
    let registry = causeway::registry();
    let server = |server: Value| json!({ "apps": { "http": { "servers": { "s": server } } } });
    let handler = |handler: Value| server(json!({ "listen": [":8080"], "routes": [{ "handle": [handler] }] }));
    for config in [
        Value::Null,
        json!({ "admin": null, "logging": null, "storage": null, "apps": null }),
        json!({ "admin": { "remote": null, "identity": null, "config": { "load": null, "persist": null }, "origins": null } }),
        json!({ "apps": { "http": null, "tls": null, "pki": null } }),
        json!({ "apps": { "http": { "servers": null, "grace_period": null, "http_port": null } } }),
        server(json!({ "listen": null, "routes": null, "errors": null, "named_routes": null, "logs": null })),
        server(json!({ "automatic_https": null, "tls_connection_policies": null, "metrics": null, "protocols": null })),
        server(
            json!({ "tls_connection_policies": [{ "insecure_secrets_log": null, "client_authentication": { "ca": null } }] }),
        ),
        server(json!({ "errors": { "routes": null } })),
        server(json!({ "routes": [null] })),
        server(json!({ "routes": [{ "match": null, "handle": null, "terminal": null, "group": null }] })),
        server(json!({ "routes": [{ "match": [null], "handle": [] }] })),
        server(json!({ "routes": [{ "match": [{ "header": { "A": null }, "not": [null] }] }] })),
        handler(
            json!({ "handler": "static_response", "body": null, "headers": null, "status_code": null, "close": null }),
        ),
        handler(json!({ "handler": "static_response", "headers": { "A": null, "B": [null] } })),
        handler(
            json!({ "handler": "file_server", "hide": null, "browse": null, "precompressed": { "gzip": null }, "fs": null }),
        ),
        handler(json!({ "handler": "headers", "request": null, "response": { "set": null, "require": null } })),
        handler(json!({ "handler": "subroute", "routes": null, "errors": null })),
        handler(json!({ "handler": "acme_server", "ca": null, "lifetime": null, "challenges": null, "resolvers": null,
            "policy": { "allow": { "domains": null }, "deny": null }, "validation_ports": { "http": null } })),
        handler(json!({ "handler": "vars", "a": null })),
        handler(json!({ "handler": "authentication", "providers": { "http_basic": null } })),
        handler(json!({ "handler": "reverse_proxy", "upstreams": [{ "dial": "a:1", "max_requests": null }],
            "health_checks": null, "dynamic_upstreams": null, "handle_response": null,
            "load_balancing": { "selection_policy": { "policy": "random", "choose": null }, "retries": null },
            "transport": { "protocol": "http", "tls": { "ca": null, "root_ca_pool": null, "curves": null } } })),
    ] {
        assert_eq!(
            validate(config.clone(), &registry).map(drop).map_err(|error| error.to_string()),
            Ok(()),
            "{config}"
        );
    }
    // A name that is no member is an error with null too, as in Caddy.
    for (config, name) in [
        (json!({ "aps": null }), "aps"),
        (json!({ "apps": { "htp": null } }), "htp"),
        (server(json!({ "listen": [":8080"], "lisen": null })), "lisen"),
        (handler(json!({ "handler": "static_response", "bodi": null })), "bodi"),
    ] {
        let error = validate(config, &registry).map(drop).unwrap_err().to_string();
        assert!(error.contains(&format!("unknown field `{name}`")), "{error}");
    }
}
