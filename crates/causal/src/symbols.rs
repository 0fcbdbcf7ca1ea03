//! What are the addresses called? Functions, inlined ones too, and lines of the source, for the program and its shared objects.
//!
//! Off the hot path: files are mapped and searched when an address of theirs is first asked for, and every answer is kept.
//!
//! - `names`: functions' names as people read them; `paths`: files' names, and whose code it is.

#[cfg(test)]
pub(crate) mod here;
mod names;
mod paths;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use addr2line::Loader;
use addr2line::gimli::{DwarfSections, EndianSlice, NativeEndian};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::modules::{self, Module};

pub use paths::Origin;

/// How much is known about the program's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbols {
    /// Functions, inlined ones, and lines (`debug = "line-tables-only"` or more).
    Lines,
    /// Functions only, by the symbol table.
    Functions,
    /// Nothing: the program was stripped.
    None,
}

/// A function or inlined function at an address. Names are numbers of [`Symbolizer::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function.
    pub function: u32,
    /// File and line: `src/main.rs:12`.
    pub line: Option<u32>,
    /// Whether the compiler put the function into the next place's.
    pub is_inlined: bool,
    /// Whose code it is.
    pub origin: Origin,
}

/// Finds names, and keeps them.
#[derive(Default)]
pub struct Symbolizer {
    modules: Vec<Loaded>,
    changes: Option<u64>,
    cache: HashMap<usize, Rc<[Place]>>,
    names: Vec<Rc<str>>,
    numbers: HashMap<Rc<str>, u32>,
    /// Demangled and shortened names by what they were made of.
    readable: HashMap<String, u32>,
    /// Addresses of the program that were asked for: with lines, with functions only, with nothing.
    found: [u64; 3],
}

struct Loaded {
    module: Module,
    /// `None` before it was first needed.
    tables: Option<Tables>,
}

/// What debug information says about one place.
#[derive(Default)]
struct Found {
    name: Option<String>,
    line: Option<(String, Origin)>,
    module: Option<String>,
}

/// What a file says.
#[derive(Default)]
struct Tables {
    debug: Option<Loader>,
    /// Functions of the symbol table: begin, end, mangled name; by begin.
    symbols: Vec<(u64, u64, String)>,
    /// Where the compiler was run.
    folders: Vec<String>,
    /// Crates: the file that each begins with, and its name.
    crates: Vec<(String, String)>,
}

