//! The pages of the program's code in resident memory.
//!
//! Reading a configuration executes much code that serving requests does not. The kernel counts its pages as the
//! process's memory until it needs them for something else.

use std::ffi::c_void;
use std::ptr;

use rustix::mm::{Advice, madvise};

/// Removes the program's code from the resident memory: 12 MB after a start. Code that runs later comes back from the
/// kernel's page cache, in pieces of 64 KiB, without a read of the file. Returns whether it was done: not without
/// `/proc`, and not for locked memory.
pub(super) fn release() -> bool {
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return false };
    let here = release as *const () as usize;
    let Some((begin, end)) = maps.lines().filter_map(code).find(|(begin, end)| (*begin..*end).contains(&here)) else {
        return false;
    };
    let code = ptr::without_provenance_mut::<c_void>(begin);
    #[expect(unsafe_code, reason = "this advice discards what was written to the memory")]
    // SAFETY: the mapping is this program's code, of a file and not writable: the kernel restores each page from the
    // file.
    unsafe { madvise(code, end - begin, Advice::LinuxDontNeed) }.is_ok()
}

/// Parses a line of `/proc/self/maps` (proc_pid_maps(5)). Returns the first address and the end of a private mapping of
/// a file with code that cannot be written.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (begin, end) = words.next()?.split_once('-')?;
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    let is_code = words.next()? == "r-xp";
    // After the offset and the device. Without a file the pages could not be restored: a tool may have moved the code
    // to huge pages.
    let has_file = words.nth(2)? != "0";
    (is_code && has_file).then_some((address(begin)?, address(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings() {
        let file = "08:01 9977897   /usr/bin/causeway";
        assert_eq!(
            code(&format!("563114f63000-563116517000 r-xp 006ca000 {file}")),
            Some((0x563114f63000, 0x563116517000))
        );
        // Data that was relocated and is read-only since: the file has other bytes.
        assert_eq!(code(&format!("563116517000-5631165ff000 r--p 01c7d000 {file}")), None);
        assert_eq!(code(&format!("563116600000-563116601000 rw-p 01d65000 {file}")), None);
        assert_eq!(code(&format!("563114f63000-563116517000 rwxp 006ca000 {file}")), None);
        assert_eq!(code("563114f63000-563116517000 r-xp 00000000 00:00 0"), None);
        assert_eq!(code(""), None);
        assert_eq!(code("no address"), None);
    }

    #[test]
    fn the_program_keeps_running() {
        assert!(release());
        mappings();
    }
}
