use std::collections::HashSet;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::*;

/// Work that the compiler cannot remove, in a function of its own.
#[inline(never)]
fn burn(rounds: u64) -> u64 {
    (0..rounds).fold(1, |sum: u64, at| black_box(sum.wrapping_mul(31).wrapping_add(at)))
}

fn until(why: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "{why}: not within 20 s");
    }
}

/// Spawns a registered thread that burns until `end` is set; returns its account's number.
fn burner<'scope>(scope: &'scope thread::Scope<'scope, '_>, end: &'scope AtomicBool) -> u32 {
    let (sender, receiver) = std::sync::mpsc::channel();
    scope.spawn(move || {
        progress::register_thread();
        sender.send(progress::current().unwrap().number()).unwrap();
        while !end.load(Ordering::Relaxed) {
            burn(10_000);
        }
    });
    receiver.recv().unwrap()
}

/// Sets `end` when it is dropped, also if a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether the address is in the function, assuming that its code is at most 4 KiB in every build profile.
fn is_in(address: usize, function: usize) -> bool {
    (function..function + 4096).contains(&address)
}

#[test]
fn samples_show_the_busy_function() {
    let _alone = alone();
    for rate in [Rate::Cpu, Rate::Wall] {
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            let _ends = Ends(&end);
            let busy = burner(scope, &end);
            let mut sampler = Sampler::start(rate).unwrap();
            let (mut here, mut all, mut deep) = (0, 0, 0);
            until("a hundred samples", || {
                thread::sleep(Duration::from_millis(20));
                sampler.drain(|sample| {
                    if sample.account == busy {
                        all += 1;
                        here += usize::from(sample.frames.iter().any(|&at| is_in(at, burn as *const () as usize)));
                        deep += usize::from(sample.frames.len() >= 4);
                        assert!(sample.at > 0 && !sample.frames.is_empty());
                        assert_eq!(sample.kind, 0, "it never told of itself");
                    }
                });
                all >= 100
            });
            assert!(here * 10 >= all * 9, "{rate:?}: {here} of {all}");
            assert!(deep * 10 >= all * 9, "{rate:?}: {deep} of {all} stacks have four frames");
        });
    }
}

/// Samples have equal weights, also for a thread that rests after each millisecond of work. The bounds are wide: for a
/// while ticks may find the thread at rest more often than not.
#[test]
fn the_samples_add_up_to_the_time_worked() {
    let _alone = alone();
    let end = &AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(end);
        let (sender, receiver) = std::sync::mpsc::channel();
        scope.spawn(move || {
            progress::register_thread();
            sender.send(progress::current().unwrap().number()).unwrap();
            for turn in 0_u64.. {
                if end.load(Ordering::Relaxed) {
                    break;
                }
                let began = Instant::now();
                while began.elapsed() < Duration::from_micros(700 + turn * 37 % 600) {
                    burn(100);
                }
                thread::sleep(Duration::from_micros(300 + turn * 53 % 900));
            }
        });
        let worker = receiver.recv().unwrap();
        let account = accounts().into_iter().find(|account| account.number() == worker).unwrap();
        let mut sampler = Sampler::start(Rate::Cpu).unwrap();
        let (before, mut samples) = (cpu_time(account).unwrap(), 0);
        until("half a second of work", || {
            thread::sleep(Duration::from_millis(20));
            sampler.drain(|sample| samples += u64::from(sample.account == worker));
            cpu_time(account).unwrap() - before > 500_000_000
        });
        let worked = (cpu_time(account).unwrap() - before) as f64;
        let seen = (samples * Rate::Cpu.period()) as f64;
        assert!((0.6..1.6).contains(&(seen / worked)), "{samples} samples for {worked} ns");
    });
}

#[test]
fn one_sampler_at_a_time_and_no_leftovers() {
    let _alone = alone();
    let sampler = Sampler::start(Rate::Cpu).unwrap();
    assert!(matches!(Sampler::start(Rate::Cpu), Err(SampleError::Running)));
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&end);
        let busy = burner(scope, &end);
        let mut sampler = sampler;
        sampler.refresh();
        assert!(signal::has_timer(busy));
        drop(sampler);
        assert!(!signal::has_timer(busy));
    });
    drop(Sampler::start(Rate::Wall).unwrap());
}

