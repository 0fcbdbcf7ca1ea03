//! Finds the names of addresses: functions, including inlined ones, and source lines, for the program and its shared
//! objects.
//!
//! Not for the hot path: a file is mapped and searched at the first lookup of one of its addresses, and every result
//! is cached.
//!
//! - `debug`: looks up lines and inlined functions, and releases the memory that this touched.
//! - `names`: readable function names; `paths`: file names, and the origin of the code.

mod debug;
#[cfg(test)]
pub(crate) mod here;
mod names;
mod paths;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use addr2line::gimli::{DwarfSections, EndianSlice, NativeEndian};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::modules::{self, Module};
use debug::DebugSource;

pub use paths::Origin;

/// The amount of symbol information for the program's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbols {
    /// Functions, inlined ones, and lines (`debug = "line-tables-only"` or more).
    Lines,
    /// Functions only, by the symbol table.
    Functions,
    /// As [`Symbols::Functions`]. There are lines, but looking them up would take more memory than a profile may use.
    Large,
    /// No symbols: the program was stripped.
    None,
}

/// A function or inlined function at an address. Names are numbers for [`Symbolizer::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeLocation {
    /// The function.
    pub function: u32,
    /// File and line: `src/main.rs:12`.
    pub line: Option<u32>,
    /// Whether the compiler inlined the function into the next place's.
    pub is_inlined: bool,
    /// The origin of the code.
    pub origin: Origin,
}

/// Number of addresses looked up between two releases of the memory that they touched.
const ADDRESSES: usize = 32;

/// Looks up names, and caches them.
#[derive(Default)]
pub struct Symbolizer {
    modules: Vec<LoadedModule>,
    changes: Option<u64>,
    cache: HashMap<usize, Rc<[CodeLocation]>>,
    names: Vec<Rc<str>>,
    numbers: HashMap<Rc<str>, u32>,
    /// The number of the readable name, by mangled name.
    readable: HashMap<String, u32>,
    /// Number of looked-up addresses of the program: with lines, with functions only, with neither.
    found: [u64; 3],
}

struct LoadedModule {
    module: Module,
    /// `None` until first needed.
    tables: Option<FileSymbols>,
}

/// Debug information about one place.
#[derive(Default)]
struct DebugInfo {
    name: Option<String>,
    line: Option<(String, Origin)>,
    module: Option<String>,
}

/// The symbol information of one file.
#[derive(Default)]
struct FileSymbols {
    debug: Option<DebugSource>,
    /// Functions of the symbol table: begin, end, mangled name; sorted by begin.
    symbols: Vec<(u64, u64, String)>,
    /// The compiler's working directories.
    directories: Vec<String>,
    /// Crates: the root file, and the name.
    crates: Vec<(String, String)>,
    /// There are lines, but looking them up would take more memory than a profile may use.
    is_too_large: bool,
}

