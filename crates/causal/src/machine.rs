//! What is known of the machine before anything was measured on it.

/// What it takes to wake a thread where a processor is free, nanoseconds. It can't be measured beside a busy program: what was asked to wake
/// up would wait for a processor, too.
pub(crate) fn wake_up() -> f64 {
    /// A virtual processor that has halted is the hypervisor's to wake: 27 000 to 33 000 were measured.
    const VIRTUAL: f64 = 30_000.0;
    /// Out of a light sleep, which is where a processor is that rested shortly.
    const BARE: f64 = 5_000.0;
    if is_virtual() { VIRTUAL } else { BARE }
}

/// Whether the processor says that there is a hypervisor (CPUID leaf 1, ECX bit 31); those that say nothing are mostly rented.
fn is_virtual() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::x86_64::__cpuid(1).ecx >> 31 == 1;
    #[cfg(not(target_arch = "x86_64"))]
    true
}
