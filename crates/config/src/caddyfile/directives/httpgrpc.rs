//! httpgrpc: HTTP requests inside gRPC messages. Not a directive of Caddy's.

use serde_json::{Map, Value};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::members::Members;
use super::Handler;

/// Parses `httpgrpc [<matcher>] { max_message_size <size>; stream on|off }`.
pub(super) fn httpgrpc(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    d.expect_no_argument()?;
    let mut handler = Handler::new("httpgrpc");
    for mut line in d.lines() {
        if !message_option(&mut line, &mut handler.0)? {
            return Err(line.unknown("unrecognized subdirective '{}'", &["max_message_size", "stream"]));
        }
        line.expect_end_of_line()?;
    }
    Ok(handler.json())
}

/// Parses an option that the handler and the proxy's transport share: the maximum message size, or whether content can
/// span several messages. Returns `false` for other options.
pub(crate) fn message_option(line: &mut Dispenser<'_>, members: &mut Map<String, Value>) -> Result<bool, Error> {
    match &*line.name().text {
        "max_message_size" => {
            let size = line.size("invalid message size '{}'; expected one such as 16MiB")?;
            if size == 0 {
                return Err(line.word("invalid message size '{}'; expected more than 0"));
            }
            members.number("max_message_size", size);
        }
        "stream" => {
            let stream = match &*line.sole_argument()?.text {
                "on" => true,
                "off" => false,
                _ => return Err(line.word("invalid value '{}' of stream; expected on or off")),
            };
            members.insert("stream".into(), stream.into());
        }
        _ => return Ok(false),
    }
    Ok(true)
}
