//! The cases: a program, what drives it, which planted cost the knob cuts, and what is looked at.

use std::time::Duration;

/// One case, or one variant of it.
pub struct Case {
    /// Its number in the list of thirteen, and a letter where it has variants.
    pub name: &'static str,
    /// In a line.
    pub title: &'static str,
    /// What `causal_case` runs.
    pub program: Program,
    /// The planted cost that the knob cuts, by the program's name for it.
    pub knob: &'static str,
    /// What the profiler calls it.
    pub target: &'static str,
    /// What is predicted and measured.
    pub looks_at: &'static [Quantity],
    /// Whether the program is one that Coz gets, too.
    pub coz: Option<&'static str>,
}

/// What is predicted and measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// Time per unit: the gain is S = 1 − p(v)/p(0).
    Throughput,
    /// Mean time from a request to its answer, likewise.
    Latency,
}

/// What runs.
pub enum Program {
    /// Threads that are their own load, on both cores.
    Alone(&'static str),
    /// Our engine on core 0 with `ROUTES`, the load on core 1.
    Serve {
        /// As `causal_case serve` takes them.
        routes: &'static str,
        /// Who asks.
        load: Client,
    },
    /// The article's writers on core 0, the load on core 1.
    Writers {
        /// Who asks.
        load: Client,
    },
}

/// Who asks, and when.
#[derive(Clone, Copy)]
pub struct Client {
    /// Connections.
    pub connections: usize,
    /// Paths, and how many of all requests ask for each.
    pub paths: &'static [(&'static str, u32)],
    /// When the next request goes out.
    pub drive: Drive,
    /// How long the upstream beside the client takes to answer, where there is one.
    pub upstream: Option<Duration>,
}

/// When the next request goes out.
#[derive(Clone, Copy, Debug)]
pub enum Drive {
    /// So long after the answer, on each connection: a way there and back.
    Closed(Duration),
    /// So many a second, at random times, whatever is answered.
    Open(f64),
}

const ROOT: &[(&str, u32)] = &[("/", 1)];

const fn closed(connections: usize, way: Duration) -> Client {
    Client { connections, paths: ROOT, drive: Drive::Closed(way), upstream: None }
}

const BOTH: &[Quantity] = &[Quantity::Throughput, Quantity::Latency];
const THROUGHPUT: &[Quantity] = &[Quantity::Throughput];

/// What a request of the first cases costs: 60 µs that the knob cuts and 40 that it does not, and the server's own.
const HOT: &str = "/=60+40";
/// How long a client takes to ask again where connections are few.
const THINK: Duration = Duration::from_micros(150);

/// All cases but 9 and 10, which are not about one target's gain.
pub const CASES: &[Case] = &[
    Case {
        name: "1",
        title: "a hot function, 32 connections: saturated",
        program: Program::Serve { routes: HOT, load: closed(32, Duration::ZERO) },
        knob: "hot_function",
        target: "planted::hot_function",
        looks_at: THROUGHPUT,
        coz: Some("served"),
    },
    Case {
        name: "1s",
        title: "the same, told by a span",
        program: Program::Serve { routes: "/=60+40:span", load: closed(32, Duration::ZERO) },
        knob: "hot_function",
        target: "hot part",
        looks_at: THROUGHPUT,
        coz: None,
    },
    Case {
        name: "1f",
        title: "1 in requests of a few microseconds",
        program: Program::Serve { routes: "/=3+4", load: closed(32, Duration::ZERO) },
        knob: "hot_function",
        target: "planted::hot_function",
        looks_at: THROUGHPUT,
        coz: None,
    },
    Case {
        name: "2a",
        title: "a hot function, 2 connections",
        program: Program::Serve { routes: HOT, load: closed(2, THINK) },
        knob: "hot_function",
        target: "planted::hot_function",
        looks_at: THROUGHPUT,
        coz: Some("served"),
    },
    Case {
        name: "2b",
        title: "a hot function, 4 connections",
        program: Program::Serve { routes: HOT, load: closed(4, THINK) },
        knob: "hot_function",
        target: "planted::hot_function",
        looks_at: THROUGHPUT,
        coz: Some("served"),
    },
    Case {
        name: "3",
        title: "open loop, 2500 requests a second",
        program: Program::Serve {
            routes: "/=120+80",
            load: Client { connections: 64, paths: ROOT, drive: Drive::Open(2500.0), upstream: None },
        },
        knob: "hot_function",
        target: "planted::hot_function",
        looks_at: BOTH,
        coz: Some("served"),
    },
    Case {
        name: "4a",
        title: "inside a contended lock",
        program: Program::Alone("lock"),
        knob: "inside_lock",
        target: "planted::inside_lock",
        looks_at: THROUGHPUT,
        coz: Some("lock"),
    },
    Case {
        name: "4b",
        title: "outside of it",
        program: Program::Alone("lock"),
        knob: "outside_lock",
        target: "planted::outside_lock",
        looks_at: THROUGHPUT,
        coz: Some("lock"),
    },
    Case {
        name: "5a",
        title: "a pipeline's slow stage",
        program: Program::Alone("pipeline"),
        knob: "second_stage",
        target: "planted::second_stage",
        looks_at: THROUGHPUT,
        coz: Some("pipeline"),
    },
    Case {
        name: "5b",
        title: "its fast stage",
        program: Program::Alone("pipeline"),
        knob: "first_stage",
        target: "planted::first_stage",
        looks_at: THROUGHPUT,
        coz: Some("pipeline"),
    },
    Case {
        name: "6",
        title: "a background burner",
        program: Program::Alone("burner"),
        knob: "burner",
        target: "planted::burner",
        looks_at: THROUGHPUT,
        coz: Some("burner"),
    },
    Case {
        name: "7",
        title: "a fresh writer for each frame",
        program: Program::Writers { load: closed(1, Duration::ZERO) },
        knob: "start_up",
        target: "planted::start_up",
        looks_at: BOTH,
        coz: None,
    },
    Case {
        name: "8a",
        title: "before a barrier, after a sleep",
        program: Program::Alone("barrier"),
        knob: "late_side",
        target: "planted::late_side",
        looks_at: THROUGHPUT,
        coz: Some("barrier"),
    },
    Case {
        name: "8b",
        title: "before a barrier, while the other sleeps",
        program: Program::Alone("barrier"),
        knob: "early_side",
        target: "planted::early_side",
        looks_at: THROUGHPUT,
        coz: Some("barrier"),
    },
    Case {
        name: "11",
        title: "an upstream",
        program: Program::Serve {
            routes: "/upstream=0+100",
            load: Client {
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
    Case {
        name: "12",
        title: "one route among others",
        program: Program::Serve {
            routes: "/a=150+0,/b=80+0,/c=40+0",
            load: Client {
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
    Case {
        name: "13a",
        title: "7 with a way of 1 ms",
        program: Program::Writers { load: closed(1, Duration::from_millis(1)) },
        knob: "start_up",
        target: "planted::start_up",
        looks_at: THROUGHPUT,
        coz: None,
    },
    Case {
        name: "13b",
        title: "7 with a way of 20 ms",
        program: Program::Writers { load: closed(1, Duration::from_millis(20)) },
        knob: "start_up",
        target: "planted::start_up",
        looks_at: THROUGHPUT,
        coz: None,
    },
];

/// Percent by which the target is made faster.
pub const SPEEDUPS: [u32; 3] = [25, 50, 100];
