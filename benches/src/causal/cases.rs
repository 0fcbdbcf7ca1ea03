//! The cases: a program, its load, the planted cost that the knob reduces, and the measured quantities.

use std::time::Duration;

/// A case, or a variant of one.
pub struct CausalCase {
    /// The number in the list of thirteen, followed by a letter for variants.
    pub name: &'static str,
    /// A one-line title.
    pub title: &'static str,
    /// The program for `causal_case` to run.
    pub program: Program,
    /// The planted cost that the knob reduces, by its name in the program.
    pub knob: &'static str,
    /// The profiler's name for the target.
    pub target: &'static str,
    /// The quantities to predict and measure.
    pub looks_at: &'static [Quantity],
    /// The program's name for Coz; `None` when Coz does not run this case.
    pub coz: Option<&'static str>,
}

/// A predicted and measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// Time per unit: the gain is S = 1 − p(v)/p(0).
    Throughput,
    /// Mean time from a request to its response; the gain is computed likewise.
    Latency,
}

/// A program with its load.
pub enum Program {
    /// Threads that generate their own load, on both cores.
    Alone(&'static str),
    /// Our engine on core 0 with `routes`, the load on core 1.
    Serve {
        /// The ROUTES argument of `causal_case serve`.
        routes: &'static str,
        /// The load generator's settings.
        load: ClientLoad,
    },
    /// The article's server on core 0, the load on core 1.
    Writers {
        /// The load generator's settings.
        load: ClientLoad,
    },
}

/// A load: its connections, paths and timing.
#[derive(Clone, Copy)]
pub struct ClientLoad {
    /// Number of connections.
    pub connections: usize,
    /// Paths with their relative frequencies.
    pub paths: &'static [(&'static str, u32)],
    /// The timing of requests.
    pub drive: Drive,
    /// The delay of the upstream in the client's process, if there is one.
    pub upstream: Option<Duration>,
}

/// The timing of requests.
#[derive(Clone, Copy, Debug)]
pub enum Drive {
    /// Closed loop: each connection sends its next request after a response and this delay, which models the network's
    /// round trip.
    Closed(Duration),
    /// Open loop: this number of requests per second at random times, independent of responses.
    Open(f64),
}

const ROOT: &[(&str, u32)] = &[("/", 1)];

const fn closed(connections: usize, way: Duration) -> ClientLoad {
    ClientLoad { connections, paths: ROOT, drive: Drive::Closed(way), upstream: None }
}

const BOTH: &[Quantity] = &[Quantity::Throughput, Quantity::Latency];
const THROUGHPUT: &[Quantity] = &[Quantity::Throughput];

/// The cost of a request in the first cases: 60 µs that the knob reduces and 40 µs that it does not, plus the server's
/// own.
const HOT: &str = "/=60+40";
/// A client's delay before its next request in cases with few connections.
const THINK: Duration = Duration::from_micros(150);

