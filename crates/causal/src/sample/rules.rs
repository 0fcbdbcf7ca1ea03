//! What the compiler said about each address: how to get from there to the caller (`.eh_frame`, the tables that panics unwind by).
//!
//! Read once when a profile starts, and turned into arrays that a signal handler can search. So a function's first instructions, where
//! the frame pointer is still the caller's, and code without frame pointers (the C library's) hide no caller.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use addr2line::gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, NativeEndian, Register, RegisterRule, UnwindContext, UnwindSection,
};

use crate::modules::{self, Module};

/// From what the caller's stack pointer is reckoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Base {
    /// Nothing is said, or more than is understood here.
    Unknown,
    /// The stack pointer.
    Stack,
    /// The frame pointer.
    Frame,
    /// Nobody called this: a thread's first function.
    End,
}

/// How to get from an address to its caller: offsets in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// From the base to what the stack pointer is in the caller; the others count from there.
    pub(super) stack: i32,
    /// Where the caller's frame pointer was saved, or [`Rule::KEPT`].
    pub(super) frame: i16,
    /// Where the address to return to was saved, or [`Rule::KEPT`].
    pub(super) link: i16,
    pub(super) base: Base,
}

impl Rule {
    /// It is still in its register.
    pub(super) const KEPT: i16 = i16::MIN;
    pub(super) const UNKNOWN: Self = Self { stack: 0, frame: Self::KEPT, link: Self::KEPT, base: Base::Unknown };
    const END: Self = Self { base: Base::End, ..Self::UNKNOWN };
}

/// Addresses that a step of the coarse index covers, as a power of two.
const COARSE_SHIFT: u32 = 8;

/// The rules of one module, by the offset from its code's begin at which they begin to hold.
#[derive(Debug)]
pub(super) struct Table {
    text: Range<usize>,
    starts: Box<[u32]>,
    rules: Box<[Rule]>,
    /// For each step of addresses, which rule holds at its begin.
    coarse: Box<[u32]>,
}

impl Table {
    fn new(text: Range<usize>, mut rows: Vec<(u32, Rule)>) -> Self {
        // A function's end is said before the next one's begin, if that is the same address; the later one counts.
        rows.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                earlier.1 = later.1;
            }
            same
        });
        rows.dedup_by_key(|row| row.1);
        let steps = (text.len() >> COARSE_SHIFT) + 2;
        let mut at = 0;
        let coarse = (0..steps).map(|step| {
            while rows.get(at + 1).is_some_and(|row| row.0 as usize <= step << COARSE_SHIFT) {
                at += 1;
            }
            at as u32
        });
        Self {
            coarse: coarse.collect(),
            starts: rows.iter().map(|row| row.0).collect(),
            rules: rows.iter().map(|row| row.1).collect(),
            text,
        }
    }

    /// Whether so many octets from the address on are the module's. Safe in a signal handler.
    pub(super) fn holds(&self, address: usize, octets: usize) -> bool {
        self.text.contains(&address) && octets <= self.text.end - address
    }

    fn find(&self, address: usize) -> Option<Rule> {
        let offset = address.wrapping_sub(self.text.start);
        let step = offset >> COARSE_SHIFT;
        let (first, last) = (*self.coarse.get(step)? as usize, *self.coarse.get(step + 1)? as usize);
        let here = self.starts.get(first..=last)?;
        let at = here.partition_point(|&start| start as usize <= offset);
        self.rules.get(first + at.checked_sub(1)?).copied()
    }
}

/// The rules of all modules, by their addresses. Never freed: a handler may be reading them.
#[derive(Debug, Default)]
pub(super) struct Rules {
    tables: Vec<&'static Table>,
}

