//! `markdown`: GitHub's Markdown to HTML, with footnotes and the ids of headings, as Caddy's goldmark writes it.

use std::cell::LazyCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};

use causeway_go_template::{CallContext, FunctionError, Value};
use comrak::adapters::{HeadingAdapter, HeadingMeta};
use comrak::nodes::{AstNode, NodeValue, Sourcepos};
use comrak::options::Plugins;
use comrak::{Arena, Options, format_html_with_plugins, parse_document};

/// Renders Markdown. HTML in it is kept, as in Caddy.
pub(super) fn render(text: &str, call: &mut CallContext<'_>) -> Result<Value, FunctionError> {
    // The output, and the parser's tree. Measured: a mark or a line's end takes up to 512 bytes of it, other text few.
    let marks = text.bytes().filter(|byte| byte.is_ascii_punctuation() || matches!(byte, b'\n' | b'\r')).count();
    call.charge_memory(text.len().saturating_mul(16).saturating_add(marks.saturating_mul(512)))?;
    Ok(html(text).map_err(|_| "the document cannot be written as HTML")?.into())
}

fn html(text: &str) -> Result<String, fmt::Error> {
    let mut options = Options::default();
    let extension = &mut options.extension;
    (extension.strikethrough, extension.table, extension.autolink) = (true, true, true);
    (extension.tasklist, extension.footnotes) = (true, true);
    options.render.r#unsafe = true;
    let arena = Arena::new();
    let root = parse_document(&arena, text, &options);
    let headings = Headings(Mutex::new(ids(root, text).into()));
    let mut plugins = Plugins::default();
    plugins.render.heading_adapter = Some(&headings);
    let mut output = String::new();
    format_html_with_plugins(root, &options, &mut output, &plugins)?;
    Ok(output)
}

/// Writes headings with ids: those of the headings that were not written yet. The lock is never contended; the library
/// demands one.
struct Headings(Mutex<VecDeque<String>>);

impl HeadingAdapter for Headings {
    fn enter(&self, output: &mut dyn Write, heading: &HeadingMeta, _: Option<Sourcepos>) -> fmt::Result {
        let id = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front().unwrap_or_default();
        write!(output, "<h{} id=\"{id}\">", heading.level)
    }

    fn exit(&self, output: &mut dyn Write, heading: &HeadingMeta) -> fmt::Result {
        writeln!(output, "</h{}>", heading.level)
    }
}

/// Returns the ids of all headings in their order.
fn ids<'a>(root: &'a AstNode<'a>, text: &str) -> Vec<String> {
    // Collected at the first heading: a document may have as many lines as bytes.
    let source_lines = LazyCell::new(|| lines(text).collect::<Vec<_>>());
    let mut taken = TakenIds::default();
    let headings = root.descendants().filter_map(|node| {
        let node = node.data();
        let NodeValue::Heading(heading) = &node.value else { return None };
        Some(taken.id(last_line(&source_lines, heading.setext, node.sourcepos)))
    });
    headings.collect()
}

/// Returns the lines as the parser counts them: they end with LF, CR or both.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let end = memchr::memchr2(b'\n', b'\r', text.as_bytes());
        rest = end.map(|end| &text[end + if text[end..].starts_with("\r\n") { 2 } else { 1 }..]);
        Some(&text[..end.unwrap_or(text.len())])
    })
}

/// Returns the source of a heading's last line, of which goldmark makes its id: with the marks and the addresses in it.
fn last_line<'t>(lines: &[&'t str], is_underlined: bool, place: Sourcepos) -> &'t str {
    // The last line of an underlined heading is the underline.
    let number = place.end.line.saturating_sub(usize::from(is_underlined));
    let line = lines.get(number.wrapping_sub(1)).copied().unwrap_or_default();
    if number == place.start.line {
        let content = line.get(place.start.column.saturating_sub(1)..).unwrap_or(line);
        return if is_underlined { content } else { without_number_signs(content) };
    }
    // A later line of a quotation may start with its marks.
    line.trim_start_matches([' ', '\t', '>'])
}

