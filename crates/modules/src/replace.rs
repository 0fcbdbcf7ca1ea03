//! Search and replace in byte strings, by plain text or by regular expression. `regexp` has the expressions that only
//! match, and those that fill placeholders.
//!
//! Request processing does not allocate here, with one exception: [`TemplatedReplacer`] compiles its expression again
//! whenever its placeholders expand to a new source.

use std::cell::RefCell;

use causeway_go_regexp::{ReplacementPiece, as_characters, group_number, replacement_pieces};
use causeway_message::StatusCode;
use causeway_pipeline::{Build, BuildError, Context, Fault, Reason, StateId, Template};
use regex::bytes::CaptureLocations;

use crate::regexp::CompiledRegex;

/// Bytes of a replacement's result. A replacement stops as soon as its result is longer: the caller refuses it by
/// [`check_len`], or uses that part of it (`map`, logs). Without a bound a request of 30 KB could become one of 200 MB,
/// since another value of the request could replace each of its letters.
const REPLACED_BYTES_MAX: usize = 1024 * 1024;

/// Checks the length of results of replacements.
///
/// # Errors
/// They are longer than [`REPLACED_BYTES_MAX`]: 500.
pub(crate) fn check_len(bytes: usize) -> Result<(), Fault> {
    if bytes <= REPLACED_BYTES_MAX {
        return Ok(());
    }
    let message = format!("the result of a replacement is longer than {REPLACED_BYTES_MAX} bytes");
    Err(Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason: Reason::Text(message.into()) })
}

/// A regular expression, compiled at load. Each worker has its own copy, so no scratch memory is shared.
pub(crate) struct Replacer(StateId<WorkerReplacer>);

/// A regular expression whose source contains placeholders. Each worker keeps the last compiled expression and compiles
/// again only when the expanded source differs.
pub(crate) struct TemplatedReplacer {
    source: Template,
    /// The operator's own text, if it is an expression, for requests in which no placeholder has a value: a count such
    /// as `{1,255}` or a class such as `\p{L}` also looks like a placeholder. It has the bounds of the operator, since
    /// the request has no part in it.
    written: Option<(String, Replacer)>,
    /// `None` before a worker's first use.
    last: StateId<RefCell<Option<Last>>>,
}

struct Last {
    source: Vec<u8>,
    /// `None` if the source is not a valid expression, or one that is too large.
    search: Option<WorkerReplacer>,
}

impl Last {
    fn compile(source: &[u8]) -> Self {
        let text = std::str::from_utf8(source).ok();
        let expression = text.and_then(|text| CompiledRegex::read_at_request(text).ok());
        Self { source: source.into(), search: expression.map(WorkerReplacer::new) }
    }
}

/// One worker's copy of an expression and its scratch memory.
pub(crate) struct WorkerReplacer {
    expression: CompiledRegex,
    scratch: RefCell<Scratch>,
}

struct Scratch {
    groups: CaptureLocations,
    /// The searched text with U+FFFD for each invalid byte; used only when the original is not valid UTF-8.
    repaired: Vec<u8>,
}

/// One position, as an offset into the searched (repaired) text and into the original text.
#[derive(Clone, Copy, Default)]
struct TextPosition {
    searched: usize,
    text: usize,
}

impl TextPosition {
    /// Returns the position at offset `searched`, which must not be less than `self.searched`. O(1) if the text was not
    /// repaired, else linear in the distance.
    fn ahead(self, text: &[u8], is_repaired: bool, searched: usize) -> Self {
        if !is_repaired {
            return Self { searched, text: searched };
        }
        let mut place = self;
        while place.searched < searched {
            let rest = &text[place.text..];
            let len = char_len(rest);
            // `char_len` is 1 both for ASCII and for an invalid byte; only the latter grew during the repair.
            let is_char = len > 1 || rest.first().is_none_or(u8::is_ascii);
            place =
                Self { searched: place.searched + if is_char { len } else { REPAIR_BYTES }, text: place.text + len };
        }
        place
    }
}

/// Length of U+FFFD in UTF-8, which replaces each byte that is not part of a valid character.
const REPAIR_BYTES: usize = '\u{fffd}'.len_utf8();

impl Replacer {
    /// Compiles a regular expression in Go's syntax.
    ///
    /// # Errors
    /// If `source` is not a valid regular expression.
    pub(crate) fn build(source: &str, build: &mut Build<'_>) -> Result<Self, BuildError> {
        Ok(Self::new(CompiledRegex::build(source, build)?, build))
    }

    fn new(expression: CompiledRegex, build: &mut Build<'_>) -> Self {
        Self(build.allocate_state(move |_| WorkerReplacer::new(expression.clone())))
    }

    /// Appends `text` to `out` with every match replaced by `with`, in which `$1` and `${name}` expand to capture
    /// groups. Returns false, and appends no bytes, if there is no match.
    pub(crate) fn replace(&self, cx: &Context, text: &[u8], with: &[u8], out: &mut Vec<u8>) -> bool {
        cx.generation().state(self.0).replace(text, with, out)
    }