/// All cases except 9 and 10, which are not about the gain of one target.
pub const CASES: &[CausalCase] = &[
    CausalCase {
        name: "1",
        title: "a hot function, 32 connections: saturated",
        program: Program::Serve { routes: HOT, load: closed(32, Duration::ZERO) },
        knob: "hot_function",
        target: "planted::hot_function",
        looks_at: THROUGHPUT,
        coz: Some("served"),
    },
    CausalCase {
        name: "1s",
        title: "1 with a span as the target",
        program: Program::Serve { routes: "/=60+40:span", load: closed(32, Duration::ZERO) },
        knob: "hot_function",
        target: "hot part",
        looks_at: THROUGHPUT,
        coz: None,
    },
    CausalCase {
        name: "1f",
        title: "1 in requests of a few microseconds",
        program: Program::Serve { routes: "/=3+4", load: closed(32, Duration::ZERO) },
        knob: "hot_function",
        target: "planted::hot_function",
        looks_at: THROUGHPUT,
        coz: None,
    },
    CausalCase {
        name: "2a",
        title: "a hot function, 2 connections",
        program: Program::Serve { routes: HOT, load: closed(2, THINK) },
        knob: "hot_function",
        target: "planted::hot_function",
        looks_at: THROUGHPUT,
        coz: Some("served"),
    },
    CausalCase {
        name: "2b",
        title: "a hot function, 4 connections",
        program: Program::Serve { routes: HOT, load: closed(4, THINK) },
        knob: "hot_function",
        target: "planted::hot_function",
        looks_at: THROUGHPUT,
        coz: Some("served"),
    },
    CausalCase {
        name: "3",
        title: "open loop, 2500 requests a second",
        program: Program::Serve {
            routes: "/=120+80",
            load: ClientLoad { connections: 64, paths: ROOT, drive: Drive::Open(2500.0), upstream: None },
        },
        knob: "hot_function",
        target: "planted::hot_function",
        looks_at: BOTH,
        coz: Some("served"),
    },
    CausalCase {
        name: "4a",
        title: "inside a contended lock",
        program: Program::Alone("lock"),
        knob: "inside_lock",
        target: "planted::inside_lock",
        looks_at: THROUGHPUT,
        coz: Some("lock"),
    },
    CausalCase {
        name: "4b",
        title: "outside the contended lock",
        program: Program::Alone("lock"),
        knob: "outside_lock",
        target: "planted::outside_lock",
        looks_at: THROUGHPUT,
        coz: Some("lock"),
    },
    CausalCase {
        name: "5a",
        title: "a pipeline's slow stage",
        program: Program::Alone("pipeline"),
        knob: "second_stage",
        target: "planted::second_stage",
        looks_at: THROUGHPUT,
        coz: Some("pipeline"),
    },
    CausalCase {
        name: "5b",
        title: "a pipeline's fast stage",
        program: Program::Alone("pipeline"),
        knob: "first_stage",
        target: "planted::first_stage",
        looks_at: THROUGHPUT,
        coz: Some("pipeline"),
    },
    CausalCase {
        name: "6",
        title: "a background burner",
        program: Program::Alone("burner"),
        knob: "burner",
        target: "planted::burner",
        looks_at: THROUGHPUT,
        coz: Some("burner"),
    },
    CausalCase {
        name: "7",
        title: "a fresh writer for each frame",
        program: Program::Writers { load: closed(1, Duration::ZERO) },
        knob: "start_up",
        target: "planted::start_up",
        looks_at: BOTH,
        coz: None,
    },
    CausalCase {
        name: "8a",
        title: "before a barrier, after a sleep",
        program: Program::Alone("barrier"),
        knob: "late_side",
        target: "planted::late_side",
        looks_at: THROUGHPUT,
        coz: Some("barrier"),
    },
    CausalCase {
        name: "8b",
        title: "before a barrier, during the sleep",
        program: Program::Alone("barrier"),
        knob: "early_side",
        target: "planted::early_side",
        looks_at: THROUGHPUT,
        coz: Some("barrier"),
    },
    CausalCase {
        name: "11",
        title: "an upstream",
        program: Program::Serve {
            routes: "/upstream=0+100",
            load: ClientLoad {
                connections: 8,
                paths: &[("/upstream", 1)],
                drive: Drive::Closed(Duration::ZERO),
                upstream: Some(Duration::from_millis(2)),
            },
        },
        knob: "upstream",
        target: "upstream 127.0.0.1",
        looks_at: THROUGHPUT,
        coz: None,
    },
    CausalCase {
        name: "12",
        title: "one route among others",
        program: Program::Serve {
            routes: "/a=150+0,/b=80+0,/c=40+0",
            load: ClientLoad {
                connections: 16,
                paths: &[("/a", 2), ("/b", 3), ("/c", 5)],
                drive: Drive::Closed(Duration::ZERO),
                upstream: None,
            },
        },
        knob: "/a",
        target: "route /a",
        looks_at: THROUGHPUT,
        coz: None,
    },
    CausalCase {
        name: "13a",
        title: "7 with a round trip of 1 ms",
        program: Program::Writers { load: closed(1, Duration::from_millis(1)) },
        knob: "start_up",
        target: "planted::start_up",
        looks_at: THROUGHPUT,
        coz: None,
    },
    CausalCase {
        name: "13b",
        title: "7 with a round trip of 20 ms",
        program: Program::Writers { load: closed(1, Duration::from_millis(20)) },
        knob: "start_up",
        target: "planted::start_up",
        looks_at: THROUGHPUT,
        coz: None,
    },
];

/// Speed-ups of the target in percent.
pub const SPEEDUPS: [u32; 3] = [25, 50, 100];
