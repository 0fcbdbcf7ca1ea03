//! What a thread was in when a window opened is known to the window.

use causal::kinds::{Step, kinds};
use causal::policy::{Recorder, Rule};
use causal::trace::{Event, Trace};
use progress::{Attention, Span, attend, install};

static RECORDER: Recorder = Recorder::new();

/// A kind's spans, the outermost first.
fn spans(kind: u32) -> Vec<u32> {
    let (kinds, mut at, mut spans) = (kinds(), kind, Vec::new());
    while at != 0 {
        if let Step::Span(span) = kinds[at as usize].step {
            spans.insert(0, span);
        }
        at = kinds[at as usize].parent;
    }
    spans
}

/// The kinds that a window saw of this thread, by their spans.
fn window(work: impl FnOnce()) -> Vec<Vec<u32>> {
    RECORDER.open(Rule::Record);
    attend(Attention::Everything);
    work();
    RECORDER.close();
    attend(Attention::Spans);
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

/// Whether the first that a window hears is a span's begin or its end.
#[test]
fn what_began_before_a_window_is_known_in_it() {
    assert!(install(&RECORDER).is_ok(), "the first policy of the process");
    attend(Attention::Spans);
    let [a, b, c] = ["a", "b", "c"].map(Span::named);
    let [one, two, three] = [a, b, c].map(Span::id);
    let outer = a.enter();
    let inner = b.enter();
    let ends_first = window(|| drop(inner));
    assert_eq!(ends_first, [vec![one, two], vec![one]]);
    // Then again, with what the window before it left behind.
    let inner = b.enter();
    let begins_first = window(|| drop(c.enter()));
    assert_eq!(begins_first, [vec![one, two], vec![one, two, three], vec![one, two]]);
    let out_of_order = window(|| drop(outer));
    // The one that is still open is entered anew.
    assert_eq!(out_of_order, [vec![one, two], vec![], vec![two]]);
    drop(inner);
    assert_eq!(window(|| drop(a.enter())), [vec![], vec![one], vec![]]);
}
