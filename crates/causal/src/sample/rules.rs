//! Unwind rules: how to get from a code address to its caller, as `.eh_frame` (the tables by which panics unwind)
//! describes.
//!
//! They are read once when a profile starts, and compiled into arrays that a signal handler can search. With them the
//! walk also finds the caller from a function's first instructions, where the frame pointer is still the caller's, and
//! from code without frame pointers (the C library's).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use addr2line::gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, NativeEndian, Register, RegisterRule, UnwindContext, UnwindSection,
};

use crate::modules::{self, Module};

/// The register from which the caller's stack pointer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum CfaBase {
    /// No rule, or one of an unsupported form.
    Unknown,
    /// The stack pointer.
    Stack,
    /// The frame pointer.
    Frame,
    /// There is no caller: a thread's first function.
    End,
}

/// How to get from an address to its caller. Offsets are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnwindRule {
    /// Offset from the base to the caller's stack pointer (the canonical frame address), from which the two other
    /// offsets count.
    pub(super) stack: i32,
    /// Where the caller's frame pointer is saved, or [`UnwindRule::KEPT`].
    pub(super) frame: i16,
    /// Where the return address is saved, or [`UnwindRule::KEPT`].
    pub(super) link: i16,
    pub(super) base: CfaBase,
}

impl UnwindRule {
    /// The value is still in its register.
    pub(super) const KEPT: i16 = i16::MIN;
    /// The rule of an address without one.
    pub(super) const UNKNOWN: Self = Self { stack: 0, frame: Self::KEPT, link: Self::KEPT, base: CfaBase::Unknown };
    /// The rule of an outermost function.
    const END: Self = Self { base: CfaBase::End, ..Self::UNKNOWN };
}

/// Bytes of code per entry of the coarse index, as a power of two.
const COARSE_SHIFT: u32 = 8;

/// The rules of one module, each with the offset in the module's code from which it applies.
#[derive(Debug)]
pub(super) struct UnwindTable {
    text: Range<usize>,
    starts: Box<[u32]>,
    rules: Box<[UnwindRule]>,
    /// For each 256 bytes of code, the index of the rule that applies at their start; narrows the binary search.
    coarse: Box<[u32]>,
}

impl UnwindTable {
    fn new(text: Range<usize>, mut rows: Vec<(u32, UnwindRule)>) -> Self {
        // A function's end row may have the address of the next function's first row: the later row applies.
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

    /// Whether `bytes` bytes from the address are within the module's code. Safe in a signal handler.
    pub(super) fn holds(&self, address: usize, bytes: usize) -> bool {
        self.text.contains(&address) && bytes <= self.text.end - address
    }

    fn find(&self, address: usize) -> Option<UnwindRule> {
        let offset = address.wrapping_sub(self.text.start);
        let step = offset >> COARSE_SHIFT;
        // The rule lies between those at the start of this step and of the next one.
        let (first, last) = (*self.coarse.get(step)? as usize, *self.coarse.get(step + 1)? as usize);
        let here = self.starts.get(first..=last)?;
        let at = here.partition_point(|&start| start as usize <= offset);
        self.rules.get(first + at.checked_sub(1)?).copied()
    }
}

/// The rules of all modules, sorted by address. Never freed: a handler may be reading them.
#[derive(Debug, Default)]
pub(super) struct UnwindRules {
    tables: Vec<&'static UnwindTable>,
}

impl UnwindRules {
    /// The module that contains the address. Safe in a signal handler.
    pub(super) fn module(&self, address: usize) -> Option<&'static UnwindTable> {
        let after = self.tables.partition_point(|table| table.text.start <= address);
        self.tables.get(after.checked_sub(1)?).copied().filter(|table| address < table.text.end)
    }

    /// The rule for the address; `None` outside of all known rules. Safe in a signal handler.
    pub(super) fn find(&self, address: usize) -> Option<UnwindRule> {
        self.module(address)?.find(address)
    }

    #[cfg(test)]
    pub(super) fn of_text(text: Range<usize>) -> Self {
        Self { tables: vec![Box::leak(Box::new(UnwindTable::new(text, Vec::new())))] }
    }
}

