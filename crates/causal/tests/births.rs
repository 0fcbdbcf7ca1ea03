//! Threads that begin and end during a recorded window, one after another with the same account.

use causal::policy::Recorder;
use causal::trace::{Event, Thread, Trace};
use progress::sync::mpsc::channel;
use progress::{Attention, install, set_attention, thread};

static RECORDER: Recorder = Recorder::new();

#[test]
fn a_thread_has_no_kind_before_its_begin_and_after_its_end() {
    assert!(install(&RECORDER).is_ok(), "the first policy of the process");
    set_attention(Attention::Everything);
    RECORDER.open_recorded();
    let (sender, receiver) = channel();
    let live = |name: &str| {
        let sender = sender.clone();
        let work = move || {
            sender.send(()).expect("the receiver is open");
            progress::current().map(progress::Account::number)
        };
        thread::Builder::new().name(name.into()).spawn(work).expect("a thread").join().expect("it ends well")
    };
    let numbers = [live("first"), live("second")];
    RECORDER.close();
    set_attention(Attention::Nothing);
    drop(receiver);

    assert_eq!(numbers[0], numbers[1], "the second one has the account of the first");
    let mut trace = Trace::default();
    RECORDER.take(0.0, &mut trace);
    // Into a trace that holds the data of another window.
    let left =
        Thread { number: 99, is_worker: true, runnable: 0.5, kind: 7, events: vec![(1, Event::BlockBegan); 9999] };
    let mut again = Trace { time: 1..2, hook: 3.0, wake_up: 4.0, threads: vec![left; 9] };
    RECORDER.take(0.0, &mut again);
    assert_eq!(again, trace);
    let account = trace.threads.iter().find(|thread| Some(thread.number) == numbers[0]).expect("it was recorded");
    let mut kinds = Vec::new();
    let mut messages = Vec::new();
    let mut blocks = Vec::new();
    for &(_, event) in &account.events {
        match event {
            Event::Kind(kind) => kinds.push(kind),
            Event::Sent { message } => messages.push(message),
            Event::BlockBegan | Event::BlockEnded => blocks.push(event),
            _ => {}
        }
    }
    assert_eq!(blocks, [Event::BlockEnded, Event::BlockBegan, Event::BlockEnded, Event::BlockBegan]);
    assert!(messages.len() >= 2, "{:?}", account.events);
    assert!(messages.iter().all(|one| messages.iter().filter(|other| *other == one).count() == 1), "{messages:?}");
    assert!(kinds.len() >= 2 && kinds[0] != kinds[kinds.len() - 1], "each has its own kind of work: {kinds:?}");
    assert!(account.events.is_sorted_by_key(|&(at, _)| at));
}
