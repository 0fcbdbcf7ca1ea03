//! The SIGPROF handler, and the per-thread timers that send the signal.

use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use progress::{Account, ContextStep, Span};

use super::ring::{Record, Ring};
use super::walk::{Registers, walk};
use super::{Lost, Rate, THREADS_MAX, rules};
use crate::clock;
use crate::constants::SAMPLE_WALL_PERIOD;

/// By the account's number. A ring is never freed: accounts are reused, and a handler may be writing.
static RINGS: [AtomicPtr<Ring>; THREADS_MAX] = [const { AtomicPtr::new(std::ptr::null_mut()) }; THREADS_MAX];

/// The handler's mode, one of the following.
static STATE: AtomicU32 = AtomicU32::new(CLOSED);
/// Modes of the handler: no sampling, by processor time, by wall time.
const CLOSED: u32 = 0;
const CPU: u32 = 1;
const WALL: u32 = 2;

/// Period of a processor-time timer. The kernel checks such timers at its tick only, so every period below a tick gives
/// one signal for each tick that finds the thread running.
const CPU_TIMER_NS: u64 = 10_000;

/// One thread's timer, and the thread's id.
#[derive(Clone, Copy)]
struct Timer {
    id: usize,
    tid: i32,
}

#[derive(Default)]
struct Timers {
    /// By the account's number.
    by_account: Vec<Option<Timer>>,
    /// Accounts for which the system refused a timer, since the start.
    refused: Vec<u32>,
}

static TIMERS: Mutex<Timers> = Mutex::new(Timers { by_account: Vec::new(), refused: Vec::new() });

