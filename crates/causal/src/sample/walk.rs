//! Stack walk: from the registers of an interrupted thread to its callers. Safe in a signal handler: it only reads.

use std::ops::Range;

use super::rules::{CfaBase, UnwindRule, UnwindRules};

/// The registers from which the walk starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    pub(super) pc: usize,
    pub(super) stack: usize,
    pub(super) frame: usize,
    /// The link register (aarch64): the return address, until a call overwrites it. 0 on x86-64.
    pub(super) link: usize,
}

/// Bytes of an address.
const WORD: usize = size_of::<usize>();

/// Calls `each` with the thread's code address and the return addresses of its callers, innermost first, until `each`
/// returns false. Reads only within `stack`, the mapped range of the thread's own stack.
pub(super) fn walk(mut at: Registers, rules: &UnwindRules, stack: &Range<usize>, mut each: impl FnMut(usize) -> bool) {
    if !each(at.pc) || at.stack < stack.start {
        return;
    }
    // Memory below the stack pointer may not be mapped.
    let live = at.stack..stack.end;
    // A return address is one past its call, and may belong to the next function or row: look up the byte before it.
    let mut look_up = at.pc;
    for is_innermost in std::iter::once(true).chain(std::iter::repeat(false)) {
        let found = rules.find(look_up);
        let next = match found.unwrap_or(UnwindRule::UNKNOWN) {
            UnwindRule { base: CfaBase::End, .. } => None,
            UnwindRule { base: CfaBase::Unknown, .. } => by_frame_pointer(at, &live),
            rule => by_rule(at, rule, &live, is_innermost),
        };
        let Some(next) = next else { return };
        // A caller's frame is at a higher address, and a return address is in code. Otherwise the stack is not a chain.
        if next.stack <= at.stack && !(is_innermost && next.stack == at.stack)
            || rules.module(next.pc).is_none()
            || !each(next.pc)
        {
            return;
        }
        at = next;
        look_up = at.pc - 1;
    }
}

/// By convention the frame register points to the caller's saved frame register, with the return address above it.
fn by_frame_pointer(at: Registers, live: &Range<usize>) -> Option<Registers> {
    let (frame, pc) = (read(at.frame, live)?, read(at.frame.checked_add(WORD)?, live)?);
    Some(Registers { pc: code(pc)?, stack: at.frame + 2 * WORD, frame, link: 0 })
}

/// By the compiler's unwind rule.
fn by_rule(at: Registers, rule: UnwindRule, live: &Range<usize>, is_innermost: bool) -> Option<Registers> {
    let base = if rule.base == CfaBase::Stack { at.stack } else { at.frame };
    let stack = base.checked_add_signed(rule.stack as isize)?;
    let saved = |offset: i16| read(stack.checked_add_signed(offset.into())?, live);
    let frame = if rule.frame == UnwindRule::KEPT { at.frame } else { saved(rule.frame)? };
    let pc = match rule.link {
        // Only the innermost frame can still have its return address in the link register.
        UnwindRule::KEPT if is_innermost => at.link,
        UnwindRule::KEPT => return None,
        offset => saved(offset)?,
    };
    Some(Registers { pc: code(pc)?, stack, frame, link: 0 })
}

/// The address without the pointer authentication bits of aarch64; `None` for null.
fn code(address: usize) -> Option<usize> {
    let address = if cfg!(target_arch = "aarch64") { address & ((1 << 48) - 1) } else { address };
    (address != 0).then_some(address)
}

#[expect(unsafe_code, reason = "a stack is memory that Rust has no name for")]
fn read(address: usize, live: &Range<usize>) -> Option<usize> {
    if !address.is_multiple_of(WORD) || address < live.start || address.checked_add(WORD)? > live.end {
        return None;
    }
    // SAFETY: aligned, and between the thread's stack pointer and the end of its stack, which is mapped while the
    // thread runs. The reader is that thread itself, in its handler, so there is no concurrent write.
    Some(unsafe { (address as *const usize).read_volatile() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A code address.
    fn here() {}

    /// Walks a simulated stack at its own address, and checks the number of frames.
    fn check(why: &str, frame: impl Fn(usize) -> usize, words: impl Fn(usize) -> Vec<usize>, want: usize) {
        let code = here as *const () as usize;
        let mut memory = [0_usize; 16];
        let base = memory.as_ptr() as usize;
        words(base).into_iter().enumerate().for_each(|(at, word)| memory[at] = word);
        let registers = Registers { pc: 1, stack: base, frame: frame(base), link: 0 };
        let mut seen = Vec::new();
        let rules = UnwindRules::of_text(code - 100..code + 100);
        walk(registers, &rules, &(base..base + 16 * WORD), |address| {
            seen.push(address);
            true
        });
        assert_eq!(seen.len(), want, "{why}: {seen:x?}");
    }

    #[test]
    fn a_chain_of_frame_pointers_is_followed_while_valid() {
        let code = here as *const () as usize;
        let all = |base: usize| vec![0, 0, base + 32, code, base + 48, code, 0, code];
        check("three callers", |base| base + 16, all, 4);
        check("a frame register below the stack", |base| base - 16, all, 1);
        check("one that is not aligned", |base| base + 17, all, 1);
        check("one at the stack's end", |base| base + 16 * WORD - 8, all, 1);
        check("one near the end of memory", |_| usize::MAX & !7, all, 1);
        check("a loop", |base| base + 16, |base| vec![0, 0, base + 16, code], 2);
        check("a chain that goes down", |base| base + 32, |base| vec![0, 0, 0, code, base + 16, code], 2);
        check("an address that is no code", |base| base + 16, |base| vec![0, 0, base + 32, 5, 0, code], 1);
    }
}
