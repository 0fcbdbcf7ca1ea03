//! The listing as an HTML page: one document without scripts and without external resources.
//!
//! A file name is untrusted text: it is escaped as text, percent-encoded in links, and wrapped in `<bdi>`, so that
//! right-to-left text or direction overrides in a name do not affect the rest of the page.

use std::fmt::Write as _;

use causeway_log_output::{TimeLayout, Zone};
use causeway_message::path::push_escape;

use super::ListingQuery;
use super::list::{Item, Listing, Order, Sort};
use crate::human_size;

/// Go's layouts of the times in a page, with and without seconds. JSON has the exact one too.
pub(super) const TIME_EXACT: &str = "2006-01-02T15:04:05Z07:00";
const TIME_SHORT: &str = "2006-01-02 15:04";

const STYLE: &str = include_str!("style.css");
const ICONS: &str = include_str!("icons.svg");
/// A folder icon as a data URL.
const FAVICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24'%3E%3Cpath fill='%23d9972b' \
                       d='M2 6.5A2.5 2.5 0 0 1 4.5 4h5L12 7h7.5A2.5 2.5 0 0 1 22 9.5v8a2.5 2.5 0 0 1-2.5 2.5h-15A2.5 2.5 0 0 1 2 17.5z'/%3E%3C/svg%3E";

/// Renders the page: about 400 bytes for each entry, in one allocation for typical names.
pub(super) fn render(listing: &Listing, query: &ListingQuery) -> Vec<u8> {
    let mut page = Page(String::with_capacity(STYLE.len() + ICONS.len() + 2048 + 512 * listing.items.len()));
    page.head(query);
    page.header(listing, query);
    page.table(listing, query);
    page.pages(listing, query);
    page.put("<footer>Served by Causeway</footer></div></body></html>\n");
    page.0.into_bytes()
}

struct Page(String);

impl Page {
    fn put(&mut self, markup: &str) {
        self.0.push_str(markup);
    }

    fn print(&mut self, markup: std::fmt::Arguments<'_>) {
        self.0.write_fmt(markup).expect("writing to a string cannot fail");
    }

    /// Appends escaped text, for content or for a quoted attribute value.
    fn text(&mut self, text: &str) {
        // Each part ends with at most one special character.
        for part in text.split_inclusive(['&', '<', '>', '"', '\'']) {
            let plain = part.trim_end_matches(['&', '<', '>', '"', '\'']);
            self.0.push_str(plain);
            self.0.push_str(match &part[plain.len()..] {
                "&" => "&amp;",
                "<" => "&lt;",
                ">" => "&gt;",
                "\"" => "&quot;",
                "'" => "&#39;",
                _ => "",
            });
        }
    }

    fn name(&mut self, name: &str) {
        self.put("<bdi>");
        self.text(name);
        self.put("</bdi>");
    }