impl Rules {
    /// The module that the address lies in. Safe in a signal handler.
    pub(super) fn module(&self, address: usize) -> Option<&'static Table> {
        let after = self.tables.partition_point(|table| table.text.start <= address);
        self.tables.get(after.checked_sub(1)?).copied().filter(|table| address < table.text.end)
    }

    /// What holds at the address; `None` when nothing is known. Safe in a signal handler.
    pub(super) fn find(&self, address: usize) -> Option<Rule> {
        self.module(address)?.find(address)
    }

    #[cfg(test)]
    pub(super) fn of_text(text: Range<usize>) -> Self {
        Self { tables: vec![Box::leak(Box::new(Table::new(text, Vec::new())))] }
    }
}

static CURRENT: AtomicPtr<Rules> = AtomicPtr::new(std::ptr::null_mut());
/// The modules that [`CURRENT`] is about, by [`modules::changes`].
static CHANGES: AtomicU64 = AtomicU64::new(u64::MAX);
/// What was read already: by bias and code.
static READ: Mutex<Vec<(usize, &'static Table)>> = Mutex::new(Vec::new());

/// The rules as they were last loaded. Safe in a signal handler.
#[expect(unsafe_code, reason = "a handler can take no lock, so what it reads is never freed")]
pub(super) fn current() -> &'static Rules {
    static NONE: Rules = Rules { tables: Vec::new() };
    // SAFETY: null, or what `load` leaked.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }.unwrap_or(&NONE)
}

/// Sees to modules that were loaded or unloaded since the last time.
pub(super) fn load() {
    let changes = modules::changes();
    if CHANGES.load(Ordering::Relaxed) == changes {
        return;
    }
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let modules = modules::list(|bias| !read.iter().any(|known| known.0 == bias));
    let known = |module: &Module, read: &[(usize, &'static Table)]| {
        read.iter().find(|(bias, table)| *bias == module.bias && table.text == module.text).map(|known| known.1)
    };
    let mut tables = Vec::new();
    for module in &modules {
        let table = known(module, &read).unwrap_or_else(|| {
            let table: &'static Table = Box::leak(Box::new(Table::new(module.text.clone(), rows(module))));
            read.push((module.bias, table));
            table
        });
        tables.push(table);
    }
    // What is gone may come back as something else at the same place.
    read.retain(|(_, table)| tables.iter().any(|kept| std::ptr::eq(*kept, *table)));
    tables.sort_unstable_by_key(|table| table.text.start);
    CURRENT.store(Box::into_raw(Box::new(Rules { tables })), Ordering::Release);
    CHANGES.store(changes, Ordering::Relaxed);
}

#[cfg(target_arch = "x86_64")]
const STACK_FRAME_LINK: [Register; 3] = [Register(7), Register(6), Register(16)];
#[cfg(not(target_arch = "x86_64"))]
const STACK_FRAME_LINK: [Register; 3] = [Register(31), Register(29), Register(30)];

/// All that a module says, by address. What is not understood is left out.
fn rows(module: &Module) -> Vec<(u32, Rule)> {
    let Some((address, octets)) = &module.unwind else { return Vec::new() };
    let section = EhFrame::new(octets, NativeEndian);
    let bases = BaseAddresses::default().set_eh_frame(*address as u64);
    let offset = |address: u64| {
        let offset = (address as usize).checked_sub(module.text.start)?;
        u32::try_from(offset).ok().filter(|_| offset < module.text.len())
    };
    let mut functions = Vec::new();
    let (mut heads, mut context) = (HashMap::new(), UnwindContext::<usize>::new());
    let mut entries = section.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(part) = entry else { continue };
        let head = |section: &EhFrame<_>, bases: &BaseAddresses, at| match heads.entry(at) {
            std::collections::hash_map::Entry::Occupied(known) => Ok(Clone::clone(known.get())),
            std::collections::hash_map::Entry::Vacant(free) => {
                section.cie_from_offset(bases, at).map(|head| free.insert(head).clone())
            }
        };
        let Ok(function) = part.parse(head) else { continue };
        let (Some(start), Some(end)) =
            (offset(function.initial_address()), offset(function.end_address().saturating_sub(1)))
        else {
            continue;
        };
        let mut rows: Vec<(u32, Rule)> = Vec::new();
        if let Ok(mut table) = function.rows(&section, &bases, &mut context) {
            while let Ok(Some(row)) = table.next_row() {
                let Some(start) = offset(row.start_address()) else { continue };
                let [stack, frame, link] = STACK_FRAME_LINK;
                let base = match row.cfa() {
                    CfaRule::RegisterAndOffset { register, offset } if *register == stack => {
                        Some((Base::Stack, *offset))
                    }
                    CfaRule::RegisterAndOffset { register, offset } if *register == frame => {
                        Some((Base::Frame, *offset))
                    }
                    _ => None,
                };
                rows.push((start, rule(base, row.register(frame), row.register(link))));
            }
        }
        functions.push((start, end + 1, rows));
    }
    functions.sort_unstable_by_key(|function| function.0);
    let mut all = Vec::with_capacity(functions.len() * 4);
    for (start, end, rows) in functions {
        if rows.first().is_none_or(|row| row.0 != start) {
            all.push((start, Rule::UNKNOWN));
        }
        all.extend(rows);
        all.push((end, Rule::UNKNOWN));
    }
    all
}

