//! Host names outside of ASCII, in the form that DNS, certificates and browsers use (IDNA, UTS #46; Punycode, RFC
//! 3492).

use idna::AsciiDenyList;

/// For [`Build::refuse`](crate::Build::refuse), when [`to_ascii`] returns `None`.
pub const EXPECTED: &str = "a host name that IDNA (UTS #46) allows";

/// Converts each label with characters outside of ASCII to lower case and Punycode, and leaves ASCII labels as they
/// are, placeholders and wildcards included. `None` if IDNA does not allow a label.
#[must_use]
pub fn to_ascii(host: &str) -> Option<String> {
    if host.is_ascii() {
        return Some(host.to_owned());
    }
    let label = |label: &str| match label.is_ascii() {
        true => Some(label.to_owned()),
        // No ASCII character is refused here: which ones a name may have depends on its use.
        false => idna::domain_to_ascii_cow(label.as_bytes(), AsciiDenyList::EMPTY).ok().map(Into::into),
    };
    let labels: Option<Vec<String>> = host.split('.').map(label).collect();
    labels.map(|labels| labels.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 3492 §7.1 (B), (L); UTS #46 §4: mapping and validity.
    #[test]
    fn names_as_clients_send_them() {
        for (host, want) in [
            ("他们为什么不说中文", Some("xn--ihqwcrb4cv8a8dqg056pqjye")),
            ("3年b組金八先生", Some("xn--3b-ww4c5e180e575a65lsy2b")),
            ("*.BÜCHER.Example", Some("*.xn--bcher-kva.Example")),
            ("{env.SUB}.ä.test:8080", Some("{env.SUB}.xn--4ca.test:8080")),
            ("straße.test", Some("xn--strae-oqa.test")),
            ("\u{ff41}\u{fc}.test", Some("xn--a-eha.test")),
            ("b_c.test", Some("b_c.test")),
            ("", Some("")),
            ("a\u{fffd}.test", None),
            ("\u{300}a.test", None),
        ] {
            assert_eq!(to_ascii(host).as_deref(), want, "{host}");
        }
    }
}
