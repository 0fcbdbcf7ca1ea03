//! Matchers of responses: of `header`, and of what looks at another handler's answer.

use serde_json::{Map, Value};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::matcher::header_lines;
use super::super::quantity::integer;
use super::super::segment::Segment;

/// `match header …`, `match status …` or `match { … }`; behind the statuses of the second a block may follow.
pub(crate) fn response_matcher(line: &Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    let (mut headers, mut statuses) = (Map::new(), Vec::new());
    let block = line.segment().block.as_deref().unwrap_or_default();
    let mut conditions = block.iter();
    if let Some(inline) = line.segment().rest() {
        let takes_block = &*inline.name.text == "header";
        condition(&inline, &mut headers, &mut statuses)?;
        if takes_block {
            conditions = [].iter();
        }
    }
    for line in conditions {
        condition(line, &mut headers, &mut statuses)?;
        if let (Some(_), "status") = (&line.block, &*line.name.text) {
            let rule = "unrecognized response matcher {}; expected no block here";
            return Err(Error::at(&line.name, ErrorKind::Word { rule, found: "{".into() }));
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

/// A status, or a class of them by its first digit.
pub(crate) fn status(text: &str) -> Option<i64> {
    let class = text.strip_suffix("xx").filter(|class| class.len() == 1);
    integer(class.unwrap_or(text))
}