    fn head(&mut self, query: &ListingQuery) {
        self.put("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        self.put("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
        self.put("<meta name=\"color-scheme\" content=\"light dark\"><title>");
        self.text(&query.path);
        self.print(format_args!(
            "</title><link rel=\"icon\" href=\"{FAVICON}\"><style>{STYLE}</style></head><body>{ICONS}"
        ));
    }

    /// Appends the path with a link for each ancestor, and the totals.
    fn header(&mut self, listing: &Listing, query: &ListingQuery) {
        let parts: Vec<&str> = query.path.split('/').filter(|part| !part.is_empty()).collect();
        self.put("<div class=\"page\"><header><nav aria-label=\"Path\"><ol><li>");
        self.print(format_args!("<a href=\"{}\" aria-label=\"Top directory\">", up(parts.len())));
        self.put("<svg aria-hidden=\"true\"><use href=\"#home\"/></svg></a></li>");
        for (at, part) in parts.iter().enumerate() {
            // Relative links, so that the page also works below a prefix that a proxy or `handle_path` strips.
            let above = parts.len() - 1 - at;
            if above > 0 {
                self.print(format_args!("<li><a href=\"{}\">", up(above)));
                self.name(part);
                self.put("</a></li>");
            } else {
                self.put("<li><span aria-current=\"page\">");
                self.name(part);
                self.put("</span></li>");
            }
        }
        self.put("</ol></nav><h1>");
        self.name(parts.last().unwrap_or(&"Files"));
        let (directories, files) =
            (count(listing.directories, "directory", "directories"), count(listing.files, "file", "files"));
        self.print(format_args!("</h1><p>{directories} · {files}"));
        if listing.files > 0 {
            self.put(" · ");
            self.size(listing.bytes);
        }
        self.put("</p></header>");
    }

    fn table(&mut self, listing: &Listing, query: &ListingQuery) {
        self.put("<main><table><thead><tr>");
        self.column("name", "Name", Sort::NameDirectoriesFirst, query);
        self.column("size", "Size", Sort::Size, query);
        self.column("time", "Modified", Sort::Time, query);
        self.put("</tr></thead><tbody>");
        if query.path != "/" {
            self.put(
                "<tr class=\"up\"><td class=\"name\"><a href=\"../\"><svg class=\"kind up\" aria-hidden=\"true\">",
            );
            self.put(
                "<use href=\"#up\"/></svg>Parent directory</a></td><td class=\"size\"></td><td class=\"time\"></td></tr>",
            );
        }
        let times = [TIME_EXACT, TIME_SHORT].map(|layout| TimeLayout::new(layout, Zone::Utc));
        for item in &listing.items {
            self.row(item, &times);
        }
        if listing.total() == 0 {
            self.put("<tr class=\"none\"><td colspan=\"3\">This directory is empty.</td></tr>");
        }
        self.put("</tbody></table></main>");
    }

    /// Appends a column's header: a link that sorts by it, or reverses the order if it is the current key.
    fn column(&mut self, key: &str, label: &str, sort: Sort, query: &ListingQuery) {
        // The Name column stands for both sort keys by name.
        let is_current =
            query.order.sort == sort || (sort == Sort::NameDirectoriesFirst && query.order.sort == Sort::Name);
        let state = match (is_current, query.order.descending) {
            (false, _) => "",
            (true, false) => " aria-sort=\"ascending\"",
            (true, true) => " aria-sort=\"descending\"",
        };
        let order = Order { sort, descending: is_current && !query.order.descending };
        self.print(format_args!("<th scope=\"col\" class=\"{key}\"{state}><a data-sort=\"{key}\" href=\""));
        // A new order starts again at the first part.
        self.query_string(order, query.limit, 0);
        self.print(format_args!("\">{label}<svg aria-hidden=\"true\"><use href=\"#order\"/></svg></a></th>"));
    }

    /// Appends a query string that reproduces these options, escaped for an attribute.
    fn query_string(&mut self, order: Order, limit: Option<usize>, offset: usize) {
        let sort = match order.sort {
            Sort::Name => "name",
            Sort::NameDirectoriesFirst => "namedirfirst",
            Sort::Size => "size",
            Sort::Time => "time",
        };
        self.print(format_args!("?sort={sort}&amp;order={}", if order.descending { "desc" } else { "asc" }));
        if let Some(limit) = limit {
            self.print(format_args!("&amp;limit={limit}"));
        }
        if offset > 0 {
            self.print(format_args!("&amp;offset={offset}"));
        }
    }

    fn row(&mut self, item: &Item, times: &[TimeLayout; 2]) {
        let (kind, label) = kind(item);
        self.print(format_args!("<tr class=\"entry\"><td class=\"name\"><a href=\"{}\">", link(item)));
        self.print(format_args!(
            "<svg class=\"kind {kind}\" role=\"img\" aria-label=\"{label}\"><use href=\"#{kind}\"/></svg>"
        ));
        self.name(&String::from_utf8_lossy(&item.name));
        self.put("</a>");
        if let Some(to) = &item.leads_to {
            self.put("<small>→ ");
            self.name(to);
            self.put("</small>");
        }
        self.put("</td><td class=\"size\">");
        // A directory's own length is unrelated to the size of its content.
        if item.is_directory {
            self.put("–");
        } else {
            self.size(item.len);
        }
        let [exact, short] = times.each_ref().map(|layout| layout.text(item.modified));
        self.print(format_args!(
            "</td><td class=\"time\"><time datetime=\"{exact}\" title=\"{exact}\">{short}</time></td></tr>"
        ));
    }

    fn size(&mut self, bytes: u64) {
        self.print(format_args!(
            "<data value=\"{bytes}\" title=\"{bytes} bytes\">{}</data>",
            human_size::binary(bytes)
        ));
    }

    /// Appends links to the previous and next part of a limited listing.
    fn pages(&mut self, listing: &Listing, query: &ListingQuery) {
        let (Some(limit), total) = (query.limit, listing.total()) else { return };
        let end = listing.offset.saturating_add(limit);
        if listing.offset == 0 && end >= total {
            return;
        }
        self.put("<nav class=\"pages\" aria-label=\"Pages\"><span>");
        if listing.offset > 0 {
            self.put("<a rel=\"prev\" href=\"");
            self.query_string(query.order, query.limit, listing.offset.saturating_sub(limit));
            self.put("\">← Previous</a>");
        }
        self.put("</span><span>");
        if end < total {
            self.put("<a rel=\"next\" href=\"");
            self.query_string(query.order, query.limit, end);
            self.put("\">Next →</a>");
        }
        self.put("</span></nav>");
    }
}

/// Returns the link to an item. The `./` prevents that a name such as `a:b` is read as a URL with a scheme; every byte
/// that is not unreserved is escaped.
pub(super) fn link(item: &Item) -> String {
    let mut link = b"./".to_vec();
    for &byte in &item.name {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            link.push(byte);
        } else {
            push_escape(byte, &mut link);
        }
    }
    if item.is_directory {
        link.push(b'/');
    }
    String::from_utf8(link).expect("only ASCII was appended")
}

