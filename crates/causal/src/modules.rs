//! What is mapped into this process: the program and its shared objects, and where their code lies.

use std::ffi::CStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// An executable or a shared object, as it is mapped now.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    /// What to open for its symbols; for the program `/proc/self/exe`.
    pub(crate) path: PathBuf,
    /// Whether it is the program itself.
    pub(crate) is_program: bool,
    /// What to take from an address to have the file's.
    pub(crate) bias: usize,
    /// Where its code lies, from the first segment to the end of the last.
    pub(crate) text: Range<usize>,
    /// What `.eh_frame` says, and where it lies; where it was asked for.
    pub(crate) unwind: Option<(usize, Vec<u8>)>,
}

/// A number that changes whenever an object is loaded or unloaded.
pub(crate) fn changes() -> u64 {
    let mut changes = 0;
    visit(&mut |object| {
        changes = object.dlpi_adds.wrapping_mul(31).wrapping_add(object.dlpi_subs);
        false
    });
    changes
}

/// All modules; with a copy of `.eh_frame` for those whose bias `with_unwind` approves.
///
/// The copy is made while the loader's lock is held, so that nothing is unmapped under it.
pub(crate) fn list(with_unwind: impl Fn(usize) -> bool) -> Vec<Module> {
    let mut modules = Vec::new();
    visit(&mut |object| {
        let is_program = modules.is_empty();
        let bias = object.dlpi_addr as usize;
        let name = name(object);
        let segments = segments(object);
        let loaded = |segment: &libc::Elf64_Phdr| {
            let start = bias.wrapping_add(segment.p_vaddr as usize);
            start..start.saturating_add(segment.p_memsz as usize)
        };
        let code =
            segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD && segment.p_flags & libc::PF_X != 0);
        let text = code.map(&loaded).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        if let Some(text) = text {
            let unwind = if with_unwind(bias) {
                segments
                    .iter()
                    .find(|segment| segment.p_type == libc::PT_GNU_EH_FRAME)
                    .and_then(|header| eh_frame(&loaded(header)))
                    .and_then(|start| {
                        let mut loads = segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD).map(&loaded);
                        let end = loads.find(|load| load.contains(&start))?.end;
                        Some((start, octets(start..end).to_vec()))
                    })
            } else {
                None
            };
            let path = if is_program { PathBuf::from("/proc/self/exe") } else { name };
            modules.push(Module { path, is_program, bias, text, unwind });
        }
        true
    });
    modules
}

/// Where `.eh_frame` begins, by the header that points to it (Linux Standard Base, "DWARF Extensions").
fn eh_frame(header: &Range<usize>) -> Option<usize> {
    /// A signed offset of four octets from the place where it stands: what all linkers write.
    const PC_RELATIVE_4: u8 = 0x1b;
    let octets = octets(header.clone());
    let (&[version, encoding, ..], offset) = (octets.first_chunk::<4>()?, octets.get(4..8)?.try_into().ok()?);
    let place = header.start + 4;
    (version == 1 && encoding == PC_RELATIVE_4).then(|| place.wrapping_add_signed(i32::from_ne_bytes(offset) as isize))
}

/// What lies in a segment of an object, while the loader's lock is held.
#[expect(unsafe_code, reason = "the loader's own mapping is the only place where this stands whole")]
fn octets<'a>(range: Range<usize>) -> &'a [u8] {
    // SAFETY: the callers give ranges of loadable segments, which are mapped readable while their object is, which cannot be
    // unloaded while the loader's lock is held; what is made of them is copied before it is released.
    unsafe { std::slice::from_raw_parts(range.start as *const u8, range.len()) }
}

#[expect(unsafe_code, reason = "what the loader gives is C's")]
fn name(object: &libc::dl_phdr_info) -> PathBuf {
    if object.dlpi_name.is_null() {
        return PathBuf::new();
    }
    // SAFETY: not null, and the loader ends names with a zero.
    let name = unsafe { CStr::from_ptr(object.dlpi_name) };
    PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

#[expect(unsafe_code, reason = "what the loader gives is C's")]
fn segments(object: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if object.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: not null, and the loader says how many there are; they live as long as the object.
    unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) }
}

/// Shows the loaded objects to `each`, the program first, until it answers `false`.
#[expect(unsafe_code, reason = "only the loader knows what is loaded")]
fn visit(each: &mut dyn FnMut(&libc::dl_phdr_info) -> bool) {
    type Each<'a> = &'a mut dyn FnMut(&libc::dl_phdr_info) -> bool;
    extern "C" fn show(object: *mut libc::dl_phdr_info, _size: usize, each: *mut libc::c_void) -> libc::c_int {
        let each = each.cast::<Each<'_>>();
        // SAFETY: the pointer that was given to the call below, used by this thread alone until the call is over.
        let each = unsafe { &mut *each };
        // SAFETY: the loader gives a valid record for the length of the callback.
        let object = unsafe { &*object };
        libc::c_int::from(!each(object))
    }
    let mut each: Each<'_> = each;
    // SAFETY: the callback gets what it expects, and what it points to outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(show), (&raw mut each).cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_its_library_are_there() {
        let modules = list(|_| true);
        let here = the_program_and_its_library_are_there as fn() as usize;
        let program = &modules[0];
        assert!(program.is_program && program.text.contains(&here), "{:x?} {here:x}", program.text);
        assert!(program.unwind.as_ref().is_some_and(|(_, octets)| octets.len() > 1000));
        let library = modules.iter().find(|module| module.path.to_string_lossy().contains("libc.so"));
        assert!(library.is_none_or(|library| library.unwind.is_some()));
    }
}
