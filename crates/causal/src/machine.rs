//! What is known of the machine before anything was measured on it.

/// What it takes to wake a thread where a virtual processor has halted, nanoseconds: 27 000 to 33 000 were measured.
pub(crate) const VIRTUAL_WAKE_UP: f64 = 30_000.0;

/// The same where a processor is awake, or in a light sleep, as it is after a short rest.
const BARE_WAKE_UP: f64 = 5_000.0;

/// What it takes to wake a thread where a processor is free, nanoseconds, on a machine of this kind. It can't be measured beside a busy
/// program: what was asked to wake up would wait for a processor, too.
pub(crate) fn wake_up() -> f64 {
    if is_virtual() { VIRTUAL_WAKE_UP } else { BARE_WAKE_UP }
}

/// Whether the processor says that there is a hypervisor (CPUID leaf 1, ECX bit 31); those that say nothing are mostly rented.
fn is_virtual() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::x86_64::__cpuid(1).ecx >> 31 == 1;
    #[cfg(not(target_arch = "x86_64"))]
    true
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// The kernel shows the same bit as a flag.
    #[test]
    fn the_kernel_says_the_same() {
        let known = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = known.lines().find(|line| line.starts_with("flags")).unwrap();
        assert_eq!(is_virtual(), flags.split_whitespace().any(|flag| flag == "hypervisor"));
    }
}
