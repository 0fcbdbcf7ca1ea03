//! The response to a request from a stored response: whole, in part, or 304.

use causeway_message::syntax::trim_ows;
use causeway_message::{FieldMap, Method, StatusCode, names};
use causeway_pipeline::{Body, BodyPart, Context, Response};

use super::CacheRules;
use super::status::{self, Handled};
use super::stored::StoredResponse;
use crate::conditional::{self, Precondition};
use crate::partial;
use crate::range::{self, RequestedRanges};

impl CacheRules {
    /// Makes the response. `request` are the fields of the client's request, if the request at hand has others by now.
    /// Does not allocate in steady state, except for several ranges.
    pub(super) fn serve(
        &self,
        cx: &mut Context,
        stored: &StoredResponse,
        request: Option<&FieldMap>,
        handled: Handled,
    ) -> Response {
        let age = stored.freshness.age(cx.worker().now()).as_secs();
        let fields = cx.response_mut().fields_mut();
        stored.fields.apply(fields);
        // RFC 9111 §4: a response from the store has an Age.
        fields.insert_number(names::AGE, age);
        status::append(cx, &self.name, handled);
        // RFC 9110 §13.2.1: conditions apply to 2xx responses; RFC 9110 §14.2: ranges to 200.
        if stored.status != StatusCode::OK {
            return Response { status: stored.status, body: Body::Chunk(stored.body.clone()) };
        }
        let (method, request) = (cx.head().method(), request.unwrap_or(cx.head().fields()));
        match conditional::evaluate(request, method, stored.etag(), stored.modified) {
            Precondition::NotModified => return Response::empty(StatusCode::NOT_MODIFIED),
            // The cache forwards such conditions.
            Precondition::Failed | Precondition::Perform => {}
        }
        let len = stored.body.len() as u64;
        let ranges = match request.get(names::RANGE) {
            Some(value)
                // RFC 9110 §13.1.5: of the dates only Last-Modified is a validator.
                if method == Method::Get
                    && stored.has_ranges
                    && !cx.is_content_read(cx.response().fields().get(names::CONTENT_TYPE).unwrap_or_default())
                    && conditional::range_holds(
                        request,
                        stored.etag(),
                        conditional::date(stored.last_modified()),
                        conditional::date(stored.fields.whole.get(names::DATE)).unwrap_or_default(),
                    ) =>
            {
                range::read(trim_ows(value), len)
            }
            _ => RequestedRanges::Whole,
        };
        match ranges {
            RequestedRanges::Whole => Response { status: StatusCode::OK, body: Body::Chunk(stored.body.clone()) },
            RequestedRanges::Unsatisfiable => partial::unsatisfiable(cx, len),
            RequestedRanges::Parts(ranges) => partial::response(cx, ranges, len, |range| {
                // The content is in memory, so its offsets fit.
                BodyPart::Chunk(stored.body.slice(range.start as usize..range.end as usize))
            }),
        }
    }
}