impl Symbolizer {
    /// Makes a symbolizer with empty caches.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the name with this number; empty for an unknown number.
    #[must_use]
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", |name| name)
    }

    /// Returns the amount of symbol information for the program's addresses looked up so far. Without any, looks up one
    /// of its own.
    #[must_use]
    pub fn symbols(&self) -> Symbols {
        let of_program = self.modules.iter().find(|loaded| loaded.module.is_program);
        if of_program.and_then(|loaded| loaded.tables.as_ref()).is_some_and(|tables| tables.is_too_large) {
            return Symbols::Large;
        }
        match self.found {
            [0, 0, 0] => {
                // Look up this function, to see which kinds of symbols the program has.
                let mut probe = Self::new();
                probe.places(Self::symbols as *const () as usize);
                if probe.found == [0, 0, 0] { Symbols::None } else { probe.symbols() }
            }
            [lines, functions, nothing] if lines + functions < nothing => Symbols::None,
            [lines, functions, _] if lines >= functions => Symbols::Lines,
            _ => Symbols::Functions,
        }
    }

    /// Returns the places at an address, innermost first; at least one. For a caller, pass its return address minus 1.
    pub fn places(&mut self, address: usize) -> Rc<[CodeLocation]> {
        if let Some(known) = self.cache.get(&address) {
            return known.clone();
        }
        let places: Rc<[CodeLocation]> = self.find(address).into();
        self.cache.insert(address, places.clone());
        // Lookups touch pages all over the debug information: release them before they add up.
        if self.cache.len().is_multiple_of(ADDRESSES) {
            self.give_back();
        }
        places
    }

    /// Releases the memory that lookups touched in mapped files. Later lookups of new addresses touch it again.
    pub fn give_back(&self) {
        let debug = self.modules.iter().filter_map(|loaded| loaded.tables.as_ref()?.debug.as_ref());
        debug.for_each(DebugSource::give_back);
    }

    fn find(&mut self, address: usize) -> Vec<CodeLocation> {
        self.see_modules();
        let Some(at) = self.modules.iter().position(|loaded| loaded.module.text.contains(&address)) else {
            let function = self.number("[unknown]");
            return vec![CodeLocation { function, line: None, is_inlined: false, origin: Origin::System }];
        };
        let loaded = &mut self.modules[at];
        let (module, tables) =
            (&loaded.module, loaded.tables.get_or_insert_with(|| FileSymbols::read(&loaded.module.path)));
        let (is_program, own) = (module.is_program, (address - module.bias) as u64);
        let origin = if is_program { Origin::Program } else { Origin::System };
        let mut found: Vec<DebugInfo> = Vec::new();
        for (name, file, line) in tables.debug.as_ref().map(|debug| debug.find(own)).unwrap_or_default() {
            let file = file.as_deref();
            let line = file.zip(line).map(|(file, line)| {
                let (file, origin) = paths::readable(file, &tables.directories);
                (format!("{file}:{line}"), origin)
            });
            let module = file.and_then(|file| paths::module(file, &tables.crates));
            found.push(DebugInfo { name, line, module });
        }
        let symbol = tables.symbol(own).map(str::to_owned);
        // Without any symbol, an address is at least attributed to its file.
        let fallback = match &module.path.file_name() {
            Some(name) if !is_program => format!("[{}]", name.to_string_lossy()),
            _ => "[program]".to_owned(),
        };
        if is_program {
            let has_line = found.iter().any(|found| found.line.is_some());
            self.found[if has_line {
                0
            } else if symbol.is_some() || !found.is_empty() {
                1
            } else {
                2
            }] += 1;
        }
        // Even without debug information there is one place, named by the symbol table or the fallback.
        if found.is_empty() {
            found.push(DebugInfo::default());
        }
        let outermost = found.len() - 1;
        let mut places = Vec::with_capacity(found.len());
        // From the outermost inwards: a closure is named after the function that contains it.
        let mut outer: Vec<(String, Option<String>)> = Vec::new();
        for (at, DebugInfo { name, line, module }) in found.into_iter().enumerate().rev() {
            let is_inlined = at < outermost;
            // The symbol table has the full name of the outermost function.
            let whole = name.as_ref().filter(|name| names::is_whole(name)).cloned();
            let name = whole.or_else(|| symbol.clone().filter(|_| !is_inlined)).or(name);
            let function = match &name {
                Some(name) if names::is_whole(name) || module.is_none() => self.readable(name),
                Some(name) => {
                    // The nearest enclosing function of this module contains the closure.
                    let around = outer.iter().rfind(|around| around.1 == module).map(|around| around.0.as_str());
                    let module = module.as_deref().unwrap_or_default();
                    match (names::bare(name), around) {
                        ("{closure}", Some(around)) => {
                            self.number(&format!("{}::{{closure}}", around.trim_end_matches("::{closure}")))
                        }
                        (bare, _) => self.number(&format!("{module}::{bare}")),
                    }
                }
                None if is_inlined => continue,
                None => self.number(&fallback),
            };
            outer.push((self.name(function).to_owned(), module));
            let origin = match &line {
                Some((_, origin)) => *origin,
                None => paths::by_function(self.name(function)).unwrap_or(origin),
            };
            let line = line.map(|(line, _)| self.number(&line));
            places.push(CodeLocation { function, line, is_inlined, origin });
        }
        places.reverse();
        places
    }

    fn see_modules(&mut self) {
        let changes = modules::changes();
        if self.changes == Some(changes) {
            return;
        }
        self.changes = Some(changes);
        for module in modules::list(|_, _| false) {
            let known = |known: &LoadedModule| known.module.bias == module.bias && known.module.text == module.text;
            if !self.modules.iter().any(known) {
                // It replaces modules that were unloaded from these addresses.
                self.modules.retain(|gone| {
                    gone.module.text.end <= module.text.start || module.text.end <= gone.module.text.start
                });
                self.modules.push(LoadedModule { module, tables: None });
            }
        }
    }

    fn readable(&mut self, mangled: &str) -> u32 {
        if let Some(&known) = self.readable.get(mangled) {
            return known;
        }
        let number = self.number(&names::readable(mangled));
        self.readable.insert(mangled.to_owned(), number);
        number
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.numbers.get(name) {
            return known;
        }
        let (name, number): (Rc<str>, _) = (name.into(), self.names.len() as u32);
        self.names.push(name.clone());
        self.numbers.insert(name, number);
        number
    }
}