impl Symbolizer {
    /// Without anything loaded.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A name by its number.
    #[must_use]
    pub fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", |name| name)
    }

    /// How much was known about the addresses of the program that were asked for; about this function, when none was.
    #[must_use]
    pub fn symbols(&self) -> Symbols {
        match self.found {
            [0, 0, 0] => {
                let mut probe = Self::new();
                probe.places(Self::symbols as *const () as usize);
                if probe.found == [0, 0, 0] { Symbols::None } else { probe.symbols() }
            }
            [lines, functions, nothing] if lines + functions < nothing => Symbols::None,
            [lines, functions, _] if lines >= functions => Symbols::Lines,
            _ => Symbols::Functions,
        }
    }

    /// What is at an address, innermost first; one place at least. For the address of a caller pass the one before where it returns to.
    pub fn places(&mut self, address: usize) -> Rc<[Place]> {
        if let Some(known) = self.cache.get(&address) {
            return known.clone();
        }
        let places: Rc<[Place]> = self.find(address).into();
        self.cache.insert(address, places.clone());
        places
    }

    fn find(&mut self, address: usize) -> Vec<Place> {
        self.see_modules();
        let Some(at) = self.modules.iter().position(|loaded| loaded.module.text.contains(&address)) else {
            let function = self.number("[unknown]");
            return vec![Place { function, line: None, is_inlined: false, origin: Origin::System }];
        };
        let loaded = &mut self.modules[at];
        let (module, tables) = (&loaded.module, loaded.tables.get_or_insert_with(|| Tables::read(&loaded.module.path)));
        let (is_program, own) = (module.is_program, (address - module.bias) as u64);
        let origin = if is_program { Origin::Program } else { Origin::System };
        let mut found: Vec<Found> = Vec::new();
        if let Some(Ok(mut frames)) = tables.debug.as_ref().map(|debug| debug.find_frames(own)) {
            while let Ok(Some(frame)) = frames.next() {
                let name = frame.function.as_ref().and_then(|name| name.raw_name().ok()).map(|name| name.into_owned());
                let file = frame.location.as_ref().and_then(|place| place.file);
                let line = file.zip(frame.location.as_ref().and_then(|place| place.line)).map(|(file, line)| {
                    let (file, origin) = paths::readable(file, &tables.folders);
                    (format!("{file}:{line}"), origin)
                });
                let module = file.and_then(|file| paths::module(file, &tables.crates));
                found.push(Found { name, line, module });
            }
        }
        let symbol = tables.symbol(own).map(str::to_owned);
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
        if found.is_empty() {
            found.push(Found::default());
        }
        let outermost = found.len() - 1;
        let mut places = Vec::with_capacity(found.len());
        // From the outermost one inwards: a closure is named after the function that it stands in.
        let mut outer: Vec<(String, Option<String>)> = Vec::new();
        for (at, Found { name, line, module }) in found.into_iter().enumerate().rev() {
            let is_inlined = at < outermost;
            // The symbol table knows the whole name of the outermost one.
            let whole = name.as_ref().filter(|name| names::is_whole(name)).cloned();
            let name = whole.or_else(|| symbol.clone().filter(|_| !is_inlined)).or(name);
            let function = match &name {
                Some(name) if names::is_whole(name) || module.is_none() => self.readable(name),
                Some(name) => {
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
            places.push(Place { function, line, is_inlined, origin });
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
        for module in modules::list(|_| false) {
            let known = |known: &Loaded| known.module.bias == module.bias && known.module.text == module.text;
            if !self.modules.iter().any(known) {
                // In the place of what was unloaded.
                self.modules.retain(|gone| {
                    gone.module.text.end <= module.text.start || module.text.end <= gone.module.text.start
                });
                self.modules.push(Loaded { module, tables: None });
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

impl Tables {
    /// A file that cannot be read, or is none (the kernel's own object), says nothing.
    fn read(path: &Path) -> Self {
        let Some(octets) = std::fs::File::open(path).ok().and_then(|file| map(&file)) else { return Self::default() };
        let Ok(file) = object::File::parse(&*octets) else { return Self::default() };
        let is_debug = |name| file.section_by_name(name).is_some_and(|section| section.size() > 0);
        let debug = is_debug(".debug_info") || is_debug(".zdebug_info");
        let (folders, crates) = if debug { units(&file).unwrap_or_default() } else { Default::default() };
        Self { symbols: symbols(&file), folders, crates, debug: if debug { Loader::new(path).ok() } else { None } }
    }

    fn symbol(&self, address: u64) -> Option<&str> {
        let after = self.symbols.partition_point(|symbol| symbol.0 <= address);
        let (_, end, name) = self.symbols.get(after.checked_sub(1)?)?;
        (address < *end).then_some(name)
    }
}

#[expect(unsafe_code, reason = "a program with its debug information is too large to read for a few names")]
fn map(file: &std::fs::File) -> Option<memmap2::Mmap> {
    // SAFETY: private and read-only. A file that is cut short meanwhile would end the process, as it would end a program that runs
    // from it; linkers and installers put a new file in the place of the old one.
    unsafe { memmap2::Mmap::map(file) }.ok()
}

/// The functions of the symbol table, or of the dynamic one where the other was stripped.
fn symbols(file: &object::File<'_>) -> Vec<(u64, u64, String)> {
    let all: Vec<_> =
        if file.symbols().next().is_some() { file.symbols().collect() } else { file.dynamic_symbols().collect() };
    let functions = all.into_iter().filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text);
    let mut symbols: Vec<_> = functions
        .filter_map(|symbol| Some((symbol.address(), symbol.address() + symbol.size(), symbol.name().ok()?.to_owned())))
        .filter(|symbol| !symbol.2.is_empty())
        .collect();
    symbols.sort_unstable();
    // Functions of assembler often have no size: they end where the next one begins.
    for at in 0..symbols.len() {
        if symbols[at].0 == symbols[at].1 {
            let next = symbols[at + 1..].iter().map(|next| next.0).find(|&next| next > symbols[at].0);
            symbols[at].1 = next.unwrap_or(symbols[at].0 + 1);
        }
    }
    symbols
}

/// Folders, and files with names of crates.
type Units = (Vec<String>, Vec<(String, String)>);

/// The folders in which the compiler was run, which is what paths of the program's own files begin with; and the crates.
fn units(file: &object::File<'_>) -> Option<Units> {
    let section = |name: &str| {
        file.section_by_name(name).and_then(|section| section.uncompressed_data().ok()).unwrap_or_default()
    };
    let octets = DwarfSections::load(|id| Ok::<_, addr2line::gimli::Error>(section(id.name()))).ok()?;
    let dwarf = octets.borrow(|octets| EndianSlice::new(octets, NativeEndian));
    let (mut folders, mut crates, mut units) = (HashSet::new(), HashSet::new(), dwarf.units());
    while let Ok(Some(head)) = units.next() {
        let Ok(unit) = dwarf.unit(head) else { continue };
        let folder = unit.comp_dir.map(|folder| folder.to_string_lossy()).unwrap_or_default();
        let folder = folder.trim_end_matches('/');
        if folder.starts_with('/') && !folders.contains(folder) {
            folders.insert(folder.to_owned());
        }
        // rustc's names of units: the crate's root, then the crate with a hash and the unit's number.
        let name = unit.name.map(|name| name.to_string_lossy()).unwrap_or_default();
        if let Some((root, unit)) = name.split_once("/@/") {
            let root = if root.starts_with('/') { root.to_owned() } else { format!("{folder}/{root}") };
            crates.insert((root, unit.split('.').next().unwrap_or_default().to_owned()));
        }
    }
    let (mut folders, mut crates): (Vec<_>, Vec<_>) = (folders.into_iter().collect(), crates.into_iter().collect());
    folders.sort_unstable_by_key(|folder: &String| std::cmp::Reverse(folder.len()));
    crates.sort_unstable();
    Some((folders, crates))
}

#[cfg(test)]
mod tests;
