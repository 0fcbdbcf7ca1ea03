use super::*;
use crate::target::Weights;

#[test]
fn runtime_functions_are_recognised_by_name() {
    for (name, want) in [
        ("tokio::runtime::context::runtime::enter_runtime::{closure}", true),
        ("<tokio::net::tcp::stream::TcpStream as Transport>::poll_write", true),
        ("tokio_util::codec::framed::poll", true),
        ("tokio", true),
        ("tokiomancy::spells::cast", false),
        ("futures_util::future::future::map::Map<Fut, F>::poll", true),
        ("mio::net::tcp::stream::TcpStream::try_io::{closure}", true),
        ("rayon_core::registry::WorkerThread::wait_until_cold", true),
        ("async_executor::Executor::run::{closure}", true),
        ("std::thread::Builder::spawn_unchecked_::{closure}", true),
        ("std::rt::lang_start::{closure}", true),
        ("std::panicking::catch_unwind", true),
        ("std::panic::catch_unwind", true),
        ("<std::panic::AssertUnwindSafe<F> as FnOnce>::call_once", true),
        ("std::sys::backtrace::__rust_begin_short_backtrace", true),
        ("core::ops::function::FnOnce::call_once", true),
        ("core::ops::function::FnOnce::call_once{{vtable.shim}}", true),
        ("<alloc::boxed::Box<F, A> as FnOnce>::call_once", true),
        ("<F as FnOnce>::call_once", true),
        ("<F as Future>::poll", true),
        ("<app::Server as Future>::poll", false),
        ("__libc_start_main", true),
        ("__libc_start_call_main", true),
        ("__rust_try", true),
        ("_start", true),
        ("main", true),
        ("start_thread", true),
        ("clone3", true),
        ("[unknown]", true),
        ("[libc.so.6]", true),
        ("[T]::sort_by", false),
        ("app::main", false),
        ("app::main::{closure}", false),
        ("std::collections::hash::map::HashMap<K, V, S>::insert", false),
        ("core::fmt::write", false),
        ("serde_json::to_string", false),
        ("__memmove_avx_unaligned_erms", false),
        ("", false),
    ] {
        assert_eq!(is_runtime(name), want, "{name}");
    }
}

