//! Requests and header fields in handlers' messages of level debug: as in access records, with credentials redacted.

use std::sync::LazyLock;

use causeway_message::{FieldMap, Head};
use causeway_pipeline::Context;

use super::record::{HeaderTable, Headers, RequestFields};
use crate::logs::json_text;

static HEADERS: LazyLock<HeaderTable> = LazyLock::new(|| HeaderTable::new(false));

/// Returns the object `request` of `head`, which is the client's request or one that was made of it.
#[cold]
pub(crate) fn request_json(cx: &Context, head: &Head) -> String {
    json_text(&RequestFields { cx, head, headers: &HEADERS })
}

/// Returns the object `headers` or `resp_headers`.
#[cold]
pub(crate) fn headers_json(fields: &FieldMap) -> String {
    json_text(&Headers { fields, left_out: &[], table: &HEADERS })
}