#[test]
#[expect(unsafe_code, reason = "signals are the C library's")]
fn an_existing_signal_handler_is_not_replaced() {
    let _alone = alone();
    extern "C" fn existing_handler(_: libc::c_int) {}
    // SAFETY: installs a handler that does nothing, or the previous one.
    let before = unsafe { libc::signal(libc::SIGPROF, existing_handler as extern "C" fn(_) as libc::sighandler_t) };
    let refused = Sampler::start(Rate::Cpu);
    // SAFETY: as above.
    let now = unsafe { libc::signal(libc::SIGPROF, before) };
    assert_eq!(now, existing_handler as extern "C" fn(_) as libc::sighandler_t);
    assert!(matches!(refused, Err(SampleError::Handler)), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("SIGPROF"));
    // A refused start does not count as running.
    drop(Sampler::start(Rate::Cpu).unwrap());
}

#[test]
fn an_ended_thread_is_noticed_and_its_timer_removed() {
    let _alone = alone();
    let mut sampler = Sampler::start(Rate::Cpu).unwrap();
    let end = AtomicBool::new(false);
    let busy = thread::scope(|scope| {
        let _ends = Ends(&end);
        let busy = burner(scope, &end);
        sampler.refresh();
        assert!(signal::has_timer(busy));
        thread::sleep(Duration::from_millis(100));
        busy
    });
    let account = accounts().into_iter().find(|account| account.number() == busy).unwrap();
    until("the thread's end", || account.tid().is_none());
    assert_eq!(cpu_time(account), None);
    sampler.refresh();
    let mut seen = 0;
    sampler.drain(|sample| seen += usize::from(sample.account == busy));
    assert!(seen > 0);
    assert!(!signal::has_timer(busy));
}

#[test]
fn a_hundred_threads_are_distinguished() {
    let _alone = alone();
    let (end, turn, seen) = (AtomicBool::new(false), Mutex::new(()), Mutex::new(HashSet::new()));
    let ready = Barrier::new(101);
    thread::scope(|scope| {
        let _ends = Ends(&end);
        for _ in 0..100 {
            scope.spawn(|| {
                progress::register_thread();
                let number = progress::current().unwrap().number();
                ready.wait();
                // All threads exist; each is busy in turn until it was sampled.
                let turn = turn.lock();
                while !seen.lock().unwrap().contains(&number) && !end.load(Ordering::Relaxed) {
                    burn(100_000);
                }
                drop(turn);
                while !end.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
        let mut sampler = Sampler::start(Rate::Cpu).unwrap();
        ready.wait();
        until("each of them", || {
            thread::sleep(Duration::from_millis(2));
            sampler.refresh();
            sampler.drain(|sample| {
                seen.lock().unwrap().insert(sample.account);
            });
            seen.lock().unwrap().len() >= 100
        });
        assert_eq!(sampler.lost(), Lost::default());
    });
}

#[test]
fn samples_that_are_not_collected_are_lost_and_counted() {
    let _alone = alone();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ends = Ends(&end);
        let busy = burner(scope, &end);
        let mut sampler = Sampler::start(Rate::Wall).unwrap();
        until("a full ring", || sampler.lost().samples > 0);
        let mut seen = 0;
        sampler.drain(|sample| seen += usize::from(sample.account == busy));
        assert!(seen > 50);
        // The ring accepts samples again.
        until("another one", || {
            let mut more = 0;
            sampler.drain(|sample| more += usize::from(sample.account == busy));
            more > 0
        });
    });
}

/// POSIX signal(7): read is restarted under SA_RESTART; a handler must leave errno as it was.
#[test]
#[expect(unsafe_code, reason = "errno and pipes are the C library's")]
fn a_blocking_read_is_not_interrupted_and_errno_is_kept() {
    let _alone = alone();
    let mut ends = [0; 2];
    // SAFETY: the array has room for both ends.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let [reads, writes] = ends;
    let (taken, end) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let (taken, end) = (&taken, &end);
        let _ends = Ends(end);
        scope.spawn(move || {
            progress::register_thread();
            let mut byte = 0_u8;
            // SAFETY: room for one byte; the end is closed after this thread has finished.
            let answer = unsafe { libc::read(reads, (&raw mut byte).cast(), 1) };
            assert_eq!((answer, byte), (1, 7), "{}", io::Error::last_os_error());
            // Now the thread is busy, and checks that its errno does not change.
            // SAFETY: the thread's own errno.
            let errno = unsafe { libc::__errno_location() };
            // SAFETY: as above.
            let errno = unsafe { &mut *errno };
            *errno = libc::EXDEV;
            while taken.load(Ordering::Relaxed) < 30 && !end.load(Ordering::Relaxed) {
                burn(10_000);
                assert_eq!(black_box(&*errno), &libc::EXDEV);
            }
        });
        let mut sampler = Sampler::start(Rate::Wall).unwrap();
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(100) {
            sampler.refresh();
            // While it waits it is not sampled.
            sampler.drain(|_| {});
            thread::sleep(Duration::from_millis(5));
        }
        // SAFETY: writes one byte from a local.
        assert_eq!(unsafe { libc::write(writes, [7_u8].as_ptr().cast(), 1) }, 1);
        until("samples of the busy thread", || {
            thread::sleep(Duration::from_millis(5));
            sampler.drain(|_| {
                taken.fetch_add(1, Ordering::Relaxed);
            });
            taken.load(Ordering::Relaxed) >= 30
        });
    });
    for end in ends {
        // SAFETY: not used any more.
        unsafe { libc::close(end) };
    }
}

