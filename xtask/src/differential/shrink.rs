//! Minimises a failing case: removes requests, lines of the Caddyfile and fields of the request, as long as an
//! unexplained difference of the same class remains.

use super::document::Document;
use super::request::Request;

/// A Caddyfile with its requests, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DifferentialCase {
    pub(crate) document: Document,
    pub(crate) requests: Vec<Request>,
}

/// Largest number of attempts; each loads a Caddyfile into both servers.
const ATTEMPTS_MAX: usize = 300;
/// Lines that stay. Without them a server would lose the ports or files under comparison.
const KEPT_LINES: [&str; 4] = ["admin ", "persist_config", "auto_https", "root "];

/// Shrinks `case`. `fails` runs a case and returns whether its last request, or its Caddyfile if it has no request,
/// still differs.
pub(crate) fn shrink(mut case: DifferentialCase, mut fails: impl FnMut(&DifferentialCase) -> bool) -> DifferentialCase {
    let mut attempts = 0;
    let mut attempt = |candidate: DifferentialCase, best: &mut DifferentialCase| -> bool {
        attempts += 1;
        let smaller = attempts <= ATTEMPTS_MAX && fails(&candidate);
        if smaller {
            *best = candidate;
        }
        smaller
    };
    // The requests before the last one rarely contribute.
    if case.requests.len() > 1 {
        let last = case.requests[case.requests.len() - 1..].to_vec();
        if !attempt(DifferentialCase { requests: last, ..case.clone() }, &mut case) {
            let mut at = case.requests.len() - 1;
            while at > 0 {
                at -= 1;
                let mut candidate = case.clone();
                candidate.requests.remove(at);
                attempt(candidate, &mut case);
            }
        }
    }
    loop {
        let before = case.clone();
        // Start at the end, so that a line is removed before those that it refers to.
        let mut at = case.document.len();
        while at > 0 {
            at -= 1;
            if is_kept(&case.document, at) {
                continue;
            }
            let without = DifferentialCase { document: case.document.without(at), ..case.clone() };
            if attempt(without, &mut case) {
                continue;
            }
            if let Some(document) = case.document.unwrapped(at) {
                attempt(DifferentialCase { document, ..case.clone() }, &mut case);
            }
        }
        let Some(last) = case.requests.len().checked_sub(1) else { return case };
        let mut at = case.requests[last].fields.len();
        while at > 0 {
            at -= 1;
            let mut candidate = case.clone();
            let line = candidate.requests[last].fields.remove(at).to_ascii_lowercase();
            // Without its framing field, content would be parsed as the next request.
            if line.starts_with("content-length") || line.starts_with("transfer-encoding") {
                candidate.requests[last].content.clear();
            }
            attempt(candidate, &mut case);
        }
        if let Some((path, _)) = case.requests[last].target.clone().split_once('?') {
            let mut candidate = case.clone();
            path.clone_into(&mut candidate.requests[last].target);
            attempt(candidate, &mut case);
        }
        if case == before {
            return case;
        }
    }
}

fn is_kept(document: &Document, at: usize) -> bool {
    let gone = document.without(at).to_string();
    KEPT_LINES
        .iter()
        .any(|kept| count(&document.to_string(), kept) != count(&gone, kept) && !is_block(document, at, kept))
}

/// A site may be removed with its root; the lines of the options may not.
fn is_block(document: &Document, at: usize, kept: &str) -> bool {
    kept == "root " && document.unwrapped(at).is_some()
}

fn count(text: &str, start: &str) -> usize {
    text.lines().filter(|line| line.trim_start().starts_with(start)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::document::ConfigLine;

    #[test]
    fn only_what_makes_the_difference_stays() {
        let options = ConfigLine::block("", vec![ConfigLine::new("admin localhost:1"), ConfigLine::new("debug")]);
        let handle = ConfigLine::block("handle", vec![ConfigLine::new("header X 1"), ConfigLine::new("respond a")]);
        let sites = vec![
            ConfigLine::block(":1", vec![ConfigLine::new("root * /x"), handle, ConfigLine::new("abort")]),
            ConfigLine::block(":2", vec![ConfigLine::new("root * /x"), ConfigLine::new("abort")]),
        ];
        let document = Document([vec![options], sites].concat());
        let mut request = Request::get(0, "a");
        request.fields.push("X-A: 1".to_owned());
        "/a?b".clone_into(&mut request.target);
        let case = DifferentialCase { document, requests: vec![Request::get(0, "b"), request] };
        let small =
            shrink(case, |case| [":1 {", "respond a"].iter().all(|words| case.document.to_string().contains(words)));
        assert_eq!(small.document.to_string(), "{\n\tadmin localhost:1\n}\n:1 {\n\troot * /x\n\trespond a\n}\n");
        assert_eq!(small.requests.len(), 1);
        assert_eq!((&*small.requests[0].target, small.requests[0].fields.len()), ("/a", 0));
    }
}
