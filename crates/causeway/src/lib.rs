//! Causeway joined together: which modules a configuration may name, and which directives turn into them.

use causeway_config::caddyfile::Directives;
use causeway_pipeline::Registry;

/// Directives whose syntax is known, with the handler module that they turn into.
const NEEDS: &[(&str, &str)] = &[
    ("basic_auth", "authentication"),
    ("basicauth", "authentication"),
    ("handle_path", "rewrite"),
    ("invoke", "invoke"),
    ("map", "map"),
    ("method", "rewrite"),
    ("request_body", "request_body"),
    ("request_header", "headers"),
    ("rewrite", "rewrite"),
    ("try_files", "rewrite"),
    ("uri", "rewrite"),
];

/// All built-in modules.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    registry
}

/// Caddy's directives, less those whose modules the registry does not hold: the Caddyfile reader then names the directive
/// and its line, where the plan could only name a module.
pub fn directives(registry: &Registry) -> Directives {
    let mut directives = Directives::standard();
    let modules = registry.modules();
    for (directive, handler) in NEEDS {
        if !modules.iter().any(|module| module.strip_prefix("http.handlers.") == Some(handler)) {
            directives.withhold(directive);
        }
    }
    directives
}
