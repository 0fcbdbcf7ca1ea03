//! A program's debug information, as a memory mapping whose touched pages can be released after each lookup.
//!
//! A server's tables are tens of mebibytes, and every touched page counts as the process's memory while it is mapped.
//! addr2line's own loader owns its mapping and cannot release pages. So the file is mapped here, and that loader serves
//! only programs whose debug information is in other files.

use std::path::Path;

use addr2line::gimli::{DwarfSections, EndianSlice, NativeEndian, SectionId};
use addr2line::{Context, Loader, Location};
use memmap2::{Mmap, UncheckedAdvice};
use object::{Object, ObjectSection};

type Reader = EndianSlice<'static, NativeEndian>;

/// Bound on the memory of one unit's lookup, bytes. A lookup touches the whole unit, and decodes its lines into a table
/// several times their size. Beyond this bound the symbolizer finds functions only.
pub(super) const UNIT_MAX: u64 = 64 << 20;
/// Size of a unit, in bytes, from which releasing pages between two lookups is worth its cost.
const LARGE: u64 = 8 << 20;
/// Bytes of a decoded line table per byte of the encoded line program.
pub(super) const LINES: u64 = 4;

/// The source of lines and inlined functions.
pub(super) enum DebugSource {
    /// All debug information is in the program's file.
    Whole(Box<Mapped>),
    /// Parts of it are in other files.
    Split(Box<Loader>),
}

/// Debug information that borrows from its own mapping.
pub(super) struct Mapped {
    /// Dropped first: it borrows from `map` and `_unpacked`.
    context: Context<Reader>,
    map: Mmap,
    /// Whether a unit may exceed `LARGE`: the pages that the line lookup touched are then released before the function
    /// lookup.
    is_large: bool,
    /// Sections that were stored compressed.
    _unpacked: Vec<Box<[u8]>>,
}

/// A function at an address, inlined or not: its mangled name, file and line.
pub(super) type DebugFunction = (Option<String>, Option<String>, Option<u32>);

impl DebugSource {
    /// Reads the debug information of the file, or of the files that it refers to.
    pub(super) fn read(path: &Path, map: Mmap, is_split: bool, largest: u64) -> Option<Self> {
        if is_split {
            return Loader::new(path).ok().map(|debug| Self::Split(Box::new(debug)));
        }
        let debug = Mapped::new(map, largest > LARGE)?;
        debug.give_back();
        Some(Self::Whole(Box::new(debug)))
    }

    /// The functions at an address, innermost first.
    pub(super) fn find(&self, address: u64) -> Vec<DebugFunction> {
        let mut all = Vec::new();
        let mut add = |name: Option<String>, place: Option<Location<'_>>| {
            let file = place.as_ref().and_then(|place| place.file).map(str::to_owned);
            all.push((name, file, place.and_then(|place| place.line)));
        };
        match self {
            Self::Whole(debug) => {
                // Lines first; their pages are released, so that lines and functions are not resident together.
                if debug.is_large && debug.context.find_location(address).is_ok_and(|place| place.is_some()) {
                    debug.give_back();
                }
                if let Ok(mut frames) = debug.context.find_frames(address).skip_all_loads() {
                    while let Ok(Some(frame)) = frames.next() {
                        let name = frame.function.as_ref().and_then(|name| name.raw_name().ok());
                        add(name.map(|name| name.into_owned()), frame.location);
                    }
                }
            }
            Self::Split(debug) => {
                if let Ok(mut frames) = debug.find_frames(address) {
                    while let Ok(Some(frame)) = frames.next() {
                        let name = frame.function.as_ref().and_then(|name| name.raw_name().ok());
                        add(name.map(|name| name.into_owned()), frame.location);
                    }
                }
            }
        }
        all
    }

    /// Releases the touched pages of the file; the system reads them again when needed.
    pub(super) fn give_back(&self) {
        if let Self::Whole(debug) = self {
            debug.give_back();
        }
    }
}

impl Mapped {
    #[expect(unsafe_code, reason = "the tables borrow from a mapping that is as large as the program")]
    fn new(map: Mmap, is_large: bool) -> Option<Self> {
        // SAFETY: the mapping is private, read-only, does not move when `map` is moved, and outlives its borrower:
        // `context` is dropped before `map`, and this module hands out copies only.
        let bytes: &'static [u8] = unsafe { std::slice::from_raw_parts(map.as_ptr(), map.len()) };
        let file = object::File::parse(bytes).ok()?;
        let mut unpacked: Vec<Box<[u8]>> = Vec::new();
        let mut section = |id: SectionId| -> Result<&'static [u8], addr2line::gimli::Error> {
            let Some(section) = file.section_by_name(id.name()) else { return Ok(&[]) };
            Ok(match section.uncompressed_data() {
                Ok(std::borrow::Cow::Borrowed(bytes)) => bytes,
                Ok(std::borrow::Cow::Owned(bytes)) => {
                    unpacked.push(bytes.into());
                    let bytes = unpacked.last().map_or(&[][..], |bytes| bytes);
                    // SAFETY: a box's contents do not move with the box, and this box is dropped after `context`.
                    unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) }
                }
                Err(_) => &[],
            })
        };
        let sections = DwarfSections::load(&mut section).ok()?;
        let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, NativeEndian));
        let context = Context::from_dwarf(dwarf).ok()?;
        Some(Self { context, map, is_large, _unpacked: unpacked })
    }

    #[expect(unsafe_code, reason = "what was touched would count as the process's own memory")]
    fn give_back(&self) {
        // SAFETY: pages of a private mapping that is never written to; they are read from the file again at the next
        // access. A refusal has no effect.
        let _ = unsafe { self.map.unchecked_advise(UncheckedAdvice::DontNeed) };
    }
}
