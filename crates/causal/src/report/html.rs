//! A report as a page: one self-contained file, to be stored, sent and opened anywhere.
//!
//! The sentences, the rank table and the notes are in its markup. A script draws them again together with the curves,
//! from the report as JSON, which is part of the page: both have the same data. Names are untrusted text. They are
//! escaped in markup and in JSON, and the script puts them into text nodes. As a second line of defence the page's
//! policy allows only its own script.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use super::terminal::interval;
use super::words::percent;
use super::{Report, TargetReport, at};

/// Parts of the page.
const STYLE: &str = include_str!("html/style.css");
const DRAW: &str = include_str!("html/draw.js");
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect width='32' height='32' rx='8' fill='%230a6b60'/%3E%3Cpath d='M6 24C12 24 13 9 26 8' fill='none' stroke='%23fff' stroke-width='3' stroke-linecap='round'/%3E%3C/svg%3E";

/// A page that draws reports as they arrive.
#[derive(Clone, Copy, Debug)]
pub struct LivePage<'a> {
    /// The page's title.
    pub title: &'a str,
    /// Markup above the report: the form's fields and buttons.
    pub controls: &'a str,
    /// JavaScript appended to the page's own: it passes each report to `causal.draw(report)`.
    pub script: &'a str,
}

impl Report {
    /// The report as a self-contained page, without stacks.
    #[must_use]
    pub fn to_html(&self) -> String {
        let title = if self.program.is_empty() { "Causal profile" } else { &self.program };
        page(Some(self), title, "", "", "'none'")
    }
}

impl LivePage<'_> {
    /// The page; it may connect to its own origin.
    #[must_use]
    pub fn page(&self) -> String {
        page(None, self.title, self.controls, self.script, "'self'")
    }
}

