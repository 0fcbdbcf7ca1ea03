//! The time limits on transfers that handlers set.

use super::Context;
use crate::listen::TransferLimit;

/// The time limits that handlers set in place of the listener's.
#[derive(Default)]
pub(super) struct TransferState {
    body: Option<TransferLimit>,
    write: Option<TransferLimit>,
}

impl TransferState {
    pub(super) fn reset(&mut self) {
        let Self { body, write } = self;
        *body = None;
        *write = None;
    }
}

impl Context {
    /// Sets the limits on the transfer of the request's body and of the response, in place of those of the listener or
    /// of an earlier handler. `None` keeps a limit.
    pub fn limit_transfers(&mut self, body: Option<TransferLimit>, write: Option<TransferLimit>) {
        let TransferState { body: old_body, write: old_write } = &mut self.0.transfers;
        *old_body = body.or(*old_body);
        *old_write = write.or(*old_write);
    }

    /// Returns the limit on the transfer of the request's body that a handler has set.
    pub fn body_transfer_limit(&self) -> Option<TransferLimit> {
        self.0.transfers.body
    }

    /// Returns the limit on the transfer of the response that a handler has set.
    pub fn write_transfer_limit(&self) -> Option<TransferLimit> {
        self.0.transfers.write
    }
}