/// Removes the number signs before a heading and those after it.
fn without_number_signs(heading: &str) -> &str {
    let content = heading.trim_start_matches('#').trim_ascii();
    let without = content.trim_end_matches('#');
    if without.is_empty() || without.ends_with([' ', '\t']) { without } else { content }
}

/// The ids of one document, which are unique: for each it has the next number to try after an equal heading, so that
/// equal headings do not try the same numbers again.
#[derive(Default)]
struct TakenIds(BTreeMap<String, usize>);

impl TakenIds {
    /// Makes an id as goldmark does: ASCII letters in lower case and digits; a hyphen for a space, `-` and `_`.
    fn id(&mut self, content: &str) -> String {
        let change = |byte: u8| match byte {
            byte if byte.is_ascii_alphanumeric() => Some(char::from(byte.to_ascii_lowercase())),
            b' ' | b'\t' | b'\n' | b'\r' | b'-' | b'_' => Some('-'),
            _ => None,
        };
        let id: String = content.trim_ascii().bytes().filter_map(change).collect();
        let id = if id.is_empty() { "heading".to_owned() } else { id };
        let free = match self.0.get(&id) {
            None => id,
            Some(&next) => {
                let mut numbered = (next..).map(|number| (number, format!("{id}-{number}")));
                let (number, free) = numbered.find(|(_, id)| !self.0.contains_key(id)).unwrap_or_default();
                self.0.insert(id, number + 1);
                free
            }
        };
        self.0.insert(free.clone(), 1);
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // goldmark, `parser.IDs`: the first free number follows an id that there is.
    #[test]
    fn ids_are_unique() {
        let mut headings = TakenIds::default();
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

    // goldmark 1.8.6, `generateAutoHeadingID`: the id is made of the source of the last line.
    #[test]
    fn ids_are_made_of_the_source() {
        for (text, want) in [
            ("## [1.2.0](https://x.y/c) - 2024", &["120httpsxyc---2024"][..]),
            ("## A &amp; B", &["a-amp-b"][..]),
            ("## **b** _c_ ~~d~~", &["b--c--d"][..]),
            ("## A *b*", &["a-b"][..]),
            ("one\ntwo *x*\n===", &["two-x"][..]),
            ("## ![alt](/u.png) z", &["altupng-z"][..]),
            ("# a #", &["a"][..]),
            ("# a ##  ", &["a"][..]),
            ("# a#", &["a"][..]),
            ("# a \\#", &["a-"][..]),
            ("# #", &["heading"][..]),
            ("#", &["heading"][..]),
            ("### ###", &["heading"][..]),
            ("   ##   a  b", &["a--b"][..]),
            ("> # q", &["q"][..]),
            ("> a\n> b_c\n> ---", &["b-c"][..]),
            ("> a\nb c\n> ---", &["b-c"][..]),
            ("- # item", &["item"][..]),
            ("- a\n  b\n  ===", &["b"][..]),
            ("1. x\n\n   ## deep `code`", &["deep-code"][..]),
            ("a\r\nb c\r\n===\r\n\r\n# d e\r\n", &["b-c", "d-e"][..]),
            ("[r]: /u\nfoo bar\n===", &["foo-bar"][..]),
            ("# a\n# a\n# a", &["a", "a-1", "a-2"][..]),
            ("# äö x \u{a0}", &["-x-"][..]),
            ("# a\tb", &["a-b"][..]),
            ("text\n\n# x[^1]\n\n[^1]: note\n\n    # inner\n\n# last", &["x1", "last", "inner"][..]),
            ("# <i>x</i>", &["ixi"][..]),
            ("# a -#", &["a--"][..]),
            ("# a - #", &["a--"][..]),
            ("- > # a b #\n  > \n  > c\n  > d-e\n  > ===", &["a-b", "d-e"][..]),
            ("a\n  b\n---", &["b"][..]),
        ] {
            let html = html(text).unwrap();
            let headings =
                html.split("<h").filter_map(|heading| heading.get(1..)?.strip_prefix(" id=\"")?.split('"').next());
            assert_eq!(headings.collect::<Vec<_>>(), want, "{text:?}");
        }
    }
}
