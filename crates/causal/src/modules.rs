//! The files mapped into this process: the program and its shared objects, and the addresses of their code.

use std::ffi::CStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// An executable or a shared object as currently mapped.
#[derive(Clone, Debug)]
pub(crate) struct Module {
    /// The file with its symbols; `/proc/self/exe` for the program.
    pub(crate) path: PathBuf,
    /// Whether it is the program itself.
    pub(crate) is_program: bool,
    /// Offset to subtract from an address to get the file's.
    pub(crate) bias: usize,
    /// The addresses of its code, from the first executable segment to the end of the last.
    pub(crate) text: Range<usize>,
    /// The address and a copy of `.eh_frame`, if requested.
    pub(crate) unwind: Option<(usize, Vec<u8>)>,
}

/// Returns a number that changes whenever an object is loaded or unloaded.
pub(crate) fn changes() -> u64 {
    let mut changes = 0;
    visit(&mut |object| {
        changes = object.dlpi_adds.wrapping_mul(31).wrapping_add(object.dlpi_subs);
        false
    });
    changes
}

/// Returns all modules, with a copy of `.eh_frame` for those that `with_unwind` accepts; it gets the bias and the
/// addresses of the code.
///
/// The copy is made under the loader's lock, so that no module is unmapped during it.
pub(crate) fn list(with_unwind: impl Fn(usize, &Range<usize>) -> bool) -> Vec<Module> {
    let mut modules = Vec::new();
    visit(&mut |object| {
        // The loader always lists the program first (dl_iterate_phdr(3)).
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
        // An object may have several executable segments; take the range around all of them.
        let text = code.map(&loaded).reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        if let Some(text) = text {
            let unwind = if with_unwind(bias, &text) {
                segments
                    .iter()
                    .find(|segment| segment.p_type == libc::PT_GNU_EH_FRAME)
                    .and_then(|header| eh_frame(&loaded(header)))
                    .and_then(|start| {
                        let mut loads = segments.iter().filter(|segment| segment.p_type == libc::PT_LOAD).map(&loaded);
                        let end = loads.find(|load| load.contains(&start))?.end;
                        Some((start, bytes(start..end).to_vec()))
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

/// Finds the start of `.eh_frame` from the header that points to it (Linux Standard Base, "DWARF Extensions").
fn eh_frame(header: &Range<usize>) -> Option<usize> {
    /// The encoding of a signed four-byte offset from its own address: all linkers use it.
    const PC_RELATIVE_4: u8 = 0x1b;
    let bytes = bytes(header.clone());
    let (&[version, encoding, ..], offset) = (bytes.first_chunk::<4>()?, bytes.get(4..8)?.try_into().ok()?);
    let place = header.start + 4;
    (version == 1 && encoding == PC_RELATIVE_4).then(|| place.wrapping_add_signed(i32::from_ne_bytes(offset) as isize))
}

/// Returns the memory of a segment. Call it only under the loader's lock.
#[expect(unsafe_code, reason = "only the loader's own mapping holds the whole section")]
fn bytes<'a>(range: Range<usize>) -> &'a [u8] {
    // SAFETY: the callers pass ranges of loadable segments. These are mapped readable until their object is unloaded,
    // which cannot happen while the loader's lock is held; the callers copy from them before they release it.
    unsafe { std::slice::from_raw_parts(range.start as *const u8, range.len()) }
}

#[expect(unsafe_code, reason = "the loader's records are C structs with raw pointers")]
fn name(object: &libc::dl_phdr_info) -> PathBuf {
    if object.dlpi_name.is_null() {
        return PathBuf::new();
    }
    // SAFETY: not null, and the loader terminates names with a zero.
    let name = unsafe { CStr::from_ptr(object.dlpi_name) };
    PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes()))
}

#[expect(unsafe_code, reason = "the loader's records are C structs with raw pointers")]
fn segments(object: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if object.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: not null, and the loader's count of the headers; they live as long as the object.
    unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) }
}

/// Calls `each` with the loaded objects, the program first, until it returns `false`.
#[expect(unsafe_code, reason = "only the loader has the list of loaded objects")]
fn visit(each: &mut dyn FnMut(&libc::dl_phdr_info) -> bool) {
    type Each<'a> = &'a mut dyn FnMut(&libc::dl_phdr_info) -> bool;
    extern "C" fn show(object: *mut libc::dl_phdr_info, _size: usize, each: *mut libc::c_void) -> libc::c_int {
        let each = each.cast::<Each<'_>>();
        // SAFETY: the pointer passed to the call below; only this thread uses it until that call returns.
        let each = unsafe { &mut *each };
        // SAFETY: the loader passes a record that is valid during the callback.
        let object = unsafe { &*object };
        libc::c_int::from(!each(object))
    }
    let mut each: Each<'_> = each;
    // SAFETY: the callback gets the type that it expects, and the pointee outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(show), (&raw mut each).cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_its_library_are_listed() {
        let modules = list(|_, _| true);
        let here = the_program_and_its_library_are_listed as fn() as usize;
        let program = &modules[0];
        assert!(program.is_program && program.text.contains(&here), "{:x?} {here:x}", program.text);
        assert!(program.unwind.as_ref().is_some_and(|(_, bytes)| bytes.len() > 1000));
        let library = modules.iter().find(|module| module.path.to_string_lossy().contains("libc.so"));
        assert!(library.is_none_or(|library| library.unwind.is_some()));
    }
}
