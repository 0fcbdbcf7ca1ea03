//! Messages with the field `Incremental` (RFC 10036): they are forwarded as they arrive. If the configuration reads
//! their content first, they are refused.

use causeway_message::{FieldMap, FieldValue, Method, NameRef, StatusCode, names};
use causeway_pipeline::{Context, Fault, Reason};
use sfv::{BareItem, Item, KeyRef, List, ListEntry, Parser, StringRef, TokenRef};

use super::ReverseProxyPlan;
use super::switch::Switch;
use super::wire_form::WireForm;

const NAME: NameRef<'_> = NameRef::Other("Incremental");
/// The error type of RFC 10036 §5 in Proxy-Status.
const ERROR_TYPE: &str = "incremental_refused";

/// Returns whether a message requests incremental forwarding. Values of other types than true are ignored.
pub(super) fn is_marked(fields: &FieldMap) -> bool {
    let Some(value) = fields.get(NAME) else { return false };
    // Without allocations for the usual form; a field of several lines begins with its first one.
    if value == b"?1" && fields.get_all(NAME).count() == 1 {
        return true;
    }
    let item = Parser::new(&combined(fields, NAME)).parse::<Item>();
    item.is_ok_and(|item| matches!(item.bare_item, BareItem::Boolean(true)))
}

/// Checks a request before its content is read for `request_buffers`, or because FastCGI needs its length.
///
/// # Errors
/// 501 (RFC 10036 §4.1).
pub(super) fn check_request(cx: &mut Context, plan: &ReverseProxyPlan) -> Result<(), Fault> {
    let needs_length = matches!(plan.wire_form, WireForm::FastCgi(_)) && cx.body_len().is_none();
    if plan.request_buffers.is_none() && !needs_length || !is_marked(cx.head().fields()) {
        return Ok(());
    }
    let has_content = match cx.body_len() {
        Some(bytes) => bytes > 0,
        None => !matches!(
            cx.head().method(),
            Method::Get | Method::Head | Method::Options | Method::Delete | Method::Trace | Method::Connect
        ),
    };
    // Of these, nothing is read first either.
    let is_forwarded_without = plan.drops_body || !matches!(Switch::of(cx, plan), Ok(Switch::None));
    if has_content && !is_forwarded_without { Err(refuse(cx, plan, None)) } else { Ok(()) }
}

/// Returns the fault for a message that cannot be forwarded incrementally, and sets Proxy-Status (RFC 9209) on its
/// response, after the members that the upstream has sent.
pub(super) fn refuse(cx: &mut Context, plan: &ReverseProxyPlan, upstream: Option<&FieldMap>) -> Fault {
    if let Some(name) = &plan.proxy_status_name
        && let Some(value) = proxy_status(name, upstream)
        && let Some(value) = FieldValue::parse(value.as_bytes())
    {
        cx.response_mut().set(names::PROXY_STATUS, value);
    }
    let message =
        "found a message that is to be forwarded incrementally, and a configuration that reads its content first";
    Fault { status: StatusCode::NOT_IMPLEMENTED, reason: Reason::Text(message.into()) }
}

fn proxy_status(name: &str, upstream: Option<&FieldMap>) -> Option<String> {
    let earlier = upstream.map(|fields| combined(fields, NameRef::Known(names::PROXY_STATUS))).unwrap_or_default();
    // RFC 9209 §2: each member is an Item with a String or a Token. A field that violates this is not passed on.
    let is_valid = |entry: &ListEntry| match entry {
        ListEntry::Item(item) => matches!(item.bare_item, BareItem::String(_) | BareItem::Token(_)),
        ListEntry::InnerList(_) => false,
    };
    let list = Parser::new(&earlier).parse::<List>().unwrap_or_default();
    let mut list = if list.iter().all(is_valid) { list } else { List::default() };
    let bare = match TokenRef::from_str(name) {
        Ok(token) => BareItem::Token(token.to_owned()),
        // A name with a space, for example.
        Err(_) => BareItem::String(StringRef::from_str(name).ok()?.to_owned()),
    };
    let mut item = Item::new(bare);
    let error = TokenRef::from_str(ERROR_TYPE).ok()?.to_owned();
    item.params.insert(KeyRef::from_str("error").ok()?.to_owned(), BareItem::Token(error));
    list.push(item.into());
    sfv::FieldType::serialize(&list)
}

/// Returns the value of all lines of a field (RFC 9110 §5.3).
fn combined(fields: &FieldMap, name: NameRef<'_>) -> Vec<u8> {
    fields.get_all(name).collect::<Vec<_>>().join(&b", "[..])
}
