//! The bounds of a template.

/// How deep actions and parentheses nest in a template's text.
pub const NESTING_MAX: u32 = 100;
/// The bytes of a template's text.
pub const TEXT_BYTES_MAX: usize = 16 << 20;