fn up(levels: usize) -> String {
    if levels == 0 { "./".to_owned() } else { "../".repeat(levels) }
}

fn count(count: usize, singular: &str, plural: &str) -> String {
    format!("{count} {}", if count == 1 { singular } else { plural })
}

/// Returns the icon's id and its label.
fn kind(item: &Item) -> (&'static str, &'static str) {
    if item.is_directory {
        return ("folder", if item.is_symlink { "Link to a directory" } else { "Directory" });
    }
    let dot = item.name.iter().rposition(|&byte| byte == b'.');
    let extension = dot.map(|dot| item.name[dot + 1..].to_ascii_lowercase()).unwrap_or_default();
    match &*extension {
        b"avif" | b"bmp" | b"gif" | b"heic" | b"ico" | b"jpeg" | b"jpg" | b"png" | b"svg" | b"tif" | b"tiff"
        | b"webp" => ("image", "Image"),
        b"aac" | b"avi" | b"flac" | b"m4a" | b"mkv" | b"mov" | b"mp3" | b"mp4" | b"ogg" | b"opus" | b"wav"
        | b"webm" => ("media", "Sound or film"),
        b"7z" | b"bz2" | b"deb" | b"gz" | b"iso" | b"jar" | b"rar" | b"rpm" | b"tar" | b"tgz" | b"xz" | b"zip"
        | b"zst" => ("archive", "Archive"),
        b"c" | b"cpp" | b"css" | b"go" | b"h" | b"htm" | b"html" | b"java" | b"js" | b"json" | b"mjs" | b"php"
        | b"py" | b"rb" | b"rs" | b"sh" | b"sql" | b"toml" | b"ts" | b"wasm" | b"xml" | b"yaml" | b"yml" => {
            ("code", "Code")
        }
        b"csv" | b"doc" | b"docx" | b"epub" | b"log" | b"md" | b"odt" | b"pdf" | b"rst" | b"rtf" | b"tex" | b"txt" => {
            ("text", "Text")
        }
        _ => ("file", "File"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut page = Page(String::new());
        page.text("a<b>&&\"x'<");
        assert_eq!(page.0, "a&lt;b&gt;&amp;&amp;&quot;x&#39;&lt;");
    }
}