#[test]
fn a_waiting_thread_is_not_sampled_by_wall_time() {
    let _alone = alone();
    thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            progress::register_thread();
            sender.send(progress::current().unwrap().number()).unwrap();
            // A wait that the kernel restarts, then one that it does not.
            assert!(gone.recv().is_err());
            thread::sleep(Duration::from_millis(200));
        });
        let waits = receiver.recv().unwrap();
        let mut sampler = Sampler::start(Rate::Wall).unwrap();
        let mut seen = 0;
        thread::sleep(Duration::from_millis(200));
        sampler.drain(|sample| seen += u32::from(sample.account == waits));
        drop(go);
        thread::sleep(Duration::from_millis(150));
        sampler.drain(|sample| seen += u32::from(sample.account == waits));
        // Of 350 ticks, only those between the two waits may hit.
        assert!(seen < 35, "{seen}");
    });
}

#[test]
fn a_masked_wait_is_not_interrupted() {
    let _alone = alone();
    thread::scope(|scope| {
        let _sampler = Sampler::start(Rate::Wall).unwrap();
        let waits = scope.spawn(|| {
            progress::register_thread();
            thread_began(progress::current().unwrap());
            let interrupted = wait_50_ms();
            before_block();
            let masked = wait_50_ms();
            after_block();
            (interrupted, masked, wait_50_ms())
        });
        assert_eq!(waits.join().unwrap(), (true, false, true));
    });
    // Without a sampler these block no signal.
    before_block();
    after_block();
}

/// Waits 50 ms in a call that is never restarted (signal(7)). Returns whether it was interrupted.
#[expect(unsafe_code, reason = "the standard library hides that a wait was interrupted")]
fn wait_50_ms() -> bool {
    // SAFETY: polls no file descriptor.
    let answer = unsafe { libc::poll(std::ptr::null_mut(), 0, 50) };
    answer == -1 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
}

/// Signals arrive during allocations, unwinding panics, and the loading and unloading of shared objects.
#[test]
#[expect(unsafe_code, reason = "objects are loaded by the C library")]
fn a_storm_of_signals_does_no_harm() {
    let _alone = alone();
    let library = fs::read_to_string("/proc/self/maps").unwrap();
    let library = library.split_whitespace().find(|word| word.contains("libc.so")).map(str::to_owned);
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let (end, library) = (&end, library.as_deref());
        let _ends = Ends(end);
        for what in 0..3 {
            scope.spawn(move || {
                progress::register_thread();
                let mut kept = Vec::new();
                while !end.load(Ordering::Relaxed) {
                    match what {
                        0 => kept.push(vec![1_u8; 1 + kept.len() * 37 % 9000]),
                        1 => {
                            let thrown = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(burn(100))));
                            assert!(thrown.is_err());
                        }
                        _ => {
                            let name = library.and_then(|name| name.rsplit_once('/')).map(|(directory, _)| directory);
                            let name =
                                name.map(|directory| std::ffi::CString::new(format!("{directory}/libm.so.6")).unwrap());
                            let Some(name) = name else { return };
                            // SAFETY: an ordinary library, whose constructors and destructors have no effect.
                            let object = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
                            if !object.is_null() {
                                // SAFETY: opened above.
                                unsafe { libc::dlclose(object) };
                            }
                        }
                    }
                    if kept.len() > 1000 {
                        kept.clear();
                    }
                }
            });
        }
        let mut sampler = Sampler::start(Rate::Wall).unwrap();
        let (mut seen, began) = (0, Instant::now());
        while began.elapsed() < Duration::from_millis(700) || seen < 100 {
            sampler.refresh();
            sampler.drain(|sample| seen += sample.frames.len().min(1));
            for account in accounts() {
                storm(account);
            }
            assert!(began.elapsed() < Duration::from_secs(20));
        }
    });
}

/// Sends the signal to a thread without a timer, as any process may: the handler ignores it.
#[expect(unsafe_code, reason = "signals are the C library's")]
fn storm(account: &Account) {
    if let Some(tid) = account.tid() {
        let process = std::process::id();
        // SAFETY: a signal with a handler; for a thread that has ended it is an error.
        unsafe { libc::syscall(libc::SYS_tgkill, process, tid, libc::SIGPROF) };
    }
}