    /// Appends `with`, expanded for the first match in `text`. Returns false if there is no match.
    pub(crate) fn expand(&self, cx: &Context, text: &[u8], with: &[u8], out: &mut Vec<u8>) -> bool {
        cx.generation().state(self.0).expand(text, with, out)
    }
}

impl TemplatedReplacer {
    pub(crate) fn build(source: Template, build: &mut Build<'_>) -> Self {
        let text = source.text_of_unknown();
        let replacer = CompiledRegex::read(&text).ok().map(|expression| Replacer::new(expression, build));
        let written = replacer.map(|replacer| (text, replacer));
        Self { source, written, last: build.allocate_state(|_| RefCell::default()) }
    }

    /// Like [`Replacer::replace`]. As in Caddy, an expanded source that is not a valid expression matches no text.
    /// DEVIATES Caddy: neither does one with values of the request that is beyond the bounds of
    /// [`CompiledRegex::read_at_request`].
    pub(crate) fn replace(&self, cx: &mut Context, text: &[u8], with: &[u8], out: &mut Vec<u8>) -> bool {
        cx.with_rendered(&self.source, |cx, source| {
            if let Some((_, replacer)) = self.written.as_ref().filter(|(written, _)| written.as_bytes() == source) {
                return replacer.replace(cx, text, with, out);
            }
            let mut last = cx.generation().state(self.last).borrow_mut();
            // Compiling is expensive and allocates; most requests expand to the previous source.
            if last.as_ref().is_none_or(|last| last.source != source) {
                *last = Some(Last::compile(source));
            }
            let search = last.as_ref().and_then(|last| last.search.as_ref());
            search.is_some_and(|search| search.replace(text, with, out))
        })
    }
}

impl WorkerReplacer {
    pub(crate) fn new(expression: CompiledRegex) -> Self {
        let groups = expression.regex.capture_locations();
        Self { expression, scratch: RefCell::new(Scratch { groups, repaired: Vec::new() }) }
    }

    fn expand(&self, text: &[u8], with: &[u8], out: &mut Vec<u8>) -> bool {
        let Scratch { groups, repaired } = &mut *self.scratch.borrow_mut();
        let searched = as_characters(text, repaired);
        let Some(found) = self.expression.regex.captures_read(groups, searched) else { return false };
        let is_repaired = searched.len() != text.len();
        let start = TextPosition::default().ahead(text, is_repaired, found.start());
        self.put(groups, |at| start.ahead(text, is_repaired, at).text, text, with, out);
        true
    }

    // Go, regexp.ReplaceAll: an empty match directly after the previous match is ignored.
    pub(crate) fn replace(&self, text: &[u8], with: &[u8], out: &mut Vec<u8>) -> bool {
        let Scratch { groups, repaired } = &mut *self.scratch.borrow_mut();
        let searched = as_characters(text, repaired);
        let is_repaired = searched.len() != text.len();
        let (mut at, mut copied, mut found) = (0, TextPosition::default(), None);
        let end = out.len() + REPLACED_BYTES_MAX;
        while at <= searched.len() && out.len() <= end {
            let Some(next) = self.expression.regex.captures_read_at(groups, searched, at) else { break };
            if !next.is_empty() || found != Some(next.start()) {
                let start = copied.ahead(text, is_repaired, next.start());
                out.extend_from_slice(&text[copied.text..start.text]);
                self.put(groups, |at| start.ahead(text, is_repaired, at).text, text, with, out);
                // `copied` tracks both offsets, so the repaired text is scanned once over the whole loop.
                copied = start.ahead(text, is_repaired, next.end());
                found = Some(next.end());
            }
            // An empty match must still advance, by a whole character, or the loop would not end.
            at = if next.is_empty() { next.end() + char_len(&searched[next.end()..]) } else { next.end() };
        }
        if found.is_some() {
            out.extend_from_slice(&text[copied.text..]);
        }
        found.is_some()
    }

    // Go, regexp.Expand: an unknown group expands to the empty string.
    fn put(
        &self,
        groups: &CaptureLocations,
        place: impl Fn(usize) -> usize,
        text: &[u8],
        with: &[u8],
        out: &mut Vec<u8>,
    ) {
        let bound = out.len() + REPLACED_BYTES_MAX;
        for piece in replacement_pieces(with) {
            match piece {
                ReplacementPiece::Text(text) => out.extend_from_slice(text),
                ReplacementPiece::Group(name) => {
                    let number = group_number(name, &self.expression.names);
                    if let Some((from, to)) = number.and_then(|number| groups.get(number)) {
                        out.extend_from_slice(&text[place(from)..place(to)]);
                    }
                }
            }
            if out.len() > bound {
                return;
            }
        }
    }
}

/// Length in bytes of the first character. 1 for an invalid byte and for an empty text, so that a search that advances
/// by it passes the end.
pub(crate) fn char_len(text: &[u8]) -> usize {
    let want = match text.first() {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => 1,
    };
    if text.get(..want).is_some_and(|first| std::str::from_utf8(first).is_ok()) { want } else { 1 }
}

