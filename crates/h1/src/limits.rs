//! The bounds on a peer's input.

/// Bounds on the input that the parser buffers or scans before it rejects it. In bytes unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A whole head, including its final empty line; at most 4 GiB - 1.
    pub head_bytes_max: u32,
    /// Number of field lines in a head, and in a trailer section.
    pub fields_max: u16,
    /// Length of the request target.
    pub target_bytes_max: u32,
    /// Length of the extensions of one chunk.
    pub chunk_extension_line_bytes_max: u16,
    /// Total length of the chunk extensions of one body.
    pub chunk_extension_bytes_max: u16,
    /// Length of a trailer section, including its final empty line.
    pub trailers_bytes_max: u32,
    /// Number of empty lines before a request line (RFC 9112 §2.2).
    pub leading_empty_lines_max: u8,
    /// Number of interim responses (RFC 9110 §15.2) to one request, in the client's role. The engine has the same bound
    /// for every protocol.
    pub interims_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: 32 * 1024,
            fields_max: 100,
            target_bytes_max: 16 * 1024,
            chunk_extension_line_bytes_max: 4 * 1024,
            chunk_extension_bytes_max: 16 * 1024,
            trailers_bytes_max: 8 * 1024,
            leading_empty_lines_max: 4,
            interims_max: 100,
        }
    }
}
