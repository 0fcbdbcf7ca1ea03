//! The names that a server issues certificates for.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use super::problem::Problem;

/// The longest DNS name (RFC 1035 §2.3.4), and label, in characters.
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// A name in a certificate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Identifier {
    /// In lower case, optionally with `*.` in front.
    Dns(String),
    /// By [`Identifier::ip`].
    Ip(IpAddr),
}

impl Identifier {
    /// Reads an identifier of a request (RFC 8555 §7.1.3, RFC 8738 §3).
    pub(super) fn read(kind: &str, value: &str) -> Result<Self, Problem> {
        match kind {
            "dns" => {
                let name = value.to_ascii_lowercase();
                let base = name.strip_prefix("*.").unwrap_or(&name);
                if base.parse::<IpAddr>().is_ok() {
                    return Err(Problem::rejected(format!("{value}: an address has the type \"ip\"")));
                }
                if is_host(base) {
                    Ok(Self::Dns(name))
                } else {
                    Err(Problem::rejected(format!("{value:?} is not a host name")))
                }
            }
            "ip" => {
                let address = value.parse();
                Ok(Self::ip(address.map_err(|_| Problem::rejected(format!("{value:?} is not an IP address")))?))
            }
            _ => {
                let detail = format!("found an identifier of the type {kind:?}, expected \"dns\" or \"ip\"");
                Err(Problem::new("unsupportedIdentifier", 400, detail))
            }
        }
    }

    /// An address. An IPv4-mapped one of IPv6 (RFC 4291 §2.5.5.2) is the IPv4 address: connections to both reach the
    /// same machine, so rules must not distinguish them.
    pub(super) fn ip(address: IpAddr) -> Self {
        Self::Ip(address.to_canonical())
    }

    /// The identifier's type in JSON.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Dns(_) => "dns",
            Self::Ip(_) => "ip",
        }
    }

    /// The value with the wildcard, as in an order.
    pub(super) fn value(&self) -> String {
        match self {
            Self::Dns(name) => name.clone(),
            Self::Ip(ip) => ip.to_string(),
        }
    }

    /// The value without the wildcard, as in an authorization.
    pub(super) fn base(&self) -> String {
        let value = self.value();
        value.strip_prefix("*.").map(str::to_owned).unwrap_or(value)
    }

    pub(super) fn is_wildcard(&self) -> bool {
        matches!(self, Self::Dns(name) if name.starts_with("*."))
    }
}

fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= NAME_MAX && name.split('.').all(is_label)
}

/// Which names a server issues for. The default allows all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// If it has rules, names without a matching rule are refused.
    pub allow: Rules,
    /// Names with a matching rule are refused, also if they are allowed.
    pub deny: Rules,
    /// Whether rules can allow wildcard names. Without rules, wildcard names are allowed.
    pub wildcards: bool,
}

/// Rules of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// A name, or `*.` and a name for all names with exactly one more label.
    pub domains: Vec<String>,
    /// Ranges of addresses.
    pub ranges: Vec<IpNet>,
}

impl Rules {
    fn is_empty(&self) -> bool {
        self.domains.is_empty() && self.ranges.is_empty()
    }

    fn matches(&self, identifier: &Identifier) -> bool {
        match identifier {
            Identifier::Dns(name) => self.domains.iter().any(|domain| covers(domain, name)),
            Identifier::Ip(ip) => self.ranges.iter().any(|range| canonical(range).contains(ip)),
        }
    }
}

/// A range of IPv4-mapped addresses as one of IPv4 addresses, as Go's `net.IPNet` takes it.
fn canonical(range: &IpNet) -> IpNet {
    match (range.addr(), range.addr().to_canonical(), range.prefix_len()) {
        (IpAddr::V6(_), IpAddr::V4(ip), length @ 96..) => Ipv4Net::new(ip, length - 96).map_or(*range, IpNet::V4),
        _ => *range,
    }
}

impl Policy {
    /// Whether every name is allowed.
    pub fn is_open(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }

    pub(super) fn check(&self, identifier: &Identifier) -> Result<(), Problem> {
        let refused = |why: &str| Err(Problem::rejected(format!("{}: {why}", identifier.value())));
        if self.is_open() {
            return Ok(());
        }
        if identifier.is_wildcard() && !self.wildcards {
            return refused("the policy of this server does not allow wildcard names");
        }
        if self.deny.matches(identifier) || (!self.allow.is_empty() && !self.allow.matches(identifier)) {
            return refused("the policy of this server does not allow this name");
        }
        Ok(())
    }
}