/// Appends `text` to `out` with the first `count` occurrences of `search` (all for `None`) replaced by `with`. Returns
/// false, and appends no bytes, if there is no occurrence. An empty `search` occurs before each character and at the
/// end (Go, strings.Replace).
pub(crate) fn plain(text: &[u8], search: &[u8], with: &[u8], count: Option<usize>, out: &mut Vec<u8>) -> bool {
    let (mut copied, mut at, mut left) = (0, 0, count.unwrap_or(usize::MAX));
    let mut found = false;
    let end = out.len() + REPLACED_BYTES_MAX;
    while left > 0 && at <= text.len() && out.len() <= end {
        let Some(next) = memchr::memmem::find(&text[at..], search).map(|next| at + next) else { break };
        found = true;
        out.extend_from_slice(&text[copied..next]);
        out.extend_from_slice(with);
        copied = next + search.len();
        at = if search.is_empty() { next + char_len(&text[next..]) } else { copied };
        left -= 1;
    }
    if found {
        out.extend_from_slice(&text[copied..]);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    // Go, regexp: ReplaceAllString and Expand.
    #[test]
    fn replacing_by_expression() {
        for (source, text, with, want) in [
            ("a*", "baac", "x", Some("xbxcx")),
            ("a", "banana", "[$0]", Some("b[a]n[a]n[a]")),
            ("x", "banana", "y", None),
            ("(?P<first>.)(.)", "abcd", "$2${first}", Some("badc")),
            ("(?<n>b)", "abc", "$n-$n_$$-${n}x$9${nope}", Some("ab-$-bxc")),
            ("b", "abc", "$ ${ $- ${a-b}", Some("a$ ${ $- ${a-b}c")),
            ("(b)", "abc", "[$1é${1}é]", Some("a[bé]c")),
            ("(b)|(c)", "abc", "<$1$2$01>", Some("a<b><c>")),
            ("", "h\u{e9}", "-", Some("-h-\u{e9}-")),
            ("^", "", "x", Some("x")),
            ("/{2,}", "/a//b///c", "/", Some("/a/b/c")),
        ] {
            let mut out = Vec::new();
            let search = WorkerReplacer::new(CompiledRegex::read(source).expect(source));
            let found = search.replace(text.as_bytes(), with.as_bytes(), &mut out);
            assert_eq!((found, &*String::from_utf8_lossy(&out)), (want.is_some(), want.unwrap_or("")), "{source}");
        }
    }

    // Go, regexp: a byte that is not part of a valid character is matched as one U+FFFD; unmatched bytes and captured
    // bytes are copied unchanged.
    #[test]
    fn bytes_that_are_not_utf8() {
        for (source, text, with, want) in [
            (".", &b"a\xff\xfeb"[..], &b"<$0>"[..], Some(&b"<a><\xff><\xfe><b>"[..])),
            ("^(.*)$", b"\xff\xc3", b"$1-$1", Some(b"\xff\xc3-\xff\xc3")),
            ("b", b"\xe2\x82b\xf0\x9f\x98\x80\xff", b"x", Some(b"\xe2\x82x\xf0\x9f\x98\x80\xff")),
            ("\u{1f600}(.)", b"\xff\xf0\x9f\x98\x80\xff", b"[$1]", Some(b"\xff[\xff]")),
            ("\u{fffd}", b"\xef\xbf\xbd\xff", b"?", Some(b"??")),
            ("", b"\xff\xff", b"-", Some(b"-\xff-\xff-")),
            ("x", b"\xff", b"-", None),
        ] {
            let search = WorkerReplacer::new(CompiledRegex::read(source).expect(source));
            let mut out = Vec::new();
            let found = search.replace(text, with, &mut out).then_some(&*out);
            assert_eq!(found, want, "{source}");
        }
        let search = WorkerReplacer::new(CompiledRegex::read("(b.)(.)").expect("an expression"));
        let mut out = Vec::new();
        assert!(search.expand(b"\xffab\xfe\xfdz", b"$2$1", &mut out));
        assert_eq!(out, b"\xfdb\xfe");
    }

    // Go, strings.Replace.
    #[test]
    fn replacing_plain_text() {
        for (text, search, with, count, want) in [
            ("oink oink", "k", "ky", Some(1), Some("oinky oink")),
            ("oink oink", "oink", "moo", None, Some("moo moo")),
            ("oink", "x", "moo", None, None),
            ("oink", "o", "moo", Some(0), None),
            ("aaa", "aa", "b", None, Some("ba")),
            ("b\u{fc}", "", "-", None, Some("-b-\u{fc}-")),
            ("ab", "", "-", Some(1), Some("-ab")),
            ("", "", "-", None, Some("-")),
        ] {
            let mut out = Vec::new();
            let found = plain(text.as_bytes(), search.as_bytes(), with.as_bytes(), count, &mut out);
            assert_eq!((found, &*String::from_utf8_lossy(&out)), (want.is_some(), want.unwrap_or("")), "{text}");
        }
    }
}
