//! Response matchers: in `header`, and in directives that inspect another handler's response.

use serde_json::{Map, Value};

use super::super::dispenser::{Dispenser, unexpected_block};
use super::super::error::{Error, ErrorKind};
use super::super::matcher::header_lines;
use super::super::quantity::integer;
use super::super::segment::Segment;

/// Parses `match header …`, `match status …` or `match { … }`. A block may follow the statuses of the second form.
pub(crate) fn response_matcher(line: &mut Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    let (mut headers, mut statuses) = (Map::new(), Vec::new());
    let written = line.take_segment();
    let mut conditions = written.block.as_deref().unwrap_or_default().iter();
    if let Some(inline) = written.rest() {
        let takes_block = &*inline.name.text == "header";
        condition(&inline, &mut headers, &mut statuses)?;
        if takes_block {
            conditions = [].iter();
        }
    }
    for line in conditions {
        condition(line, &mut headers, &mut statuses)?;
        if let (Some(_), "status") = (&line.block, &*line.name.text) {
            return Err(unexpected_block(line, line.arguments.last().unwrap_or(&line.name)));
        }
    }
    let mut matcher = Map::new();
    if !statuses.is_empty() {
        matcher.insert("status_code".into(), statuses.into());
    }
    if !headers.is_empty() {
        matcher.insert("headers".into(), headers.into());
    }
    Ok(matcher)
}

fn condition(line: &Segment, headers: &mut Map<String, Value>, statuses: &mut Vec<Value>) -> Result<(), Error> {
    let name = &line.name;
    match &*name.text {
        "header" => header_lines(line, headers),
        "status" if line.arguments.is_empty() => Err(Error::at(name, ErrorKind::ArgumentCount(name.text.clone()))),
        "status" => {
            for token in &line.arguments {
                let Some(number) = status(&token.text) else {
                    let rule = "bad status value '{}'; expected a number or a class such as 2xx";
                    return Err(Error::at(token, ErrorKind::Word { rule, found: token.text.clone() }));
                };
                statuses.push(number.into());
            }
            Ok(())
        }
        _ => {
            let rule = "unrecognized response matcher {}";
            let kind = ErrorKind::Unknown { rule, name: name.text.clone(), expected: &["header", "status"] };
            Err(Error::at(name, kind))
        }
    }
}

/// Parses a status code, or a class such as `2xx` as its first digit.
pub(crate) fn status(text: &str) -> Option<i64> {
    let class = text.strip_suffix("xx").filter(|class| class.len() == 1);
    integer(class.unwrap_or(text))
}
