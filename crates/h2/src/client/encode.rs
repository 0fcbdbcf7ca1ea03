//! Encoding of a request's head as a frame (RFC 9113 §8.3.1).

use causeway_message::{Framing, Head, Method, NameRef, TargetForm, WriteList, names, syntax::write_number};

use super::Scheme;
use crate::encode::{EndStream, HeadersFrame};
use crate::head::is_connection_specific;
use crate::hpack::{Encoder, Pseudo};
use crate::settings::PeerSettings;

/// Writes the head. Returns `None`, with no byte written, if the head is incomplete, has a name that is no token, or
/// does not fit the framing.
pub(super) fn request_head(
    id: u32,
    head: &Head,
    scheme: Scheme,
    framing: Framing,
    peer: &PeerSettings,
    encoder: &mut Encoder,
    out: &mut WriteList,
) -> Option<()> {
    let (method, target) = (head.method(), head.target());
    let is_connect = method == Method::Connect;
    let is_plain_connect = is_connect && target.form() == TargetForm::Authority;
    if target.as_str().is_empty() || target.form() == TargetForm::Authority && !is_connect {
        return None;
    }
    // RFC 9113 §8.6: there is no Upgrade, so exactly CONNECT makes a tunnel.
    if is_connect != (framing == Framing::Tunnel) {
        return None;
    }
    // RFC 9113 §8.3.1, §8.5: http and https URIs have an authority, and so has CONNECT.
    let authority = head.sendable_authority()?;
    // RFC 9113 §8.2.1, §8.3: a name that begins with a colon would be read as a pseudo-field.
    if !head.names_are_tokens() {
        return None;
    }
    let protocol = if is_connect && !is_plain_connect {
        // RFC 8441 §3: only if the server has announced it.
        Some(head.fields().get(names::UPGRADE).filter(|_| peer.extended_connect)?)
    } else {
        None
    };
    let frame = HeadersFrame::begin(id, out);
    encoder.pseudo(Pseudo::Method, method.as_str().as_bytes(), out);
    if !is_plain_connect {
        encoder.pseudo(Pseudo::Scheme, if scheme == Scheme::Http { b"http" } else { b"https" }, out);
    }
    let host_is_sensitive = head.fields().is_sensitive(names::HOST);
    put_pseudo(Pseudo::Authority, authority.as_bytes(), host_is_sensitive, encoder, out);
    let mut put_path = |path: &[u8]| put_pseudo(Pseudo::Path, path, head.target_is_sensitive(), encoder, out);
    match target.form() {
        TargetForm::Authority => {}
        TargetForm::Origin | TargetForm::Asterisk => put_path(target.as_str().as_bytes()),
        TargetForm::Absolute => put_path(&path_and_query(head)),
    }
    if let Some(protocol) = protocol {
        encoder.pseudo(Pseudo::Protocol, protocol, out);
    }
    put_fields(head, encoder, out);
    let mut digits = [0; 20];
    match framing {
        Framing::Sized(bytes) => encoder.field(names::CONTENT_LENGTH, write_number(bytes, &mut digits), out),
        // RFC 9110 §8.6: a method that usually has content declares that there is none.
        Framing::Empty if matches!(method, Method::Post | Method::Put | Method::Patch) => {
            encoder.field(names::CONTENT_LENGTH, b"0", out);
        }
        Framing::Empty | Framing::Stream | Framing::Tunnel => {}
    }
    let ends = matches!(framing, Framing::Empty | Framing::Sized(0));
    frame.end(if ends { EndStream::Stream } else { EndStream::Open }, peer.frame_max, out);
    Some(())
}

fn put_pseudo(name: Pseudo, value: &[u8], is_sensitive: bool, encoder: &mut Encoder, out: &mut WriteList) {
    if is_sensitive {
        encoder.pseudo_never_indexed(name, value, out);
    } else {
        encoder.pseudo(name, value, out);
    }
}

fn put_fields(head: &Head, encoder: &mut Encoder, out: &mut WriteList) {
    let fields = head.fields();
    for line in fields.lines() {
        if let NameRef::Known(known) = line.name {
            // RFC 9113 §8.2.2: the only allowed value of TE is `trailers`.
            if known == names::TE {
                if line.value.eq_ignore_ascii_case(b"trailers") {
                    encoder.line(line, out);
                }
                continue;
            }
            if known == names::HOST || known == names::CONTENT_LENGTH || is_connection_specific(known) {
                continue;
            }
        }
        encoder.line(line, out);
    }
}

// The path and query of an absolute target.
#[cold]
fn path_and_query(head: &Head) -> Vec<u8> {
    let target = head.target();
    let mut path = target.path().as_bytes().to_vec();
    if let Some(query) = target.query() {
        path.push(b'?');
        path.extend_from_slice(query.as_bytes());
    }
    path
}
