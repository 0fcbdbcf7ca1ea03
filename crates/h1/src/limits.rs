//! How much of what a peer may send.

/// Bounds on what the parser holds or looks at before it refuses. In octets where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A whole head, its last empty line included; at most 4 GiB - 1.
    pub head_bytes_max: u32,
    /// Field lines in a head, and in a trailer section.
    pub fields_max: u16,
    /// The request target.
    pub target_bytes_max: u32,
    /// The extensions of one chunk.
    pub chunk_extension_line_bytes_max: u16,
    /// All chunk extensions of one body.
    pub chunk_extension_bytes_max: u16,
    /// A trailer section, its last empty line included.
    pub trailers_bytes_max: u32,
    /// Empty lines before a request line (RFC 9112 §2.2).
    pub leading_empty_lines_max: u8,
    /// Answers before the answer (RFC 9110 §15.2) to one request, in the client's role.
    pub informational_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes_max: 32 * 1024,
            fields_max: 100,
            target_bytes_max: 8 * 1024,
            chunk_extension_line_bytes_max: 4 * 1024,
            chunk_extension_bytes_max: 16 * 1024,
            trailers_bytes_max: 8 * 1024,
            leading_empty_lines_max: 4,
            informational_max: 100,
        }
    }
}
