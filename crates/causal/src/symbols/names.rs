//! Readable function names: demangled, without hashes, and with shortened types.

use addr2line::gimli;

/// Bound on generic arguments, in characters; longer ones become `…`.
const TYPES_MAX: usize = 24;

/// Demangles and shortens a name; a name that is not mangled is only shortened.
pub(super) fn readable(mangled: &str) -> String {
    if let Ok(name) = rustc_demangle::try_demangle(mangled) {
        return path(&format!("{name:#}"));
    }
    if let Some(name) = addr2line::demangle(mangled, gimli::DW_LANG_C_plus_plus) {
        return name;
    }
    // C compilers outline parts of a function, and append a suffix after a dot.
    match mangled.split_once('.') {
        Some((name, _)) if !name.is_empty() => name.to_owned(),
        _ if mangled.contains("::") => path(mangled),
        _ => mangled.to_owned(),
    }
}

/// Whether a name contains its function's path; with `debug = "line-tables-only"` an inlined function has a bare name.
pub(super) fn is_whole(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R") || bracketed(name).0.contains("::")
}

/// A bare name, without generic arguments and without a closure's number.
pub(super) fn bare(name: &str) -> &str {
    if name.starts_with("{closure") || name.starts_with("{{closure") { "{closure}" } else { bracketed(name).0 }
}

/// Shortens the path of a function or a type: generic arguments of types are shortened, those of functions are removed.
fn path(whole: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    for part in split(whole, "::") {
        let (name, types) = bracketed(part);
        let short = match types {
            None => name.to_owned(),
            // `<impl Trait for Type>` is the legacy mangling of a method's owner: show the type.
            Some(inner) if name.is_empty() && inner.starts_with("impl ") => {
                out.clear();
                let (of, for_type) =
                    inner["impl ".len()..].rsplit_once(" for ").map_or((None, &inner[5..]), |(of, on)| (Some(of), on));
                match of {
                    Some(of) => format!("<{} as {}>", path(for_type), last(of)),
                    None => path(for_type),
                }
            }
            Some(inner) if name.is_empty() && out.is_empty() => match split(inner, " as ")[..] {
                [of, as_trait] => format!("<{} as {}>", path(of), last(as_trait)),
                _ => path(inner),
            },
            // Generic arguments of a function: all its instances have one name.
            Some(_) if name.is_empty() => continue,
            Some(inner) => format!("{name}<{}>", types_of(inner)),
        };
        out.push(if short.starts_with("{{closure}}") || short.starts_with("{closure#") {
            "{closure}".to_owned()
        } else {
            short
        });
    }
    out.join("::")
}

/// Shortens generic arguments to the last part of each path.
fn types_of(inner: &str) -> String {
    let short = split(inner, ",").into_iter().map(|of| last(of.trim())).collect::<Vec<_>>().join(", ");
    if short.chars().count() <= TYPES_MAX { short } else { "…".to_owned() }
}

/// The last part of a type's path, with its own generic arguments. Types that are no path stay unchanged.
fn last(of: &str) -> String {
    let is_path = of.starts_with(|ch: char| ch.is_alphabetic() || ch == '_')
        && !of.starts_with("dyn ")
        && !of.split('<').next().is_some_and(|name| name.contains('('));
    let of = if is_path { split(of, "::").into_iter().rfind(|part| !part.starts_with('<')).unwrap_or(of) } else { of };
    match bracketed(of) {
        (name, Some(inner)) if !name.is_empty() && is_path => format!("{name}<{}>", types_of(inner)),
        _ => of.to_owned(),
    }
}

/// Splits `Vec<u8>` into `Vec` and `u8`; `None` if the part does not end with brackets.
fn bracketed(part: &str) -> (&str, Option<&str>) {
    match (part.find('<'), part.strip_suffix('>')) {
        (Some(at), Some(inner)) if !inner.ends_with('-') => (&part[..at], Some(&inner[at + 1..])),
        _ => (part, None),
    }
}

/// Splits at each `mark` outside of all brackets.
fn split<'a>(whole: &'a str, mark: &str) -> Vec<&'a str> {
    let (mut parts, mut from, mut depth, mut before) = (Vec::new(), 0, 0_u32, ' ');
    for (at, ch) in whole.char_indices() {
        match ch {
            _ if at < from => {}
            '<' | '(' | '[' | '{' => depth += 1,
            // The `>` of an arrow closes no bracket.
            '>' if before == '-' => {}
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ if depth == 0 && whole[at..].starts_with(mark) => {
                parts.push(&whole[from..at]);
                from = at + mark.len();
            }
            _ => {}
        }
        before = ch;
    }
    parts.push(&whole[from..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_distinctive() {
        let cases = [
            ("_ZN4main4work17h0123456789abcdefE", "main::work"),
            (
                "_ZN4core3ptr42drop_in_place$LT$alloc..string..String$GT$17h0123456789abcdefE",
                "core::ptr::drop_in_place<String>",
            ),
            (
                "_ZN63_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..clone..Clone$GT$5clone17h0123456789abcdefE",
                "<alloc::vec::Vec<T> as Clone>::clone",
            ),
            ("_ZN3app4main28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE", "app::main::{closure}"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_RNCNvCs1234_3app4mains0_0B3_", "app::main::{closure}"),
            ("_RINvCs1234_3app3runmE", "app::run"),
            ("memcpy", "memcpy"),
            ("fread.cold", "fread"),
            ("helper.constprop.0.isra.1", "helper"),
            ("_ZN3foo3barEv", "foo::bar()"),
            ("", ""),
            ("_ZN", "_ZN"),
        ];
        for (mangled, want) in cases {
            assert_eq!(readable(mangled), want, "{mangled}");
        }
        for (name, whole, short) in [
            ("_ZN3foo3barEv", true, "_ZN3foo3barEv"),
            ("app::run<u8>", true, "app::run"),
            ("fold<core::slice::Iter<u8>, u8>", false, "fold"),
            ("{closure#3}", false, "{closure}"),
            ("{closure#0}<app::T>", false, "{closure}"),
        ] {
            assert_eq!((is_whole(name), bare(name)), (whole, short), "{name}");
        }
        let paths = [
            ("tokio::runtime::task::harness::Harness<T,S>::poll", "tokio::runtime::task::harness::Harness<T, S>::poll"),
            (
                "<engine::drive::Connection<A, B> as core::future::future::Future>::poll",
                "<engine::drive::Connection<A, B> as Future>::poll",
            ),
            ("a::B<alloc::vec::Vec<alloc::string::String>, std::collections::HashMap<u8, u8>>::c", "a::B<…>::c"),
            ("<app::Type>::method", "app::Type::method"),
            ("<app::Type<u8>>::method::<core::str::Chars>", "app::Type<u8>::method"),
            ("core::slice::<impl [T]>::sort", "[T]::sort"),
            ("app::x::<impl core::fmt::Debug for app::Y>::fmt", "<app::Y as Debug>::fmt"),
            ("a::call<fn(u8) -> u8>", "a::call<fn(u8) -> u8>"),
            ("<fn(u8) -> u8 as core::ops::FnOnce<(u8,)>>::call_once", "<fn(u8) -> u8 as FnOnce<(u8,)>>::call_once"),
            ("<&mut F as core::ops::function::FnMut>::call_mut", "<&mut F as FnMut>::call_mut"),
            (
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
                "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            ),
            ("a>b<<c", "a>b<<c"),
            ("<", "<"),
            ("::", "::"),
        ];
        for (whole, want) in paths {
            assert_eq!(path(whole), want, "{whole}");
        }
    }
}
