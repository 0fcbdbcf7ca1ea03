//! Matchers of responses: of `header`, and of what looks at another handler's answer.

use serde_json::{Map, Value};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::matcher::header_lines;
use super::super::quantity::integer;

/// `match header …`, `match status …` or `match { … }`.
pub(super) fn response_matcher(line: &Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    let inline = line.segment().rest();
    let conditions = match &inline {
        Some(rest) => std::slice::from_ref(rest),
        None => line.segment().block.as_deref().unwrap_or_default(),
    };
    let (mut headers, mut status) = (Map::new(), Vec::new());
    for condition in conditions {
        let name = &condition.name;
        match &*name.text {
            "header" => header_lines(condition, &mut headers)?,
            "status" if condition.arguments.is_empty() => {
                return Err(Error::at(name, ErrorKind::ArgumentCount(name.text.clone())));
            }
            "status" => {
                for token in &condition.arguments {
                    let class = token.text.strip_suffix("xx").filter(|class| class.len() == 1);
                    let Some(number) = integer(class.unwrap_or(&token.text)) else {
                        let rule = "bad status value '{}'; expected a number or a class such as 2xx";
                        return Err(Error::at(token, ErrorKind::Word { rule, found: token.text.clone() }));
                    };
                    status.push(Value::from(number));
                }
            }
            _ => {
                let rule = "unrecognized response matcher {}";
                let kind = ErrorKind::Unknown { rule, name: name.text.clone(), expected: &["header", "status"] };
                return Err(Error::at(name, kind));
            }
        }
    }
    let mut matcher = Map::new();
    if !status.is_empty() {
        matcher.insert("status_code".into(), status.into());
    }
    if !headers.is_empty() {
        matcher.insert("headers".into(), headers.into());
    }
    Ok(matcher)
}