/// A target, and its counts: all samples; those in which it is the innermost of the program's own code; those that
/// ended in it; those with own code further in.
struct FoldCase {
    name: &'static str,
    kind: TargetKind,
    origin: Origin,
    samples: [u64; 4],
    is_whole: bool,
    next: Option<(&'static str, u64, u64)>,
}

const OWN: FoldCase = FoldCase {
    name: "",
    kind: TargetKind::Function,
    origin: Origin::Program,
    samples: [0; 4],
    is_whole: false,
    next: None,
};

/// Checks by which rule each row of 1000 samples is folded, and into which target.
#[track_caller]
fn check(why: &str, rows: &[FoldCase], wanted: &str, want: &[Option<(FoldReason, &str)>]) {
    let items: Vec<CodeItem> = rows
        .iter()
        .map(|row| {
            let [all, own, ends, inner] = row.samples;
            let key = match row.kind {
                TargetKind::Line => CodeItemKey::Line(0),
                TargetKind::Path => CodeItemKey::Path(0, 0),
                _ => CodeItemKey::Function(0),
            };
            let (origin, is_own) = (row.origin, row.origin == Origin::Program);
            CodeItem {
                key,
                kinds: Vec::new(),
                all,
                set: 0,
                depth: 0,
                origin,
                inlined: 0,
                is_own,
                own,
                ends,
                inner,
                next: None,
            }
        })
        .collect();
    let mut targets: Vec<Target> = rows
        .iter()
        .map(|row| Target {
            name: row.name.into(),
            kind: row.kind,
            share: row.samples[0] as f64 / 1000.0,
            samples: row.samples[0],
            weights: Weights::default(),
            folded: None,
        })
        .collect();
    let seen: Vec<_> = rows
        .iter()
        .zip(&items)
        .map(|(row, item)| match row.kind {
            TargetKind::Span => Err(row.is_whole),
            TargetKind::Upstream => Ok(None),
            _ => {
                let callee = row.name.rsplit(" > ").next().unwrap_or_default();
                Ok(Some(TargetSamples { item, callee, is_whole: row.is_whole, next: row.next }))
            }
        })
        .collect();
    fold(&mut targets, &seen, |target| target.name == wanted);
    let got: Vec<_> = targets.iter().map(|it| it.folded.as_ref().map(|it| (it.why, it.into.as_str()))).collect();
    assert_eq!(got, want, "{why}");
}

#[test]
fn wrapper_frames_are_folded_and_the_work_is_not() {
    use FoldReason::{Callee, Caller, Runtime, Whole, Wrapper};
    use TargetKind::{Inlined, Line, Path, Span, Upstream};
    let rust = FoldCase { origin: Origin::Rust, ..OWN };
    let package = FoldCase { origin: Origin::Package, ..OWN };
    let two_parts = || {
        [
            FoldCase { name: "app::parse", samples: [400, 400, 300, 0], ..OWN },
            FoldCase { name: "app::render", samples: [500, 500, 500, 0], ..OWN },
        ]
    };
    let with_parts = |first: FoldCase| {
        let [parse, render] = two_parts();
        [first, parse, render]
    };
    check(
        "a runtime's wrapper",
        &with_parts(FoldCase { name: "tokio::runtime::enter", samples: [990, 0, 0, 950], is_whole: true, ..package }),
        "",
        &[Some((Wrapper, "")), None, None],
    );
    let package = FoldCase { origin: Origin::Package, ..OWN };
    check(
        "a runtime's own work",
        &with_parts(FoldCase { name: "tokio::runtime::park", samples: [60, 0, 0, 0], ..package }),
        "",
        &[Some((Runtime, "")), None, None],
    );
    let package = FoldCase { origin: Origin::Package, ..OWN };
    check(
        "a framework that is no runtime, around handlers",
        &with_parts(FoldCase { name: "axum::routing::call", samples: [300, 0, 0, 200], ..package }),
        "",
        &[Some((Wrapper, "")), None, None],
    );
    let package = FoldCase { origin: Origin::Package, ..OWN };
    check(
        "a library that works is an answer",
        &with_parts(FoldCase { name: "serde_json::to_string", samples: [300, 0, 0, 20], ..package }),
        "",
        &[None, None, None],
    );
    check(
        "std that works is one, std that calls is none",
        &[
            FoldCase { name: "[T]::sort", samples: [300, 0, 0, 50], ..rust },
            FoldCase {
                name: "core::ops::function::FnOnce::call_once",
                kind: Inlined,
                samples: [20; 4],
                origin: Origin::Rust,
                ..OWN
            },
            FoldCase {
                name: "app::a > std::panicking::catch_unwind",
                kind: Path,
                samples: [20, 0, 0, 0],
                origin: Origin::Rust,
                ..OWN
            },
        ],
        "",
        &[None, Some((Wrapper, "")), Some((Runtime, ""))],
    );
    check(
        "the function that contains everything",
        &with_parts(FoldCase { name: "app::serve", samples: [950, 20, 20, 930], is_whole: true, ..OWN }),
        "",
        &[Some((Whole, "")), None, None],
    );
    check(
        "unless it was asked for",
        &with_parts(FoldCase { name: "app::serve", samples: [950, 20, 20, 930], is_whole: true, ..OWN }),
        "app::serve",
        &[None, None, None],
    );
    check(
        "a hot loop is everything, and the answer",
        &[FoldCase { name: "app::hot", samples: [970, 970, 900, 0], is_whole: true, ..OWN }],
        "",
        &[None],
    );
    check(
        "one function that calls the system in two lines",
        &[
            FoldCase { name: "app::copy", samples: [970, 970, 100, 0], is_whole: true, ..OWN },
            FoldCase { name: "src/main.rs:7", kind: Line, samples: [600, 600, 0, 0], ..OWN },
        ],
        "",
        &[Some((Whole, "")), None],
    );
    check(
        "callers of one function, and one that has more to do",
        &[
            FoldCase { name: "app::main", samples: [510, 5, 5, 505], next: Some(("app::outer", 505, 510)), ..OWN },
            FoldCase { name: "app::outer", samples: [505, 5, 5, 500], next: Some(("app::render", 500, 505)), ..OWN },
            FoldCase { name: "app::render", samples: [500, 500, 500, 0], ..OWN },
            FoldCase {
                name: "app::mixed",
                samples: [700, 200, 200, 500],
                next: Some(("app::render", 500, 700)),
                ..OWN
            },
            FoldCase {
                name: "src/a.rs:3",
                kind: Line,
                samples: [500, 0, 0, 500],
                next: Some(("app::render", 500, 500)),
                ..OWN
            },
        ],
        "",
        &[Some((Caller, "app::render")), Some((Caller, "app::render")), None, None, Some((Caller, "app::render"))],
    );
    check(
        "a callee that is no target cannot be folded into",
        &[FoldCase { name: "app::outer", samples: [505, 5, 5, 500], next: Some(("app::gone", 500, 505)), ..OWN }],
        "",
        &[None],
    );
    check(
        "two that call each other",
        &[
            FoldCase { name: "app::even", samples: [500, 250, 250, 250], next: Some(("app::odd", 490, 500)), ..OWN },
            FoldCase { name: "app::odd", samples: [495, 250, 250, 250], next: Some(("app::even", 490, 495)), ..OWN },
        ],
        "",
        &[None, Some((Caller, "app::even"))],
    );
    let package = FoldCase { origin: Origin::Package, ..OWN };
    check(
        "a library's function that is its caller's time",
        &[
            FoldCase { name: "app::encode", samples: [300, 300, 10, 0], ..OWN },
            FoldCase {
                name: "serde_json::to_vec",
                samples: [295, 0, 0, 0],
                next: Some(("app::encode", 290, 300)),
                ..package
            },
        ],
        "",
        &[None, Some((Callee, "app::encode"))],
    );
    check(
        "spans: around everything with something inside, alone, and a part",
        &[
            FoldCase { name: "request", kind: Span, samples: [980, 0, 0, 0], is_whole: true, ..OWN },
            FoldCase { name: "route /", kind: Span, samples: [300, 0, 0, 0], ..OWN },
            FoldCase { name: "upstream a:1", kind: Upstream, ..OWN },
        ],
        "",
        &[Some((Whole, "")), None, None],
    );
    check(
        "a span with nothing inside",
        &[FoldCase { name: "work", kind: Span, samples: [980, 0, 0, 0], is_whole: true, ..OWN }],
        "",
        &[None],
    );
    check(
        "a library's line",
        &[FoldCase {
            name: "tokio/src/io/driver.rs:199",
            kind: Line,
            samples: [30, 0, 0, 0],
            origin: Origin::Package,
            ..OWN
        }],
        "",
        &[Some((Runtime, ""))],
    );
}