static CURRENT: AtomicPtr<UnwindRules> = AtomicPtr::new(std::ptr::null_mut());
/// The value of [`modules::changes`] for which [`CURRENT`] was built.
static CHANGES: AtomicU64 = AtomicU64::new(u64::MAX);
/// The tables read so far, by the module's load bias.
static READ: Mutex<Vec<(usize, &'static UnwindTable)>> = Mutex::new(Vec::new());

/// The rules as last loaded. Safe in a signal handler.
#[expect(unsafe_code, reason = "a handler can take no lock, so what it reads is never freed")]
pub(super) fn current() -> &'static UnwindRules {
    static NONE: UnwindRules = UnwindRules { tables: Vec::new() };
    // SAFETY: the pointer is null, or from a box that `load` leaked.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }.unwrap_or(&NONE)
}

/// Rebuilds the rules if modules were loaded or unloaded since the last call.
pub(super) fn load() {
    let changes = modules::changes();
    if CHANGES.load(Ordering::Relaxed) == changes {
        return;
    }
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let tables = tables(&mut read, |read| modules::list(|bias, text| find(read, bias, text).is_none()));
    CURRENT.store(Box::into_raw(Box::new(UnwindRules { tables })), Ordering::Release);
    CHANGES.store(changes, Ordering::Relaxed);
}

/// A table with its module's load bias.
type Known = (usize, &'static UnwindTable);

/// The table of the module with this bias and code. The bias is not enough: the loader may reuse that of an unloaded
/// module for another one.
fn find(read: &[Known], bias: usize, text: &Range<usize>) -> Option<&'static UnwindTable> {
    read.iter().find(|known| known.0 == bias && known.1.text == *text).map(|known| known.1)
}

/// The tables of all loaded modules, sorted by address. `list` returns the modules, with the unwind sections of those
/// that are not in `read`; their rules are read and added to it.
fn tables(read: &mut Vec<Known>, list: impl FnOnce(&[Known]) -> Vec<Module>) -> Vec<&'static UnwindTable> {
    let mut tables = Vec::new();
    for module in list(read) {
        let table = find(read, module.bias, &module.text).unwrap_or_else(|| {
            let table: &'static UnwindTable = Box::leak(Box::new(UnwindTable::new(module.text.clone(), rows(&module))));
            read.push((module.bias, table));
            table
        });
        tables.push(table);
    }
    // Forget unloaded modules: another one may be loaded at the same address later.
    read.retain(|(_, table)| tables.iter().any(|kept| std::ptr::eq(*kept, *table)));
    tables.sort_unstable_by_key(|table| table.text.start);
    tables
}

/// DWARF register numbers of the stack pointer, the frame pointer and the return address.
#[cfg(target_arch = "x86_64")]
const STACK_FRAME_LINK: [Register; 3] = [Register(7), Register(6), Register(16)];
/// DWARF register numbers of the stack pointer, the frame pointer and the return address.
#[cfg(not(target_arch = "x86_64"))]
const STACK_FRAME_LINK: [Register; 3] = [Register(31), Register(29), Register(30)];

