//! Sizes for readers, as Go's library humanize prints them.

/// Returns a number of bytes in powers of 1000: `83 MB`.
pub(crate) fn decimal(bytes: u64) -> String {
    with_unit(bytes, 1000, ["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// Returns a number of bytes in powers of 1024: `79 MiB`.
pub(crate) fn binary(bytes: u64) -> String {
    with_unit(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// A number below 10 has one decimal, unless it is in bytes.
fn with_unit(bytes: u64, base: u64, units: [&str; 7]) -> String {
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let (mut unit, mut scale) = (0, 1_u64);
    while bytes / scale >= base {
        scale *= base;
        unit += 1;
    }
    // It is rounded once. The unit is that of the number before: 999 999 is `1000 kB`.
    let number = bytes as f64 / scale as f64;
    let tenths = (number * 10.0 + 0.5).floor();
    if number < 10.0 && tenths < 100.0 {
        return format!("{:.1} {}", tenths / 10.0, units[unit]);
    }
    format!("{:.0} {}", (number + 0.5).floor(), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    // go-humanize 1.1.0, `Bytes` and `IBytes`, with which Caddy's `humanize` and listings print sizes.
    #[test]
    fn sizes_are_those_of_go() {
        for (bytes, in_thousands, in_1024) in [
            (0, "0 B", "0 B"),
            (9, "9 B", "9 B"),
            (10, "10 B", "10 B"),
            (999, "999 B", "999 B"),
            (1000, "1.0 kB", "1000 B"),
            (1023, "1.0 kB", "1023 B"),
            (1024, "1.0 kB", "1.0 KiB"),
            (1536, "1.5 kB", "1.5 KiB"),
            (9949, "9.9 kB", "9.7 KiB"),
            (9950, "10 kB", "9.7 KiB"),
            (9999, "10 kB", "9.8 KiB"),
            (10_188, "10 kB", "9.9 KiB"),
            (10_189, "10 kB", "10 KiB"),
            (10_500, "11 kB", "10 KiB"),
            (10_752, "11 kB", "11 KiB"),
            (99_499, "99 kB", "97 KiB"),
            (99_500, "100 kB", "97 KiB"),
            (123_456, "123 kB", "121 KiB"),
            (999_499, "999 kB", "976 KiB"),
            (999_500, "1000 kB", "976 KiB"),
            (999_999, "1000 kB", "977 KiB"),
            (1_000_000, "1.0 MB", "977 KiB"),
            (1_048_063, "1.0 MB", "1023 KiB"),
            (1_048_064, "1.0 MB", "1024 KiB"),
            (1_048_575, "1.0 MB", "1024 KiB"),
            (1_048_576, "1.0 MB", "1.0 MiB"),
            (1_234_567, "1.2 MB", "1.2 MiB"),
            (82_854_982, "83 MB", "79 MiB"),
            (83_000_000, "83 MB", "79 MiB"),
            (1_000_000_000, "1.0 GB", "954 MiB"),
            (1_073_741_824, "1.1 GB", "1.0 GiB"),
            (5_000_000_000, "5.0 GB", "4.7 GiB"),
            (1_000_000_000_000_000, "1.0 PB", "909 TiB"),
            (1 << 50, "1.1 PB", "1.0 PiB"),
            (1_000_000_000_000_000_000, "1.0 EB", "888 PiB"),
            (1 << 60, "1.2 EB", "1.0 EiB"),
            (u64::MAX, "18 EB", "16 EiB"),
        ] {
            assert_eq!((decimal(bytes).as_str(), binary(bytes).as_str()), (in_thousands, in_1024), "{bytes}");
        }
    }
}
