//! basic_auth and request_body, which reject requests that do not meet a condition.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::Handler;

/// Parses `basic_auth [<matcher>] [bcrypt|argon2id [<realm>]] { <user> <hashed password> … }`.
pub(super) fn basic_auth(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    if &*d.name().text == "basicauth" {
        d.warn(d.name(), "the 'basicauth' directive is deprecated, use 'basic_auth' instead".to_owned());
    }
    let algorithm = d.argument();
    let realm = d.argument();
    d.expect_no_argument()?;
    let algorithm = match algorithm {
        None => "bcrypt",
        Some(token) if matches!(&*token.text, "bcrypt" | "argon2id") => &token.text,
        Some(token) => {
            let rule = "unrecognized hash algorithm: {}; expected bcrypt or argon2id";
            return Err(Error::at(token, ErrorKind::Word { rule, found: token.text.clone() }));
        }
    };
    let mut basic = Map::from_iter([("hash".to_owned(), json!({ "algorithm": algorithm }))]);
    let mut accounts = Vec::new();
    for mut line in d.lines() {
        let user = &*line.name().text;
        let password = line.argument().map_or("", |token| &*token.text);
        line.expect_no_argument()?;
        if user.is_empty() || password.is_empty() {
            return Err(line.rule("username and password cannot be empty or missing"));
        }
        accounts.push(json!({ "username": user, "password": password }));
    }
    if !accounts.is_empty() {
        basic.insert("accounts".into(), accounts.into());
    }
    if let Some(realm) = realm.filter(|realm| !realm.text.is_empty()) {
        basic.insert("realm".into(), (*realm.text).into());
    }
    basic.insert("hash_cache".into(), json!({}));
    Ok(json!({ "handler": "authentication", "providers": { "http_basic": basic } }))
}

/// Parses `request_body [<matcher>] { max_size <size>; set <body> }`.
pub(super) fn request_body(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut handler = Handler::new("request_body");
    d.expect_no_argument()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "max_size" => {
                let size = line.size("parsing max_size: '{}' is no size; expected one such as 16KiB or 100MB")?;
                handler.replace("max_size", (size != 0).then_some(size));
            }
            "set" => {
                let body = &*line.sole_argument()?.text;
                handler.replace("set", (!body.is_empty()).then_some(body));
            }
            _ => return Err(line.unknown("unrecognized request_body subdirective '{}'", &["max_size", "set"])),
        }
    }
    Ok(handler.json())
}
