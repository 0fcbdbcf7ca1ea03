//! The DNS providers: their names, settings, and syntax in a Caddyfile. The settings are those of Caddy's plugins
//! `dns.providers.NAME`.

/// A provider's settings.
pub(crate) struct ProviderSyntax {
    pub(crate) name: &'static str,
    /// The setting that the word after the name sets; empty: there is no such word.
    pub(crate) argument: &'static str,
    pub(crate) settings: &'static [Setting],
}

/// One setting.
pub(crate) struct Setting {
    pub(crate) key: &'static str,
    pub(crate) form: Form,
}

/// The kind of a setting's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A text that may be absent.
    Optional,
    /// A text that must be there, and not be empty after its placeholders are replaced.
    Required,
    /// A list of texts: the remaining words after the name.
    Words,
    /// An object with an object of texts for each name.
    Accounts,
}

const fn required(key: &'static str) -> Setting {
    Setting { key, form: Form::Required }
}

const fn optional(key: &'static str) -> Setting {
    Setting { key, form: Form::Optional }
}

/// All providers, sorted by name.
pub(crate) const PROVIDERS: &[ProviderSyntax] = &[
    ProviderSyntax {
        name: "acmedns",
        argument: "config_file_path",
        settings: &[
            optional("config_file_path"),
            optional("username"),
            optional("password"),
            optional("subdomain"),
            optional("server_url"),
            Setting { key: "config", form: Form::Accounts },
        ],
    },
    ProviderSyntax {
        name: "cloudflare",
        argument: "api_token",
        settings: &[required("api_token"), optional("zone_token")],
    },
    ProviderSyntax { name: "digitalocean", argument: "auth_token", settings: &[required("auth_token")] },
    ProviderSyntax {
        name: "duckdns",
        argument: "api_token",
        settings: &[required("api_token"), optional("override_domain")],
    },
    ProviderSyntax {
        name: "exec",
        argument: "command",
        settings: &[required("command"), Setting { key: "args", form: Form::Words }],
    },
    ProviderSyntax { name: "gandi", argument: "bearer_token", settings: &[required("bearer_token")] },
    ProviderSyntax { name: "hetzner", argument: "api_token", settings: &[required("api_token")] },
    ProviderSyntax { name: "porkbun", argument: "", settings: &[required("api_key"), required("api_secret_key")] },
    ProviderSyntax {
        name: "rfc2136",
        argument: "",
        settings: &[required("key_name"), required("key_alg"), required("key"), required("server")],
    },
    ProviderSyntax {
        name: "route53",
        argument: "",
        settings: &[
            required("access_key_id"),
            required("secret_access_key"),
            optional("session_token"),
            optional("region"),
            optional("hosted_zone_id"),
        ],
    },
];

/// The names in [`PROVIDERS`].
pub(crate) const NAMES: &[&str] =
    &["acmedns", "cloudflare", "digitalocean", "duckdns", "exec", "gandi", "hetzner", "porkbun", "rfc2136", "route53"];

/// Settings of the plugin `dns.providers.route53` that have no effect here, and the reason. Its source has the names:
/// caddy-dns/route53.
const ROUTE53_IGNORED: &[(&str, &str)] = &[
    ("max_retries", "the certificate's next attempt repeats a failed one"),
    ("wait_for_route53_sync", PROPAGATION),
    ("wait_for_propagation", PROPAGATION),
    ("route53_max_wait", PROPAGATION),
    ("max_wait_dur", PROPAGATION),
    ("skip_route53_sync_on_delete", "no deletion is waited for"),
    ("debug_logging", "the level of the log decides"),
];
const PROPAGATION: &str =
    "the server waits until the name's servers have the record, which `propagation_timeout` limits";

impl ProviderSyntax {
    /// The reason that a setting of Caddy's plugin has no effect; `None` for other settings.
    pub(crate) fn ignored(&self, key: &str) -> Option<&'static str> {
        let ignored = if self.name == "route53" { ROUTE53_IGNORED } else { &[] };
        ignored.iter().find(|(name, _)| *name == key).map(|(_, reason)| *reason)
    }

    /// The provider of this name.
    pub(crate) fn of(name: &str) -> Option<&'static Self> {
        PROVIDERS.iter().find(|provider| provider.name == name)
    }

    pub(crate) fn form(&self, key: &str) -> Option<Form> {
        self.settings.iter().find(|setting| setting.key == key).map(|setting| setting.form)
    }

    /// The keys, for messages.
    pub(crate) fn keys(&self) -> String {
        self.settings.iter().map(|setting| setting.key).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn required(&self) -> impl Iterator<Item = &'static str> {
        self.settings.iter().filter(|setting| setting.form == Form::Required).map(|setting| setting.key)
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, PROVIDERS};

    #[test]
    fn the_names_match_the_table() {
        assert!(PROVIDERS.iter().map(|provider| provider.name).eq(NAMES.iter().copied()) && NAMES.is_sorted());
        for provider in PROVIDERS {
            assert!(provider.argument.is_empty() || provider.form(provider.argument).is_some(), "{}", provider.name);
        }
    }
}
