//! Tables of options with one argument, each with its JSON member.

use serde_json::{Map, Value};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::members::Members;
use super::super::quantity::{bytes, integer};
use causeway_pipeline::build::nanoseconds;

/// The type of an option's argument.
#[derive(Clone, Copy)]
pub(super) enum ArgumentType {
    Text,
    Integer,
    Duration,
    Size,
}

/// An option, its JSON member, and the error for an argument that cannot be parsed, which replaces `{}`.
pub(super) struct Setting {
    pub(super) option: &'static str,
    pub(super) member: &'static str,
    pub(super) kind: ArgumentType,
    pub(super) rule: &'static str,
}

/// An option with a text argument.
pub(super) const fn text(option: &'static str, member: &'static str) -> Setting {
    Setting { option, member, kind: ArgumentType::Text, rule: "" }
}

/// Parses the line if the table has its option. Omits 0 and the empty text.
pub(super) fn set(
    line: &mut Dispenser<'_>,
    members: &mut Map<String, Value>,
    table: &[Setting],
) -> Result<bool, Error> {
    let Some(setting) = table.iter().find(|setting| *setting.option == *line.name().text) else { return Ok(false) };
    let word = &*line.require()?.text;
    let number = match setting.kind {
        ArgumentType::Text => {
            members.text(setting.member, word);
            return Ok(true);
        }
        ArgumentType::Integer => integer(word),
        ArgumentType::Duration => nanoseconds(word),
        ArgumentType::Size => bytes(word).and_then(|bytes| i64::try_from(bytes).ok()),
    };
    members.number(setting.member, number.ok_or_else(|| line.word(setting.rule))?);
    Ok(true)
}