fn rule(base: Option<(Base, i64)>, frame: RegisterRule<usize>, link: RegisterRule<usize>) -> Rule {
    let saved = |rule: &RegisterRule<usize>| match rule {
        RegisterRule::Offset(offset) => i16::try_from(*offset).ok(),
        RegisterRule::Undefined | RegisterRule::SameValue => Some(Rule::KEPT),
        _ => None,
    };
    let is_first = matches!(link, RegisterRule::Undefined) && cfg!(target_arch = "x86_64");
    match (base, saved(&frame), saved(&link)) {
        _ if is_first => Rule::END,
        (Some((base, stack)), Some(frame), Some(link)) => match i32::try_from(stack) {
            Ok(stack) => Rule { stack, frame, link, base },
            Err(_) => Rule::UNKNOWN,
        },
        _ => Rule::UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_knows_which_rule_holds() {
        let rule = |stack| Rule { stack, base: Base::Stack, ..Rule::UNKNOWN };
        // The last row of a place counts; equal neighbours are one.
        let rows = vec![
            (4, rule(1)),
            (10, Rule::UNKNOWN),
            (10, rule(2)),
            (300, rule(3)),
            (310, rule(3)),
            (5000, Rule::UNKNOWN),
        ];
        let table = Table::new(0x1000..0x4000, rows);
        assert_eq!(table.starts.len(), 4);
        let cases = [
            (0, None),
            (3, None),
            (4, Some(1)),
            (9, Some(1)),
            (10, Some(2)),
            (299, Some(2)),
            (300, Some(3)),
            (4999, Some(3)),
        ];
        for (offset, want) in cases {
            assert_eq!(table.find(0x1000 + offset).map(|rule| rule.stack), want, "{offset}");
        }
        assert_eq!(table.find(0x1000 + 5000), Some(Rule::UNKNOWN));
        assert_eq!(table.find(0x3fff), Some(Rule::UNKNOWN));
        assert_eq!(table.find(0xfff), None);
    }

    #[test]
    fn every_address_of_this_program_is_found_as_a_plain_search_finds_it() {
        let module = modules::list(|_| true).swap_remove(0);
        let rows = rows(&module);
        let table = Table::new(module.text.clone(), rows.clone());
        let mut known = 0;
        for offset in (0..module.text.len()).step_by(97) {
            let after = rows.partition_point(|row| row.0 as usize <= offset);
            let want = after.checked_sub(1).map(|at| rows[at].1);
            assert_eq!(table.find(module.text.start + offset), want, "{offset:#x}");
            known += usize::from(want.is_some_and(|rule| rule.base != Base::Unknown));
        }
        assert!(known * 97 > module.text.len() / 2, "{known} of {}", module.text.len() / 97);
    }
}