/// Whether a rule covers a name. A wildcard stands for exactly one label, which may itself be `*`.
fn covers(rule: &str, name: &str) -> bool {
    match rule.strip_prefix("*.") {
        Some(parent) => name.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent)),
        None => name.eq_ignore_ascii_case(rule),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(domains: &[&str], ranges: &[&str]) -> Rules {
        Rules {
            domains: domains.iter().map(|domain| (*domain).to_owned()).collect(),
            ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(),
        }
    }

    // Caddy's documentation of `acme_server`: a rule set that allows names of one kind denies all other kinds; one that
    // denies leaves the others allowed. `*.` in a rule stands for one label.
    #[test]
    fn policies() {
        let open = Policy::default();
        let allow = Policy { allow: rules(&["a.test", "*.b.test"], &[]), ..Policy::default() };
        let ranges = Policy { allow: rules(&[], &["10.0.0.0/8", "2001:db8::1/128"]), ..Policy::default() };
        let deny = Policy { deny: rules(&["a.test", "*.b.test"], &["10.0.0.1/32"]), ..Policy::default() };
        let mapped = Policy { deny: rules(&[], &["::ffff:10.0.0.0/120"]), ..Policy::default() };
        let both = Policy { allow: rules(&["*.b.test"], &[]), deny: rules(&["x.b.test"], &[]), wildcards: true };
        for (policy, kind, name, want) in [
            (&open, "dns", "any.test", true),
            (&open, "dns", "*.any.test", true),
            (&allow, "dns", "A.test", true),
            (&allow, "dns", "x.a.test", false),
            (&allow, "dns", "x.b.test", true),
            (&allow, "dns", "b.test", false),
            (&allow, "dns", "x.y.b.test", false),
            (&allow, "dns", "*.b.test", false),
            (&allow, "ip", "10.0.0.1", false),
            (&ranges, "ip", "10.9.9.9", true),
            (&ranges, "ip", "2001:db8::1", true),
            (&ranges, "ip", "2001:db8::2", false),
            (&ranges, "dns", "a.test", false),
            (&deny, "dns", "a.test", false),
            (&deny, "dns", "x.b.test", false),
            (&deny, "dns", "*.b.test", false),
            (&deny, "dns", "c.test", true),
            (&deny, "ip", "10.0.0.1", false),
            (&deny, "ip", "10.0.0.2", true),
            // RFC 4291 §2.5.5.2: an IPv4 address in IPv6's form.
            (&deny, "ip", "::ffff:10.0.0.1", false),
            (&deny, "ip", "::ffff:10.0.0.2", true),
            (&ranges, "ip", "::ffff:10.9.9.9", true),
            (&mapped, "ip", "10.0.0.1", false),
            (&mapped, "ip", "::ffff:10.0.0.1", false),
            (&mapped, "ip", "10.0.1.1", true),
            (&both, "dns", "*.b.test", true),
            (&both, "dns", "x.b.test", false),
        ] {
            let identifier = Identifier::read(kind, name).unwrap();
            assert_eq!(policy.check(&identifier).is_ok(), want, "{name} under {policy:?}");
        }
    }

    #[test]
    fn identifiers() {
        for (kind, value, want) in [
            ("dns", "a.test", None),
            ("dns", "*.a.test", None),
            ("dns", "localhost", None),
            ("ip", "2001:db8::1", None),
            ("dns", "", Some("rejectedIdentifier")),
            ("dns", "a..test", Some("rejectedIdentifier")),
            ("dns", "a.test.", Some("rejectedIdentifier")),
            ("dns", "x.*.test", Some("rejectedIdentifier")),
            ("dns", "a/../b", Some("rejectedIdentifier")),
            ("dns", "10.0.0.1", Some("rejectedIdentifier")),
            ("dns", "-a.test", Some("rejectedIdentifier")),
            ("ip", "10.0.0", Some("rejectedIdentifier")),
            ("email", "a@b.test", Some("unsupportedIdentifier")),
        ] {
            let found = Identifier::read(kind, value);
            assert_eq!(found.as_ref().err().map(|problem| problem.kind), want, "{kind} {value}: {found:?}");
        }
        assert!(Identifier::read("dns", &"a.".repeat(130)).is_err());
    }
}
