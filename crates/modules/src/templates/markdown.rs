//! `markdown`: GitHub's Markdown to HTML, with footnotes and the ids of headings, as Caddy's goldmark writes it.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};

use causeway_go_template::{Call, Failure, Value};
use comrak::adapters::{HeadingAdapter, HeadingMeta};
use comrak::nodes::Sourcepos;
use comrak::options::Plugins;
use comrak::{Options, markdown_to_html_with_plugins};

/// Renders Markdown. HTML in it is kept, as in Caddy.
pub(super) fn render(text: &str, call: &mut Call<'_>) -> Result<Value, Failure> {
    // The parser's tree and the output.
    call.allocate(text.len().saturating_mul(16))?;
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

/// Writes headings with ids. The ids are unique in one document. The lock is never contended; the library demands one.
#[derive(Default)]
struct Headings(Mutex<BTreeSet<String>>);

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
        let mut free = (0..).map(|number| if number == 0 { id.clone() } else { format!("{id}-{number}") });
        let id = free.find(|id| !taken.contains(id)).unwrap_or_default();
        taken.insert(id.clone());
        id
    }
}
