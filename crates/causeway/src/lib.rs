//! A web server that runs Caddyfiles: library for embedding, and command line