impl FileSymbols {
    /// Reads a file's symbols. The result is empty if the file cannot be read, or is no file (the kernel's vDSO).
    fn read(path: &Path) -> Self {
        let Some(bytes) = std::fs::File::open(path).ok().and_then(|file| map(&file)) else { return Self::default() };
        let Ok(file) = object::File::parse(&*bytes) else { return Self::default() };
        let is_debug = |name| file.section_by_name(name).is_some_and(|section| section.size() > 0);
        let has_debug = is_debug(".debug_info") || is_debug(".zdebug_info");
        let units = if has_debug { units(&file).unwrap_or_default() } else { Units::default() };
        let (symbols, is_small) = (symbols(&file), units.largest <= debug::UNIT_MAX);
        let debug =
            if has_debug && is_small { DebugSource::read(path, bytes, units.is_split, units.largest) } else { None };
        Self { symbols, directories: units.directories, crates: units.crates, debug, is_too_large: !is_small }
    }

    fn symbol(&self, address: u64) -> Option<&str> {
        let after = self.symbols.partition_point(|symbol| symbol.0 <= address);
        let (_, end, name) = self.symbols.get(after.checked_sub(1)?)?;
        (address < *end).then_some(name)
    }
}

#[expect(unsafe_code, reason = "a program with its debug information is too large to read for a few names")]
fn map(file: &std::fs::File) -> Option<memmap2::Mmap> {
    // SAFETY: private and read-only. Truncating the file would crash this process with SIGBUS, as it would crash a
    // program that runs from it; linkers and installers replace the file instead.
    unsafe { memmap2::Mmap::map(file) }.ok()
}

/// Returns the functions of the symbol table; of the dynamic one if the symbol table was stripped.
fn symbols(file: &object::File<'_>) -> Vec<(u64, u64, String)> {
    let all: Vec<_> =
        if file.symbols().next().is_some() { file.symbols().collect() } else { file.dynamic_symbols().collect() };
    let functions = all.into_iter().filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
    let mut symbols: Vec<_> = functions
        .filter_map(|symbol| Some((symbol.address(), symbol.address() + symbol.size(), symbol.name().ok()?.to_owned())))
        .filter(|symbol| !symbol.2.is_empty())
        .collect();
    symbols.sort_unstable();
    // Assembler functions often have no size: they end where the next one begins.
    for at in 0..symbols.len() {
        if symbols[at].0 == symbols[at].1 {
            let next = symbols[at + 1..].iter().map(|next| next.0).find(|&next| next > symbols[at].0);
            symbols[at].1 = next.unwrap_or(symbols[at].0 + 1);
        }
    }
    symbols
}

/// Information from the units of the debug information.
#[derive(Default)]
struct Units {
    directories: Vec<String>,
    /// Crates: the root file, and the name.
    crates: Vec<(String, String)>,
    /// Memory that a lookup of an address in the largest unit takes, bytes.
    largest: u64,
    /// Whether the debug information is in separate files.
    is_split: bool,
}

/// Reads the compiler's working directories, which the paths of the program's own files begin with, and the crates.
fn units(file: &object::File<'_>) -> Option<Units> {
    let section = |name: &str| {
        file.section_by_name(name).and_then(|section| section.uncompressed_data().ok()).unwrap_or_default()
    };
    let bytes = DwarfSections::load(|id| Ok::<_, addr2line::gimli::Error>(section(id.name()))).ok()?;
    let dwarf = bytes.borrow(|bytes| EndianSlice::new(bytes, NativeEndian));
    let (mut directories, mut crates, mut units) = (HashSet::new(), HashSet::new(), dwarf.units());
    let (mut largest, mut is_split) = (0, false);
    while let Ok(Some(head)) = units.next() {
        let length = head.length_including_self() as u64;
        let Ok(unit) = dwarf.unit(head) else { continue };
        let lines = unit.line_program.as_ref().map_or(0, |lines| lines.header().unit_length() as u64);
        largest = largest.max(length + debug::LINES * lines);
        is_split |= unit.dwo_id.is_some();
        let directory = unit.comp_dir.map(|directory| directory.to_string_lossy()).unwrap_or_default();
        let directory = directory.trim_end_matches('/');
        if directory.starts_with('/') && !directories.contains(directory) {
            directories.insert(directory.to_owned());
        }
        // rustc names a unit by the crate's root file, then the crate with a hash and the unit's number.
        let name = unit.name.map(|name| name.to_string_lossy()).unwrap_or_default();
        if let Some((root, unit)) = name.split_once("/@/") {
            let root = if root.starts_with('/') { root.to_owned() } else { format!("{directory}/{root}") };
            crates.insert((root, unit.split('.').next().unwrap_or_default().to_owned()));
        }
    }
    let (mut directories, mut crates): (Vec<_>, Vec<_>) =
        (directories.into_iter().collect(), crates.into_iter().collect());
    directories.sort_unstable_by_key(|directory: &String| std::cmp::Reverse(directory.len()));
    crates.sort_unstable();
    Some(Units { directories, crates, largest, is_split })
}

#[cfg(test)]
mod tests;
