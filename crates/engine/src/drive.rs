//! The life of a connection, in either role: one task, one future.
//!
//! ```text
//!            ┌──────────────────────────────── a turn ───────────────────────────────┐
//!  wakeup ──►│ resume woken exchanges ─► bytes to events ─► produce ─► write ─► read │──► deadline, sleep
//!            └───────────────────────────────────────────────────────────────────────┘
//! ```
//! The two roles are two types whose turns differ; each holds the same parts:
//!
//! - `line`: the transport, the input and output buffers, the timer
//! - `sending`: the content of a response or of an upload, and its share of the output
//! - `wake`: the waker of an exchange
//! - `server`: a connection that a client opened; `client`: a connection to an upstream
//!
//! Both are generic over [`Transport`](crate::transport::Transport) and drive a protocol machine
//! ([`machine`](crate::machine)). An idle connection holds no block and no write list.

mod client;
mod line;
mod sending;
mod server;
mod wake;

use std::future::Future;
use std::pin::pin;
use std::task::Context as PollContext;

use crate::blocks::BlockSize;
use crate::machine::Machine;
pub(crate) use client::ClientConnection;
pub(crate) use server::{Exchange, ProfilerState, ServerConnection};
pub(crate) use wake::ExchangeSlot;

/// Rounds of handling, writing and reading in one turn. Then the connection yields to the others of its worker.
const ROUNDS_MAX: usize = 4;
/// Bytes of output that a connection may hold before it produces no more content.
const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// With streams side by side, a piece of content below this length is copied out of its block while it waits for a
/// reader. Windows bound the waiting bytes but not the blocks that hold them, so small pieces could each pin a whole
/// block.
const COPIED_BELOW: u64 = 8 * 1024;

/// Returns the maximum size of the blocks that a connection is read into. Where streams share it, windows bound their
/// waiting bytes but not the blocks that hold these, so a block must not be longer than a head needs.
fn block_size_max(machine: &impl Machine) -> BlockSize {
    if machine.is_multiplexed() { BlockSize::Normal } else { BlockSize::Long }
}

/// Yields to the worker's other tasks until the reactor was polled. A plain wakeup would put the task back in the run
/// queue at once, and while that queue is never empty the runtime polls the reactor only every few dozen turns, so
/// every other connection waits.
fn yield_turn(poll_cx: &mut PollContext<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(poll_cx);
}
