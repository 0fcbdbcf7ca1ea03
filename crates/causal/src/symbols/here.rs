//! An address in the middle of a function, for tests.

/// Returns its own return address: all builds of this workspace keep frame pointers, and the return address is one word
/// above the saved one.
#[inline(never)]
#[expect(unsafe_code, reason = "there is no other way to an address in the middle of a function")]
pub(crate) fn here() -> usize {
    let frame: usize;
    // SAFETY: reads a register.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("mov {}, rbp", out(reg) frame);
    }
    // SAFETY: reads a register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("mov {}, x29", out(reg) frame);
    }
    // SAFETY: within this function's frame, by the frame pointer convention.
    unsafe { *(frame as *const usize).wrapping_add(1) }
}
