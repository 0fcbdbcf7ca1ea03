//! Options of one word, each with the member that it becomes.

use serde_json::{Map, Value};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::members::Members;
use super::super::quantity::{integer, octets};
use causeway_pipeline::build::nanoseconds;

/// How an option's word is read.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Integer,
    Duration,
    Size,
}

/// An option, its member, and what is said of a word that cannot be read: `{}` stands for it.
pub(super) struct Setting {
    pub(super) option: &'static str,
    pub(super) member: &'static str,
    pub(super) kind: Kind,
    pub(super) rule: &'static str,
}

/// Any text.
pub(super) const fn text(option: &'static str, member: &'static str) -> Setting {
    Setting { option, member, kind: Kind::Text, rule: "" }
}

/// Reads the line if the table has it; what says nothing, as 0 and the empty text, is left out.
pub(super) fn set(
    line: &mut Dispenser<'_>,
    members: &mut Map<String, Value>,
    table: &[Setting],
) -> Result<bool, Error> {
    let Some(setting) = table.iter().find(|setting| *setting.option == *line.name().text) else { return Ok(false) };
    let word = &*line.require()?.text;
    let number = match setting.kind {
        Kind::Text => {
            members.text(setting.member, word);
            return Ok(true);
        }
        Kind::Integer => integer(word),
        Kind::Duration => nanoseconds(word),
        Kind::Size => octets(word).and_then(|octets| i64::try_from(octets).ok()),
    };
    members.number(setting.member, number.ok_or_else(|| line.word(setting.rule))?);
    Ok(true)
}