fn timers<T>(work: impl FnOnce(&mut Timers) -> T) -> T {
    work(&mut TIMERS.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Timers {
    fn slot(&mut self, account: &Account) -> Option<&mut Option<Timer>> {
        let number = account.number() as usize;
        if number >= THREADS_MAX {
            return None;
        }
        if self.by_account.len() <= number {
            self.by_account.resize(number + 1, None);
        }
        self.by_account.get_mut(number)
    }
}

pub(super) fn is_open() -> bool {
    STATE.load(Ordering::Relaxed) != CLOSED
}

pub(super) fn is_wall() -> bool {
    STATE.load(Ordering::Relaxed) == WALL
}

/// Enables the handler. Reads the clock once first, so that its initialisation does not run in the handler.
pub(super) fn open(rate: Rate) {
    let _ = clock::now();
    timers(|timers| timers.refused.clear());
    rings().for_each(|(_, ring)| ring.forget_lost());
    STATE.store(if rate == Rate::Wall { WALL } else { CPU }, Ordering::SeqCst);
}

/// Disables the handler and deletes all timers. A signal still pending then has no effect.
pub(super) fn close() {
    STATE.store(CLOSED, Ordering::SeqCst);
    timers(|timers| timers.by_account.drain(..).flatten().for_each(Timer::delete));
}

/// Makes sure that the account's current thread has a timer, and deletes the timer of its previous thread.
pub(super) fn attach(account: &Account) -> io::Result<()> {
    let tid = account.tid();
    timers(|timers| {
        let Some(slot) = timers.slot(account) else {
            timers.refuse(account);
            return Ok(());
        };
        if let Some(timer) = slot.take_if(|timer| Some(timer.tid) != tid) {
            timer.delete();
        }
        let (Some(tid), None, true) = (tid, &slot, is_open()) else { return Ok(()) };
        let ring = &RINGS[account.number() as usize];
        // The first timer of this account: the handler must find a ring.
        if ring.load(Ordering::Relaxed).is_null() {
            ring.store(Box::into_raw(Box::new(Ring::new())), Ordering::Release);
        }
        match Timer::start(tid, is_wall()) {
            // The thread may have ended during the call, and its id may have been reused.
            Ok(timer) if account.tid() == Some(tid) => *slot = Some(timer),
            Ok(timer) => timer.delete(),
            // The thread ended before the call: not a failure.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ESRCH)) && account.tid() != Some(tid) => {}
            Err(error) => {
                timers.refuse(account);
                return Err(error);
            }
        }
        Ok(())
    })
}

impl Timers {
    fn refuse(&mut self, account: &Account) {
        if !self.refused.contains(&account.number()) {
            self.refused.push(account.number());
        }
    }
}

/// Deletes the timer of an account whose thread ends.
pub(super) fn detach(account: &Account) {
    timers(|timers| {
        if let Some(timer) = timers.by_account.get_mut(account.number() as usize).and_then(Option::take) {
            timer.delete();
        }
    });
}

pub(super) fn lost() -> Lost {
    Lost { samples: rings().map(|(_, ring)| ring.lost()).sum(), threads: timers(|timers| timers.refused.len()) as u64 }
}

/// All rings that exist, with the account's number.
pub(super) fn rings() -> impl Iterator<Item = (u32, &'static Ring)> {
    (0..).zip(&RINGS).filter_map(|(account, slot)| Some((account, ring(slot)?)))
}

#[expect(unsafe_code, reason = "a handler can take no lock, so the rings are never freed")]
fn ring(slot: &'static AtomicPtr<Ring>) -> Option<&'static Ring> {
    // SAFETY: the pointer is null, or from a box that `attach` leaked.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

/// The clock id of a thread's processor time. The encoding is part of the kernel's ABI; see clock_getcpuclockid(3).
fn cpu_clock(tid: i32) -> libc::clockid_t {
    /// CPUCLOCK_SCHED with the bit of a thread's clock.
    const PER_THREAD_SCHED: i32 = 6;
    !tid << 3 | PER_THREAD_SCHED
}

/// The period of the kernel's tick, nanoseconds: the resolution of its coarse clocks.
pub(super) fn tick() -> u64 {
    rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse).tv_nsec as u64
}

#[expect(unsafe_code, reason = "the clocks of other threads are the C library's to read")]
pub(super) fn cpu_time(tid: i32) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to a local of the right type; an invalid clock id is an error.
    let answer = unsafe { libc::clock_gettime(cpu_clock(tid), &raw mut time) };
    (answer == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

impl Timer {
    #[expect(unsafe_code, reason = "timers of the kernel have no other face")]
    fn start(tid: i32, is_wall: bool) -> io::Result<Self> {
        // SAFETY: all-zero bytes are a valid `sigevent`.
        let mut event: libc::sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGPROF;
        event.sigev_notify_thread_id = tid;
        let clock = if is_wall { libc::CLOCK_MONOTONIC } else { cpu_clock(tid) };
        let mut id: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both pointers are to locals of the right types.
        if unsafe { libc::timer_create(clock, &raw mut event, &raw mut id) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let timer = Self { id: id as usize, tid };
        let period =
            libc::timespec { tv_sec: 0, tv_nsec: if is_wall { SAMPLE_WALL_PERIOD } else { CPU_TIMER_NS } as i64 };
        let times = libc::itimerspec { it_interval: period, it_value: period };
        // SAFETY: the timer was just created, `times` is a local, and the old value is not requested.
        if unsafe { libc::timer_settime(id, 0, &raw const times, std::ptr::null_mut()) } != 0 {
            let error = io::Error::last_os_error();
            timer.delete();
            return Err(error);
        }
        Ok(timer)
    }

    #[expect(unsafe_code, reason = "timers of the kernel have no other face")]
    fn delete(self) {
        // SAFETY: created by `start`, and deleted once: every caller has taken it out of its slot.
        unsafe { libc::timer_delete(self.id as libc::timer_t) };
    }
}

/// Installs the handler. Fails if the program has a SIGPROF handler of its own.
#[expect(unsafe_code, reason = "signals are the C library's")]
pub(super) fn install() -> Result<(), super::SampleError> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only queries, into a local.
    if unsafe { libc::sigaction(libc::SIGPROF, std::ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(super::SampleError::Refused(io::Error::last_os_error()));
    }
    // SAFETY: the call above initialised it.
    let before = unsafe { before.assume_init() };
    let ours = on_signal as extern "C" fn(_, _, _) as libc::sighandler_t;
    if ![ours, libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) {
        return Err(super::SampleError::Handler);
    }
    // SAFETY: all-zero bytes are a valid `sigaction`, with an empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = ours;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler is async-signal-safe (below).
    if unsafe { libc::sigaction(libc::SIGPROF, &raw const action, std::ptr::null_mut()) } != 0 {
        return Err(super::SampleError::Refused(io::Error::last_os_error()));
    }
    Ok(())
}

/// Takes a sample of the interrupted thread. It takes no lock, allocates nothing, makes no system call except to read
/// the clock, and preserves errno.
#[expect(unsafe_code, reason = "what a handler is given is the kernel's")]
extern "C" fn on_signal(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: takes no arguments, and returns the address of the thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: valid for the thread's lifetime, and used by this thread only.
    let errno = unsafe { &mut *errno };
    let before = *errno;
    // SAFETY: the kernel passes a valid record, which lives as long as the handler runs.
    let info = unsafe { &*info };
    // SAFETY: likewise; SA_SIGINFO was set.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    // A SIGPROF that no timer sent is ignored.
    if info.si_code == libc::SI_TIMER {
        take(context);
    }
    *errno = before;
}

fn take(context: &libc::ucontext_t) {
    let (Some(account), Some(registers)) = (progress::current(), registers(context)) else { return };
    match STATE.load(Ordering::Relaxed) {
        CPU => {}
        // A wall-clock timer also fires while the thread waits in the kernel; that is no sample.
        WALL if !waited(&registers, context) => {}
        _ => return,
    }
    let Some(ring) = RINGS.get(account.number() as usize).and_then(ring) else { return };
    let Some(mut writing) = ring.begin() else { return };
    let mut is_inside = false;
    progress::steps(|step| {
        is_inside = true;
        writing.step(encode(step));
    });
    walk(registers, rules::current(), &account.stack(), |address| writing.frame(address));
    // A thread that has joined no window and has no open span has never reported its work: its kind is unknown.
    let has_kind = !account.is_blocked() && (account.window.load(Ordering::Relaxed) != 0 || is_inside);
    writing.end(Record { has_kind, at: clock::now() });
}

/// A step as a word: the span's id, shifted by one, with the low bit set for a site.
fn encode(step: ContextStep) -> u64 {
    match step {
        ContextStep::Span(span) => u64::from(span.id()) << 1,
        ContextStep::Site(site) => u64::from(site.id()) << 1 | 1,
    }
}

/// The inverse of `encode`.
pub(super) fn decode(word: u64) -> ContextStep {
    let span = Span::from_id((word >> 1) as u32);
    if word & 1 == 0 { ContextStep::Span(span) } else { ContextStep::Site(span) }
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> Option<Registers> {
    let register = |number: libc::c_int| context.uc_mcontext.gregs[number as usize] as usize;
    let (pc, stack, frame) = (register(libc::REG_RIP), register(libc::REG_RSP), register(libc::REG_RBP));
    Some(Registers { pc, stack, frame, link: 0 })
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> Option<Registers> {
    let machine = &context.uc_mcontext;
    let [frame, link] = [machine.regs[29] as usize, machine.regs[30] as usize];
    Some(Registers { pc: machine.pc as usize, stack: machine.sp as usize, frame, link })
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn registers(_: &libc::ucontext_t) -> Option<Registers> {
    None
}

/// Whether the signal interrupted a wait in the kernel: the call is about to be restarted, or returns EINTR.
#[cfg(target_arch = "x86_64")]
fn waited(registers: &Registers, context: &libc::ucontext_t) -> bool {
    /// The instruction `syscall`.
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let answer = context.uc_mcontext.gregs[libc::REG_RAX as usize];
    code_at(registers.pc) == SYSCALL || answer == i64::from(-libc::EINTR) && code_at(registers.pc - 2) == SYSCALL
}

/// As for x86-64.
#[cfg(target_arch = "aarch64")]
fn waited(registers: &Registers, context: &libc::ucontext_t) -> bool {
    /// The instruction `svc #0`.
    const SVC_0: [u8; 4] = [0x01, 0x00, 0x00, 0xd4];
    let answer = context.uc_mcontext.regs[0] as i64;
    code_at(registers.pc) == SVC_0 || answer == i64::from(-libc::EINTR) && code_at(registers.pc - 4) == SVC_0
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn waited(_: &Registers, _: &libc::ucontext_t) -> bool {
    false
}

/// The bytes of the instruction at an address that the thread just executed or is about to execute; zeroes outside of
/// code.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[expect(unsafe_code, reason = "a program's code is memory that Rust has no name for")]
fn code_at<const N: usize>(address: usize) -> [u8; N] {
    if rules::current().module(address).is_none_or(|module| !module.holds(address, N)) {
        return [0; N];
    }
    // SAFETY: within the text of a loaded module, which is mapped and readable.
    unsafe { (address as *const [u8; N]).read_volatile() }
}

thread_local! {
    /// Whether this thread has SIGPROF blocked by [`block_signal`].
    static HUSHED: Cell<bool> = const { Cell::new(false) };
}

#[expect(unsafe_code, reason = "signals are the C library's")]
fn profiling_signal() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: initialises the local.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: initialised by the call above.
    let mut set = unsafe { set.assume_init() };
    // SAFETY: an initialised set, and a valid signal number.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGPROF) };
    set
}

/// Blocks SIGPROF on this thread.
#[expect(unsafe_code, reason = "signals are the C library's")]
pub(super) fn block_signal() {
    let set = profiling_signal();
    // SAFETY: a valid set; the old mask is not requested.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    HUSHED.set(true);
}

/// Unblocks SIGPROF, and discards a pending one first: it would be a sample of the wait.
#[expect(unsafe_code, reason = "signals are the C library's")]
pub(super) fn unblock_signal() {
    if HUSHED.replace(false) {
        let (set, none) = (profiling_signal(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: a valid set and timeout; the signal's record is not requested.
        unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const none) };
        // SAFETY: as in `block_signal`.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
    }
}

/// Whether the account's thread has a timer.
#[cfg(test)]
pub(super) fn has_timer(account: u32) -> bool {
    timers(|timers| timers.by_account.get(account as usize).is_some_and(Option::is_some))
}
