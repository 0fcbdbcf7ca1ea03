//! Directives that respond: respond, error, abort, redir, metrics.

use serde_json::{Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::quantity::{integer, weak};
use super::Handler;

/// Parses text and status. A lone argument of three digits is the status, any other the text.
fn text_and_status(d: &mut Dispenser<'_>) -> Result<(Box<str>, Box<str>), Error> {
    match d.rest() {
        [only] if only.text.len() == 3 && integer(&only.text).is_some_and(|status| status > 0) => {
            Ok(("".into(), only.text.clone()))
        }
        [text] => Ok((text.text.clone(), "".into())),
        [text, status] => Ok((text.text.clone(), status.text.clone())),
        _ => Err(d.count_error()),
    }
}

/// Parses `respond [<matcher>] <status>|<body> [<status>] { body <text>; close }`.
pub(super) fn respond(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let (mut body, status) = text_and_status(d)?;
    let is_status = |text: &str| text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_status(&body) && !status.is_empty() && !is_status(&status) && !status.contains('{') {
        d.warn(d.name(), format!("the body comes before the status; expected 'respond \"{status}\" {body}'"));
    }
    let mut close = false;
    for mut line in d.lines() {
        match &*line.name().text {
            "body" if !body.is_empty() => return Err(line.rule("body already specified")),
            "body" => {
                body = line.sole_argument()?.text.clone();
            }
            "close" if close => return Err(line.rule("close already specified")),
            "close" => close = true,
            _ => return Err(line.unknown("unrecognized subdirective '{}'", &["body", "close"])),
        }
    }
    let mut handler = Handler::new("static_response");
    if !status.is_empty() {
        handler.set("status_code", weak(&status));
    }
    handler.text("body", &body);
    if close {
        handler.set("close", true);
    }
    Ok(handler.json())
}

/// Parses `error [<matcher>] <status>|<message> [<status>] { message <text> }`.
pub(super) fn error(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let (mut message, status) = text_and_status(d)?;
    for mut line in d.lines() {
        match &*line.name().text {
            "message" if !message.is_empty() => return Err(line.rule("message already specified")),
            "message" => {
                message = line.sole_argument()?.text.clone();
            }
            _ => return Err(line.unknown("unrecognized subdirective '{}'", &["message"])),
        }
    }
    let mut handler = Handler::new("error");
    handler.text("error", &message);
    if !status.is_empty() {
        handler.set("status_code", weak(&status));
    }
    Ok(handler.json())
}

/// Parses `abort [<matcher>]`.
pub(super) fn abort(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    d.expect_no_argument()?;
    d.expect_no_braces()?;
    Ok(json!({ "handler": "static_response", "abort": true }))
}

/// Parses `metrics [<matcher>] { disable_openmetrics }`.
pub(super) fn metrics(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    d.expect_no_argument()?;
    let mut handler = Handler::new("metrics");
    for line in d.lines() {
        if &*line.name().text != "disable_openmetrics" {
            return Err(line.unknown("unrecognized subdirective \"{}\"", &["disable_openmetrics"]));
        }
        handler.set("disable_openmetrics", true);
    }
    Ok(handler.json())
}

/// Parses `redir [<matcher>] <to> [<status>|permanent|temporary|html]`.
pub(super) fn redir(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let to = d.require()?.text.clone();
    let code = d.argument().map_or("", |token| &*token.text);
    let mut handler = Handler::new("static_response");
    let status = match code {
        "permanent" => "301",
        "temporary" | "" => "302",
        "html" => {
            let to = escape_html(&to);
            handler.set("status_code", 200).set("headers", json!({ "Content-Type": ["text/html; charset=utf-8"] }));
            handler.set("body", html_redirect(&to));
            return Ok(handler.json());
        }
        placeholder if placeholder.starts_with('{') => placeholder,
        code => {
            let Some(number) = integer(code) else {
                return Err(d.word("Not a supported redir code type or not valid integer: '{}'"));
            };
            if !(300..=399).contains(&number) && number != 401 {
                return Err(d.word("Redir code not in the 3xx range or 401: '{}'"));
            }
            code
        }
    };
    d.expect_no_argument()?;
    handler.set("status_code", weak(status)).set("headers", json!({ "Location": [&*to] }));
    Ok(handler.json())
}

/// Caddy's page, byte for byte, because the JSON must equal Caddy's.
fn html_redirect(to: &str) -> String {
    [
        "<!DOCTYPE html>\n<html>\n\t<head>\n\t\t<title>Redirecting...</title>\n",
        &format!("\t\t<script>window.location.replace(\"{to}\");</script>\n"),
        &format!("\t\t<meta http-equiv=\"refresh\" content=\"0; URL='{to}'\">\n"),
        &format!("\t</head>\n\t<body>Redirecting to <a href=\"{to}\">{to}</a>...</body>\n</html>\n"),
    ]
    .concat()
}

fn escape_html(text: &str) -> String {
    let escape = |ch| match ch {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&#34;".to_owned(),
        '\'' => "&#39;".to_owned(),
        ch => String::from(ch),
    };
    text.chars().map(escape).collect()
}
