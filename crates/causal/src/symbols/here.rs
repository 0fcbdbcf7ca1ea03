//! An address in the middle of a function, for tests.

/// To where this function returns: the frame pointer is kept in all builds of this workspace, and points below that address.
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
    // SAFETY: the frame of this function, by the convention.
    unsafe { *(frame as *const usize).wrapping_add(1) }
}
