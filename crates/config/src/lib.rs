//! Caddyfile to JSON to plan
