//! Assumptions about the machine, for times that the profiler cannot measure.

use crate::constants::{WAKEUP_BARE, WAKEUP_VIRTUAL};

/// Returns the nanoseconds to wake a thread when a processor is free. This is an assumption for the kind of machine,
/// not a measurement: beside a busy program, a thread woken for the measurement would also wait for a processor.
pub(crate) fn wake_up() -> f64 {
    if is_virtual() { WAKEUP_VIRTUAL } else { WAKEUP_BARE }
}

/// Returns whether the processor reports a hypervisor (CPUID leaf 1, ECX bit 31). Without CPUID: true, as most such
/// machines are rented virtual ones.
fn is_virtual() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::x86_64::__cpuid(1).ecx >> 31 == 1;
    #[cfg(not(target_arch = "x86_64"))]
    true
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Linux shows the CPUID bit as the flag `hypervisor` in `/proc/cpuinfo`.
    #[test]
    fn the_kernel_reports_the_same() {
        let known = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let flags = known.lines().find(|line| line.starts_with("flags")).unwrap();
        assert_eq!(is_virtual(), flags.split_whitespace().any(|flag| flag == "hypervisor"));
    }
}
