//! Converts field names between the pipeline and `http`.

use std::sync::LazyLock;

use causeway_message::{KnownName, NameRef};
use http::HeaderName;
use http::header::InvalidHeaderName;

/// The registered names by number, created once. Most are a number inside; the rest refer to static text.
static NAMES: LazyLock<Box<[HeaderName]>> =
    LazyLock::new(|| KnownName::all().map(|name| HeaderName::from_static(name.lower())).collect());

/// Returns all registered names, by [`KnownName::index`].
pub(crate) fn registered() -> &'static [HeaderName] {
    &NAMES
}

/// Converts a name to the pipeline's. Cannot fail: a `HeaderName` is always a token.
#[inline]
pub(crate) fn name(name: &HeaderName) -> NameRef<'_> {
    let spelled = name.as_str();
    KnownName::parse(spelled.as_bytes()).map_or(NameRef::Other(spelled), NameRef::Known)
}

/// Converts a name from the pipeline's; `registered` are [the registered names](registered).
#[inline]
pub(crate) fn to_http(name: NameRef<'_>, registered: &[HeaderName]) -> Result<HeaderName, InvalidHeaderName> {
    match name {
        NameRef::Known(known) => Ok(registered[known.index()].clone()),
        NameRef::Other(spelled) => HeaderName::from_bytes(spelled.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_registered_name_round_trips() {
        assert_eq!(registered().len(), KnownName::COUNT);
        for known in KnownName::all() {
            let there = &registered()[known.index()];
            assert_eq!(there.as_str(), known.lower());
            assert_eq!(name(there), NameRef::Known(known));
        }
        assert_eq!(name(&HeaderName::from_static("x-unheard-of")), NameRef::Other("x-unheard-of"));
    }
}
