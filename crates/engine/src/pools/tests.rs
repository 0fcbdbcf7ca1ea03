use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// A job that reports its number when it begins, then waits for the test's signal if it has a receiver.
struct Numbered {
    number: u32,
    begun: Sender<u32>,
    go: Option<Receiver<()>>,
    is_abandoned: Arc<AtomicBool>,
}

impl Job for Numbered {
    fn run(self: Box<Self>) {
        if self.is_abandoned() {
            return;
        }
        self.begun.send(self.number).unwrap();
        if let Some(go) = self.go {
            // An error means that the test has dropped the sender, which counts as the signal.
            let _ = go.recv();
        }
    }

    fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }
}

/// Makes jobs and receives the numbers of those that have begun.
struct Jobs {
    begun: Sender<u32>,
    seen: Receiver<u32>,
}

impl Jobs {
    fn new() -> Self {
        let (begun, seen) = channel();
        Self { begun, seen }
    }

    fn job(&self, number: u32) -> Box<Numbered> {
        Box::new(Numbered { number, begun: self.begun.clone(), go: None, is_abandoned: Arc::default() })
    }

    /// Makes a job that ends when the sender is used or dropped.
    fn held(&self, number: u32) -> (Box<Numbered>, Sender<()>) {
        let (end, go) = channel();
        (Box::new(Numbered { go: Some(go), ..*self.job(number) }), end)
    }
}

fn one_thread(queue_max: usize) -> Arc<WorkPool> {
    WorkPool::new(PoolSpec::without_party_limit("test", 1, queue_max))
}

/// Occupies a thread of the pool until the sender is used or dropped.
fn occupy(pool: &Arc<WorkPool>, jobs: &Jobs, work: Work) -> Sender<()> {
    let (job, end) = jobs.held(0);
    pool.submit(work, job).unwrap();
    assert_eq!(jobs.seen.recv(), Ok(0));
    end
}

const WORK: fn() -> Work = || Work::of(WorkKind::Blocking);

#[test]
fn a_pool_keeps_order_bounds_its_queue_and_survives_a_panic() {
    struct Panics;
    impl Job for Panics {
        fn run(self: Box<Self>) {
            panic!("a job's panic stays in the pool");
        }
        fn is_abandoned(&self) -> bool {
            false
        }
    }
    let (pool, jobs) = (one_thread(2), Jobs::new());
    let end = occupy(&pool, &jobs, WORK());
    pool.submit(WORK(), Box::new(Panics)).unwrap();
    pool.submit(WORK(), jobs.job(2)).unwrap();
    assert_eq!(pool.submit(WORK(), jobs.job(3)), Err(Busy));
    end.send(()).unwrap();
    assert_eq!(jobs.seen.recv(), Ok(2));
    assert_eq!(pool.lock().threads, 1);
}

// With the queue of any one kind full, every other kind accepts and runs jobs.
#[test]
fn a_full_queue_of_one_kind_does_not_refuse_other_kinds() {
    for flooded in WorkKind::ALL {
        let pools = WorkPools::new(BlockingSpec { threads_max: 1, queue_max: 1 }, 1);
        let jobs = Jobs::new();
        let mut held = Vec::new();
        // Each job has its own party, so the queue fills up and not a party's share.
        for number in 0.. {
            let (job, end) = jobs.held(0);
            held.push(end);
            if pools.submit(Work::of(flooded).for_party("test", number), job) == Err(Busy) {
                break;
            }
        }
        for (number, kind) in (1..).zip(WorkKind::ALL) {
            if kind == flooded {
                continue;
            }
            pools.submit(Work::of(kind), jobs.job(number)).expect("its queue is empty");
            let mut begun = jobs.seen.recv();
            while begun == Ok(0) {
                begun = jobs.seen.recv();
            }
            assert_eq!(begun, Ok(number), "{kind:?} while {flooded:?} is full");
        }
    }
}

#[test]
fn abandoned_jobs_leave_the_queue_and_do_not_run() {
    let (pool, jobs) = (one_thread(3), Jobs::new());
    let end = occupy(&pool, &jobs, WORK());
    let mut flags = Vec::new();
    for number in 1..=3 {
        let job = jobs.job(number);
        flags.push(Arc::clone(&job.is_abandoned));
        pool.submit(WORK(), job).unwrap();
    }
    assert_eq!(pool.submit(WORK(), jobs.job(4)), Err(Busy));
    flags[0].store(true, Ordering::Relaxed);
    flags[2].store(true, Ordering::Relaxed);
    pool.submit(WORK(), jobs.job(5)).unwrap();
    pool.submit(WORK(), jobs.job(6)).unwrap();
    assert_eq!(pool.submit(WORK(), jobs.job(7)), Err(Busy));
    drop(end);
    assert_eq!([jobs.seen.recv(), jobs.seen.recv(), jobs.seen.recv()], [Ok(2), Ok(5), Ok(6)]);
}

