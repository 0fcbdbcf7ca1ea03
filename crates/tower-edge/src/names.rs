//! Field names of one vocabulary as those of the other.

use std::sync::LazyLock;

use causeway_message::{KnownName, NameRef};
use http::HeaderName;

/// The registered names by their number, made once: most are a word inside, the others point at text of the program.
static NAMES: LazyLock<Box<[HeaderName]>> =
    LazyLock::new(|| KnownName::all().map(|name| HeaderName::from_static(name.lower())).collect());

/// All registered names by [`KnownName::index`].
pub(crate) fn registered() -> &'static [HeaderName] {
    &NAMES
}

/// As the pipeline knows it. A `HeaderName` is a token, so there is nothing to refuse.
#[inline]
pub(crate) fn name(name: &HeaderName) -> NameRef<'_> {
    let spelled = name.as_str();
    KnownName::parse(spelled.as_bytes()).map_or(NameRef::Other(spelled), NameRef::Known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_registered_name_is_the_same_there_and_back() {
        assert_eq!(registered().len(), KnownName::COUNT);
        for known in KnownName::all() {
            let there = &registered()[known.index()];
            assert_eq!(there.as_str(), known.lower());
            assert_eq!(name(there), NameRef::Known(known));
        }
        assert_eq!(name(&HeaderName::from_static("x-unheard-of")), NameRef::Other("x-unheard-of"));
    }
}
