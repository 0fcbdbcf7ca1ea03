//! RFC 9110 vocabulary: method, status, target, field names, field map, heads, chunks