/// All rules of a module, by offset. Unsupported ones are left out.
fn rows(module: &Module) -> Vec<(u32, UnwindRule)> {
    let Some((address, bytes)) = &module.unwind else { return Vec::new() };
    let section = EhFrame::new(bytes, NativeEndian);
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
        let mut rows: Vec<(u32, UnwindRule)> = Vec::new();
        // A row holds from its address to the next row's.
        if let Ok(mut table) = function.rows(&section, &bases, &mut context) {
            while let Ok(Some(row)) = table.next_row() {
                let Some(start) = offset(row.start_address()) else { continue };
                let [stack, frame, link] = STACK_FRAME_LINK;
                // Other forms of rules (expressions) occur in few places, and are left to the frame pointer.
                let base = match row.cfa() {
                    CfaRule::RegisterAndOffset { register, offset } if *register == stack => {
                        Some((CfaBase::Stack, *offset))
                    }
                    CfaRule::RegisterAndOffset { register, offset } if *register == frame => {
                        Some((CfaBase::Frame, *offset))
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
        // A gap between functions must not extend the rule before it.
        if rows.first().is_none_or(|row| row.0 != start) {
            all.push((start, UnwindRule::UNKNOWN));
        }
        all.extend(rows);
        all.push((end, UnwindRule::UNKNOWN));
    }
    all
}

fn rule(base: Option<(CfaBase, i64)>, frame: RegisterRule<usize>, link: RegisterRule<usize>) -> UnwindRule {
    let saved = |rule: &RegisterRule<usize>| match rule {
        RegisterRule::Offset(offset) => i16::try_from(*offset).ok(),
        RegisterRule::Undefined | RegisterRule::SameValue => Some(UnwindRule::KEPT),
        _ => None,
    };
    // On x86-64 a thread's first function declares its return address as undefined.
    let is_first = matches!(link, RegisterRule::Undefined) && cfg!(target_arch = "x86_64");
    match (base, saved(&frame), saved(&link)) {
        _ if is_first => UnwindRule::END,
        (Some((base, stack)), Some(frame), Some(link)) => match i32::try_from(stack) {
            Ok(stack) => UnwindRule { stack, frame, link, base },
            Err(_) => UnwindRule::UNKNOWN,
        },
        _ => UnwindRule::UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_finds_the_applicable_rule() {
        let rule = |stack| UnwindRule { stack, base: CfaBase::Stack, ..UnwindRule::UNKNOWN };
        // The last row at an offset applies; equal neighbours are merged.
        let rows = vec![
            (4, rule(1)),
            (10, UnwindRule::UNKNOWN),
            (10, rule(2)),
            (300, rule(3)),
            (310, rule(3)),
            (5000, UnwindRule::UNKNOWN),
        ];
        let table = UnwindTable::new(0x1000..0x4000, rows);
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
        assert_eq!(table.find(0x1000 + 5000), Some(UnwindRule::UNKNOWN));
        assert_eq!(table.find(0x3fff), Some(UnwindRule::UNKNOWN));
        assert_eq!(table.find(0xfff), None);
    }

    /// The loader gives the bias of an unloaded object to the next one, whose code has another length.
    #[test]
    fn an_object_at_a_reused_bias_gets_its_own_rules() {
        let program = modules::list(|_, _| true).swap_remove(0);
        let unloaded = Module { text: program.text.start..program.text.start + 16, unwind: None, ..program.clone() };
        let mut read = Vec::new();
        tables(&mut read, |_| vec![unloaded]);
        // As `load` asks for it: the section of each module that is not known yet.
        let loaded = |read: &[Known]| {
            let section = find(read, program.bias, &program.text).is_none().then(|| program.unwind.clone()).flatten();
            vec![Module { unwind: section, ..program.clone() }]
        };
        let now = tables(&mut read, loaded);
        assert!(now.len() == 1 && !now[0].starts.is_empty(), "the table of the new object is not empty");
        assert_eq!(read.len(), 1, "the unloaded object is forgotten");
        let again = tables(&mut read, loaded);
        assert!(std::ptr::eq(again[0], now[0]), "a known object is not read again");
    }

    #[test]
    fn lookups_in_this_program_match_a_linear_search() {
        let module = modules::list(|_, _| true).swap_remove(0);
        let rows = rows(&module);
        let table = UnwindTable::new(module.text.clone(), rows.clone());
        let mut known = 0;
        for offset in (0..module.text.len()).step_by(97) {
            let after = rows.partition_point(|row| row.0 as usize <= offset);
            let want = after.checked_sub(1).map(|at| rows[at].1);
            assert_eq!(table.find(module.text.start + offset), want, "{offset:#x}");
            known += usize::from(want.is_some_and(|rule| rule.base != CfaBase::Unknown));
        }
        assert!(known * 97 > module.text.len() / 2, "{known} of {}", module.text.len() / 97);
    }
}