// One client must not hold the whole pool for blocking work; jobs without a party may fill it.
#[test]
fn a_party_gets_only_a_quarter_of_the_pool_for_blocking_work() {
    let spec = PoolSpec::of(WorkKind::Blocking, BlockingSpec { threads_max: 8, queue_max: 8 }, 1);
    let (pool, jobs) = (WorkPool::new(spec), Jobs::new());
    let client = |number: u32| WORK().for_party("client", number);
    let mut held = Vec::new();
    let mut run = |work, number| {
        let (job, end) = jobs.held(number);
        held.push(end);
        pool.submit(work, job)
    };
    for (work, number) in [(client(1), 1), (client(1), 2)] {
        assert_eq!((run(work, number), jobs.seen.recv()), (Ok(()), Ok(number)));
    }
    // Two jobs of client 1 run, and two wait.
    assert_eq!([3, 4, 5].map(|number| run(client(1), number)), [Ok(()), Ok(()), Err(Busy)]);
    assert_eq!((run(client(2), 6), jobs.seen.recv()), (Ok(()), Ok(6)));
    for number in 7..=11 {
        assert_eq!((run(WORK(), number), jobs.seen.recv()), (Ok(()), Ok(number)));
    }
    // All threads are busy.
    assert_eq!([12, 13, 14, 15, 16, 17].map(|number| run(WORK(), number)), [Ok(()); 6]);
    assert_eq!(run(WORK(), 18), Err(Busy), "the queue is full");
}

#[test]
fn a_party_gets_only_its_share_of_the_queue() {
    let spec = PoolSpec { party_queue_max: 2, ..PoolSpec::without_party_limit("test", 1, 8) };
    let (pool, jobs) = (WorkPool::new(spec), Jobs::new());
    let _end = occupy(&pool, &jobs, WORK());
    let of = |client: u32, account: &str| WORK().for_party("client", client).for_party("account", account);
    let first = jobs.job(1);
    let gone = Arc::clone(&first.is_abandoned);
    for (work, job, want) in [
        (of(1, "alice"), first, Ok(())),
        (of(1, "bob"), jobs.job(2), Ok(())),
        // Client 1 has two queued jobs. So has account alice after the next line, from two clients.
        (of(1, "carol"), jobs.job(3), Err(Busy)),
        (of(2, "alice"), jobs.job(4), Ok(())),
        (of(3, "alice"), jobs.job(5), Err(Busy)),
        (of(3, "carol"), jobs.job(6), Ok(())),
        (WORK(), jobs.job(7), Ok(())),
    ] {
        assert_eq!(pool.submit(work, job), want);
    }
    // An abandoned job does not count against its client.
    gone.store(true, Ordering::Relaxed);
    assert_eq!(pool.submit(of(1, "dave"), jobs.job(8)), Ok(()));
}

#[test]
fn a_party_gets_only_its_share_of_the_threads() {
    let spec = PoolSpec { party_threads_max: 1, ..PoolSpec::without_party_limit("test", 2, 8) };
    let (pool, jobs) = (WorkPool::new(spec), Jobs::new());
    let hangs = || WORK().for_party("name", "hangs.test");
    let end = occupy(&pool, &jobs, hangs());
    pool.submit(WORK(), jobs.job(0)).unwrap();
    assert_eq!(jobs.seen.recv(), Ok(0));
    while pool.lock().running.len() > 1 {
        std::thread::yield_now();
    }
    pool.submit(hangs(), jobs.job(1)).unwrap();
    // The second thread is free, and skips the queued job of `hangs.test`. Without a wakeup it would sleep for
    // `THREAD_IDLE_TIMEOUT`.
    pool.submit(WORK().for_party("name", "answers.test"), jobs.job(2)).unwrap();
    assert_eq!(jobs.seen.recv_timeout(THREAD_IDLE_TIMEOUT / 2), Ok(2));
    drop(end);
    assert_eq!(jobs.seen.recv(), Ok(1));
}

// setpriority(2): to raise a priority needs a permission. Niceness is relative to the server's, at most 19.
#[test]
fn a_pool_is_never_above_the_server() {
    let niceness = |of| getpriority_process(of).unwrap();
    let server = niceness(Some(getpid()));
    for (inherited, want) in [(0, 10), (3, 10), (10, 10), (15, 15), (19, 19)] {
        let lowered = std::thread::spawn(move || {
            setpriority_process(None, (server + inherited).min(NICE_LOWEST)).unwrap();
            lower_priority(NICE_MIDDLE).unwrap();
            niceness(None)
        });
        assert_eq!(lowered.join().unwrap(), (server + want).min(NICE_LOWEST), "{inherited}");
    }
}
