//! A window records the spans that were open on a thread before the window opened.

use causal::kinds::{NodeStep, kinds};
use causal::policy::Recorder;
use causal::trace::{Event, Trace};
use progress::{Attention, Span, install, set_attention};

static RECORDER: Recorder = Recorder::new();

/// The spans of a kind, outermost first.
fn spans(kind: u32) -> Vec<u32> {
    let (kinds, mut at, mut spans) = (kinds(), kind, Vec::new());
    while at != 0 {
        if let NodeStep::Span(span) = kinds[at as usize].step {
            spans.insert(0, span);
        }
        at = kinds[at as usize].parent;
    }
    spans
}

/// Runs `work` in a window, and returns this thread's kinds in it, as spans.
fn window(work: impl FnOnce()) -> Vec<Vec<u32>> {
    RECORDER.open_recorded();
    set_attention(Attention::Everything);
    work();
    RECORDER.close();
    set_attention(Attention::Spans);
    let mut trace = Trace::default();
    RECORDER.take(0.0, &mut trace);
    let events = trace.threads.into_iter().flat_map(|thread| thread.events);
    events
        .filter_map(|(_, event)| match event {
            Event::Kind(kind) => Some(spans(kind)),
            _ => None,
        })
        .collect()
}

/// Whether the first event in a window is the begin of a span or the end of one.
#[test]
fn spans_opened_before_a_window_count_in_it() {
    assert!(install(&RECORDER).is_ok(), "the first policy of the process");
    set_attention(Attention::Spans);
    let [a, b, c] = ["a", "b", "c"].map(Span::intern);
    let [one, two, three] = [a, b, c].map(Span::id);
    let outer = a.enter();
    let inner = b.enter();
    let ends_first = window(|| drop(inner));
    assert_eq!(ends_first, [vec![one, two], vec![one]]);
    // Once more, with the state that the previous window left.
    let inner = b.enter();
    let begins_first = window(|| drop(c.enter()));
    assert_eq!(begins_first, [vec![one, two], vec![one, two, three], vec![one, two]]);
    let out_of_order = window(|| drop(outer));
    // The span that is still open is entered again.
    assert_eq!(out_of_order, [vec![one, two], vec![], vec![two]]);
    drop(inner);
    assert_eq!(window(|| drop(a.enter())), [vec![], vec![one], vec![]]);
}
