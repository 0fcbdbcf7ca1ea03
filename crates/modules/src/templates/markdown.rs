//! `markdown`: GitHub's Markdown to HTML, with footnotes and the ids of headings, as Caddy's goldmark writes it.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};

use causeway_go_template::{Call, FunctionError, Value};
use comrak::adapters::{HeadingAdapter, HeadingMeta};
use comrak::nodes::Sourcepos;
use comrak::options::Plugins;
use comrak::{Options, markdown_to_html_with_plugins};

/// Renders Markdown. HTML in it is kept, as in Caddy.
pub(super) fn render(text: &str, call: &mut Call<'_>) -> Result<Value, FunctionError> {
    // The parser's tree and the output.
    call.charge_memory(text.len().saturating_mul(16))?;
    let mut options = Options::default();
    let extension = &mut options.extension;
    (extension.strikethrough, extension.table, extension.autolink) = (true, true, true);
    (extension.tasklist, extension.footnotes) = (true, true);
    options.render.r#unsafe = true;
    let headings = Headings::default();
    let mut plugins = Plugins::default();
    plugins.render.heading_adapter = Some(&headings);
    Ok(markdown_to_html_with_plugins(text, &options, &plugins).into())
}

/// Writes headings with ids. The ids are unique in one document: for each it has the next number to try after an equal
/// heading, so that equal headings do not try the same numbers again. The lock is never contended; the library demands
/// one.
#[derive(Default)]
struct Headings(Mutex<BTreeMap<String, usize>>);

impl HeadingAdapter for Headings {
    fn enter(&self, output: &mut dyn Write, heading: &HeadingMeta, _: Option<Sourcepos>) -> fmt::Result {
        write!(output, "<h{} id=\"{}\">", heading.level, self.id(&heading.content))
    }

    fn exit(&self, output: &mut dyn Write, heading: &HeadingMeta) -> fmt::Result {
        writeln!(output, "</h{}>", heading.level)
    }
}

impl Headings {
    /// Makes an id as goldmark does: ASCII letters in lower case and digits; a hyphen for a space, `-` and `_`.
    fn id(&self, content: &str) -> String {
        let change = |byte: u8| match byte {
            byte if byte.is_ascii_alphanumeric() => Some(char::from(byte.to_ascii_lowercase())),
            b' ' | b'\t' | b'\n' | b'\r' | b'-' | b'_' => Some('-'),
            _ => None,
        };
        let id: String = content.trim().bytes().filter_map(change).collect();
        let id = if id.is_empty() { "heading".to_owned() } else { id };
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let free = match taken.get(&id) {
            None => id,
            Some(&next) => {
                let mut numbered = (next..).map(|number| (number, format!("{id}-{number}")));
                let (number, free) = numbered.find(|(_, id)| !taken.contains_key(id)).unwrap_or_default();
                taken.insert(id, number + 1);
                free
            }
        };
        taken.insert(free.clone(), 1);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // goldmark, `parser.IDs`: the first free number follows an id that there is.
    #[test]
    fn ids_are_unique() {
        let headings = Headings::default();
        for (content, want) in [
            ("A", "a"),
            ("a", "a-1"),
            ("A-1", "a-1-1"),
            ("a", "a-2"),
            ("a-3", "a-3"),
            ("a", "a-4"),
            ("a-1", "a-1-2"),
            ("!", "heading"),
            ("heading", "heading-1"),
        ] {
            assert_eq!(headings.id(content), want);
        }
        // As many as a template may have.
        let ids = (0..100_000).map(|_| headings.id("many")).collect::<std::collections::BTreeSet<_>>();
        assert!(ids.len() == 100_000 && ids.contains("many-99999"));
    }
}
