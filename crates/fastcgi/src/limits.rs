//! The bounds on an application's output.

/// Bounds on the output that the parser buffers before it rejects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a response's head, including its final empty line.
    pub head_bytes_max: u32,
    /// Number of field lines in a head.
    pub fields_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_bytes_max: 32 * 1024, fields_max: 100 }
    }
}