fn page(report: Option<&Report>, title: &str, controls: &str, script: &str, connect: &str) -> String {
    // The policy allows one script and one style by nonce, no other resource, and connections only to `connect`.
    let nonce = nonce();
    let mut page = Page(String::with_capacity(STYLE.len() + DRAW.len() + (64 << 10)));
    page.put("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
    page.print(format_args!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'nonce-{nonce}'; script-src \
         'nonce-{nonce}'; img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'\">"
    ));
    page.put("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">");
    page.put(
        "<meta name=\"color-scheme\" content=\"light dark\"><meta name=\"referrer\" content=\"same-origin\"><title>",
    );
    page.text(title);
    page.print(format_args!(
        " · causal profile</title><link rel=\"icon\" href=\"{ICON}\"><style nonce=\"{nonce}\">{STYLE}</style></head><body><div \
         class=\"page\">"
    ));
    page.print(format_args!("{TOP}{controls}"));
    page.words(report);
    page.rank(report);
    page.put(CURVES);
    page.notes(report);
    page.put(MEASURED);
    if let Some(report) = report {
        page.put("<noscript><section><h2>Measurements</h2><pre>");
        page.text(&report.facts());
        page.put("</pre></section></noscript>");
    }
    page.put(HOW);
    page.put("</div><script type=\"application/json\" id=\"report\">");
    // Stacks are the largest part of a report, and the page does not draw them.
    let json = report.map_or("null".to_owned(), |report| report.without_stacks().to_json());
    // No sequence that ends the element or begins a comment in it.
    page.put(&json.replace('<', "\\u003c"));
    page.print(format_args!("</script><script nonce=\"{nonce}\">{DRAW}{script}</script></body></html>\n"));
    page.0
}

/// A random nonce for the page's own script and style; a name in a report cannot contain it.
fn nonce() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

/// A part of the page.
const TOP: &str = "<div class=\"top\"><p id=\"about\"></p><button class=\"theme\" id=\"theme\" type=\"button\" aria-label=\"Light or \
dark\" title=\"Light or dark\"><svg viewBox=\"0 0 20 20\" aria-hidden=\"true\"><circle cx=\"10\" cy=\"10\" r=\"7\" fill=\"none\" \
stroke=\"currentColor\" stroke-width=\"1.6\"/><path d=\"M10 3a7 7 0 0 1 0 14z\" fill=\"currentColor\"/></svg></button></div>";

/// A part of the page.
const HEADS: &str = "<thead><tr><th data-sort=\"name\"><button type=\"button\">Target</button></th><th class=\"n\" \
data-sort=\"gain20\"><button type=\"button\">20 % faster</button></th><th class=\"n\" data-sort=\"gain50\"><button type=\"button\">50 % \
faster</button></th><th class=\"bars\"><span><i></i><em>causal</em><i></i>ordinary</span></th><th class=\"n\" data-sort=\"share\"><button \
type=\"button\">Ordinary share</button></th><th class=\"n\" data-sort=\"samples\"><button type=\"button\">Samples</button></th><th \
class=\"n\" data-sort=\"mode\"><button type=\"button\">Found by</button></th></tr></thead>";

/// A part of the page.
const CURVES: &str = "<section id=\"curves\" hidden><div class=\"head\"><h2>The gain by the target's speed-up</h2></div><div \
class=\"panels\" id=\"panels\"></div><ul class=\"legend\"><li><svg viewBox=\"0 0 28 12\"><path class=\"band\" d=\"M0 12V8L28 0V8z\"/><path \
class=\"curve\" d=\"M1 10L27 4\"/></svg>gain, with its 95 % interval</li><li><svg viewBox=\"0 0 28 12\"><path class=\"expected\" d=\"M0 \
10L28 3\"/></svg>the gain that an ordinary profile predicts</li><li><svg viewBox=\"0 0 28 12\"><path \
class=\"whisker\" d=\"M14 \
0V12\"/><path class=\"confirmed\" d=\"M14 1.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z\"/></svg>found by pauses</li></ul></section>";

/// A part of the page.
const MEASURED: &str = "<section id=\"servers\" hidden><div class=\"head\"><h2>By server</h2></div><div class=\"card\"><table \
id=\"parts\"><thead></thead><tbody></tbody></table></div></section><section id=\"measured\" hidden><div \
class=\"head\"><h2>Measurements</h2></div><div class=\"two\"><div class=\"card\"><h3>Progress</h3><table \
id=\"progress\"><tbody></tbody></table></div><div \
class=\"card\"><h3>Load and cost</h3><table id=\"cost\"><tbody></tbody></table></div></div></section>";

/// A part of the page.
const HOW: &str = "<section class=\"how\"><h2>How to read this</h2><p>A gain is the part of the time per unit of progress that would be \
saved if the target took that much less time: half the time per unit is twice the rate. It may be negative, and the \
interval contains the true value in 95 of 100 profiles.</p><p>The ordinary share is the target's part of all samples. Where \
the share is large and the gain is zero, the target is off the critical path; where the gain is larger than the share, \
other threads wait for it.</p><p><i>Found by</i> is the source of the curve. <i>Screened</i>: the recorded windows were \
replayed with the target faster. <i>Confirmed</i>: everything else was paused while the target ran. Where pauses were tried \
and the replay's curve is shown, diamonds mark the gains found by pauses.</p></section>";

struct Page(String);

impl Page {
    fn put(&mut self, markup: &str) {
        self.0.push_str(markup);
    }

    fn print(&mut self, markup: std::fmt::Arguments<'_>) {
        self.0.write_fmt(markup).expect("a string takes every write");
    }

    /// Text, or the value of a quoted attribute.
    fn text(&mut self, text: &str) {
        for char in text.chars() {
            match char {
                '&' => self.put("&amp;"),
                '<' => self.put("&lt;"),
                '>' => self.put("&gt;"),
                '"' => self.put("&quot;"),
                '\'' => self.put("&#39;"),
                char => self.0.push(char),
            }
        }
    }

    /// A sentence whose names are in backticks.
    fn sentence(&mut self, text: &str) {
        // A number and its unit stay on one line.
        let text = text.replace(" %", "\u{a0}%").replace("± ", "±\u{a0}");
        for (at, part) in text.split('`').enumerate() {
            // Odd parts are between backticks.
            let is_name = at % 2 == 1;
            self.put(if is_name { "<code>" } else { "" });
            self.text(part);
            self.put(if is_name { "</code>" } else { "" });
        }
    }

    fn words(&mut self, report: Option<&Report>) {
        let words = report.map_or(vec!["No measurements yet.".to_owned()], Report::words);
        self.put("<h1 id=\"headline\">");
        self.sentence(&words[0]);
        self.put("</h1><ul class=\"words\" id=\"words\">");
        for word in &words[1..] {
            self.put("<li>");
            self.sentence(word);
            self.put("</li>");
        }
        self.put("</ul><dl class=\"facts\" id=\"facts\"></dl>");
    }

    fn rank(&mut self, report: Option<&Report>) {
        let shown = report.map(|report| report.shown().collect::<Vec<_>>()).unwrap_or_default();
        let hidden = |is_hidden: bool| if is_hidden { " hidden" } else { "" };
        self.put(
            "<section><div class=\"head\"><h2>Targets by gain</h2><label class=\"measure\" hidden>Curves of <select ",
        );
        self.print(format_args!(
            "id=\"measure\"></select></label></div><div class=\"card\"><p class=\"none\" id=\"nothing\"{}>No target yet.</p>",
            hidden(!shown.is_empty()),
        ));
        self.print(format_args!("<table class=\"rank\" id=\"rank\"{}>{HEADS}<tbody>", hidden(shown.is_empty())));
        for target in shown {
            self.row(report.expect("a target is of a report"), target);
        }
        self.put("</tbody></table></div>");
        self.folded(report);
        self.put("</section>");
    }

    /// The folded targets, with their reasons.
    fn folded(&mut self, report: Option<&Report>) {
        let folded: Vec<_> = report.map(|report| report.subsumed().collect()).unwrap_or_default();
        let hidden = if folded.is_empty() { " hidden" } else { "" };
        self.print(format_args!(
            "<details id=\"folded\"{hidden}><summary>Left out: frames around the work, and duplicates of other \
             targets</summary><ul \
             class=\"card reasons\" id=\"folds\">"
        ));
        for (target, folded) in folded {
            self.put("<li><span><code>");
            self.text(&target.name);
            self.print(format_args!("</code>: {}", folded.why.text()));
            if !folded.into.is_empty() {
                self.put(", <code>");
                self.text(&folded.into);
                self.put("</code>");
            }
            self.put("</span></li>");
        }
        self.put("</ul></details>");
    }

    fn row(&mut self, report: &Report, target: &TargetReport) {
        self.put("<tr><td class=\"name\"><code>");
        self.text(&target.name);
        self.print(format_args!("</code><span class=\"kind\">{}</span></td>", target.kind.word()));
        let (_, curve) = report.counted(target);
        for speedup in [0.2, 0.5] {
            let gain = at(curve, speedup).map_or("–".to_owned(), interval);
            self.print(format_args!("<td class=\"n\" data-head=\"{} faster\">{gain}</td>", percent(speedup)));
        }
        self.print(format_args!(
            "<td class=\"bars\"></td><td class=\"n\" data-head=\"Ordinary share\">{}</td><td class=\"n\" \
             data-head=\"Samples\">{}</td><td class=\"n\" data-head=\"Found by\">{}</td></tr>",
            percent(target.share),
            target.samples,
            target.mode.word(),
        ));
    }

    fn notes(&mut self, report: Option<&Report>) {
        let reasons = report.map_or(&[][..], |report| &report.reasons);
        let hidden = if reasons.is_empty() { " hidden" } else { "" };
        self.print(format_args!(
            "<section id=\"notes\"{hidden}><div class=\"head\"><h2>Missing or uncertain results</h2></div><ul \
             class=\"card reasons\" id=\"reasons\">"
        ));
        for reason in reasons {
            self.put("<li><span>");
            if !reason.target.is_empty() {
                self.put("<code>");
                self.text(&reason.target);
                self.put("</code>: ");
            }
            self.text(&reason.text);
            self.put("</span></li>");
        }
        self.put("</ul></section>");
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::report;
    use super::*;
    use crate::target::{FoldReason, Folded};

    /// The JSON that the page carries.
    fn carried(page: &str) -> &str {
        let begin = "<script type=\"application/json\" id=\"report\">";
        let from = page.find(begin).unwrap() + begin.len();
        &page[from..from + page[from..].find("</script>").unwrap()]
    }

    #[test]
    fn the_page_contains_its_report() {
        let page = report().to_html();
        assert_eq!(Report::from_json(carried(&page)).unwrap(), report().finite().without_stacks());
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script>").count(), 2);
    }

    #[test]
    fn the_table_needs_no_script() {
        let page = report().to_html();
        let rows = page.matches("<tr><td class=\"name\">").count();
        assert_eq!(rows, report().targets.len());
        let row = "<code>tls write</code><span class=\"kind\">span</span></td><td class=\"n\" data-head=\"20 % faster\">+6.4 ± 0.8 \
                   %</td><td class=\"n\" data-head=\"50 % faster\">+16 ± 0.8 %</td>";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("<h1 id=\"headline\">Making <code>tls write</code> 20\u{a0}% faster would let"));
    }

    #[test]
    fn folded_targets_have_their_own_section() {
        let mut report = report();
        report.targets[0].folded = Some(Folded { why: FoldReason::Caller, into: "a<b>".into() });
        let page = report.to_html();
        assert_eq!(page.matches("<tr><td class=\"name\">").count(), report.targets.len() - 1);
        assert!(page.contains("<details id=\"folded\"><summary>"), "it is shown");
        assert!(page.contains(
            "<code>tls write</code>: spends its time in one function that it calls, <code>a&lt;b&gt;</code>"
        ));
        assert!(super::super::sample::report().to_html().contains("<details id=\"folded\" hidden>"));
    }

    #[test]
    fn names_are_text() {
        let mut report = report();
        for hostile in
            ["</script><script>alert(1)</script>", "<!--<script>", "\"><img src=x onerror=alert(1)>", "`<b>`", "&lt;"]
        {
            report.targets[0].name = hostile.into();
            report.reasons[0].target = hostile.into();
            report.reasons[0].text = hostile.into();
            report.program = hostile.into();
            report.progress[0].name = hostile.into();
            let page = report.to_html();
            assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2), "{hostile}");
            for markup in ["<img", "<b>", "<!--", "onerror=\""] {
                assert!(!page.contains(markup), "{hostile}: {markup}");
            }
            assert_eq!(Report::from_json(carried(&page)).unwrap().targets[0].name, hostile);
        }
    }

    /// The page is opened from files and from mail, where no further resource can be loaded.
    #[test]
    fn the_page_loads_no_other_resource() {
        let page = report().to_html();
        let elsewhere: Vec<_> = page.match_indices("http").map(|(at, _)| &page[at..page.len().min(at + 32)]).collect();
        let known = ["http://www.w3.org/2000/svg", "http-equiv="];
        assert!(elsewhere.iter().all(|place| known.iter().any(|known| place.starts_with(known))), "{elsewhere:?}");
        for word in ["eval(", "innerHTML", "new Function", " style=\"", " onclick"] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn a_live_page() {
        let page = LivePage { title: "Live", controls: "<p>controls</p>", script: "causal.draw;" }.page();
        assert!(page.contains("<p>controls</p>") && page.contains("causal.draw;</script>"));
        assert_eq!(carried(&page), "null");
        assert!(page.contains("connect-src 'self'") && report().to_html().contains("connect-src 'none'"));
    }

    #[test]
    fn an_empty_report() {
        let page = Report::default().to_html();
        assert!(page.contains("No target was sampled yet, so there is no result."));
    }
}
