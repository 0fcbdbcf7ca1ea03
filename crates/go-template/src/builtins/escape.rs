//! `html`, `js` and `urlquery`.

use std::fmt::Write;

use crate::budget::{LimitError, Text};
use crate::error::FunctionError;
use crate::format::is_printable;
use crate::functions::CallContext;
use crate::print;
use crate::value::Value;

type Escape = fn(&mut Text<'_>, &[u8]) -> Result<(), LimitError>;

/// Prints the arguments as `print` does, and escapes the text.
pub(super) fn with(call: &mut CallContext<'_>, args: &[Value], escape: Escape) -> Result<Value, FunctionError> {
    let printed = match args {
        [Value::String(text)] => text.to_vec(),
        // As in Go, a nil argument prints `<no value>` here, but `<nil>` with `print`.
        _ if args.iter().any(|arg| matches!(arg, Value::Nil)) => {
            call.charge_memory(size_of_val(args))?;
            let or_text = |arg: &Value| if matches!(arg, Value::Nil) { "<no value>".into() } else { arg.clone() };
            print::print(call.budget(), &args.iter().map(or_text).collect::<Vec<_>>())?
        }
        _ => print::print(call.budget(), args)?,
    };
    let mut text = call.text();
    escape(&mut text, &printed)?;
    Ok(Value::from(text.into_bytes()))
}

/// Escapes for HTML: the characters that end text or a value in quotes.
pub(super) fn html(out: &mut Text<'_>, text: &[u8]) -> Result<(), LimitError> {
    for byte in text {
        match byte {
            b'"' => out.push(b"&#34;")?,
            b'\'' => out.push(b"&#39;")?,
            b'&' => out.push(b"&amp;")?,
            b'<' => out.push(b"&lt;")?,
            b'>' => out.push(b"&gt;")?,
            0 => out.push("\u{fffd}".as_bytes())?,
            _ => out.push(&[*byte])?,
        }
    }
    Ok(())
}

/// Escapes for a string of JavaScript.
pub(super) fn js(out: &mut Text<'_>, text: &[u8]) -> Result<(), LimitError> {
    for chunk in bstr::ByteSlice::utf8_chunks(text) {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push(b"\\\\")?,
                '\'' => out.push(b"\\'")?,
                '"' => out.push(b"\\\"")?,
                '<' | '>' | '&' | '=' => out.push(format!("\\u{:04X}", u32::from(c)).as_bytes())?,
                c if u32::from(c) < 0x20 => out.push(format!("\\u{:04X}", u32::from(c)).as_bytes())?,
                c if c.is_ascii() || is_printable(c) => out.push(c.encode_utf8(&mut [0; 4]).as_bytes())?,
                c => {
                    let mut escaped = String::new();
                    let _ = write!(escaped, "\\u{:04X}", u32::from(c));
                    out.push(escaped.as_bytes())?;
                }
            }
        }
        // Go decodes each of these bytes as U+FFFD, which is printable, and copies the byte.
        out.push(chunk.invalid())?;
    }
    Ok(())
}

/// Escapes for the query of a URL.
pub(super) fn urlquery(out: &mut Text<'_>, text: &[u8]) -> Result<(), LimitError> {
    for byte in text {
        match byte {
            b' ' => out.push(b"+")?,
            b'-' | b'_' | b'.' | b'~' => out.push(&[*byte])?,
            _ if byte.is_ascii_alphanumeric() => out.push(&[*byte])?,
            _ => out.push(format!("%{byte:02X}").as_bytes())?,
        }
    }
    Ok(())
}
