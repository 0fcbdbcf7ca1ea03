//! Twenty tasks of one worker that prepare five requests each, like connections. They are either started anew each
//! time, as in Caddy's benchmark, or already exist and are woken, like open connections.

use std::cell::RefCell;
use std::rc::Rc;

use causeway_h1::{Limits, parse_head};
use causeway_pipeline::{Context, Generation, Spare};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_local;

use crate::prepare::PreparedPlan;
use crate::{Cost, TimedCase, request};

const WORKERS: usize = 20;
const EACH: usize = 5;

/// The state that the tasks share on their thread.
struct SharedTasks {
    bench: PreparedPlan,
    /// Storage with a parsed head, ready to prepare.
    ready: RefCell<Vec<Spare>>,
    done: RefCell<Vec<Spare>>,
}

impl SharedTasks {
    fn new() -> Rc<Self> {
        let (bench, worker) = PreparedPlan::new();
        let vacant = Generation::vacant();
        let spares = (0..WORKERS * EACH).map(|_| Spare::new(Rc::clone(&worker), Rc::clone(&vacant)));
        let done = RefCell::new(spares.collect());
        Rc::new(Self { bench, ready: RefCell::new(Vec::with_capacity(WORKERS * EACH)), done })
    }

    fn make_ready(&self, bytes: &[u8], limits: &Limits) {
        for mut spare in self.done.borrow_mut().drain(..) {
            parse_head(bytes, limits, spare.head_mut()).expect("a good head");
            self.ready.borrow_mut().push(spare);
        }
    }

    /// The work of one task.
    fn work(&self) {
        for _ in 0..EACH {
            let spare = self.ready.borrow_mut().pop().expect("as many are ready as are worked on");
            let cx = self.bench.prepare_plain(spare);
            let spare = Context::recycle(std::hint::black_box(cx));
            self.done.borrow_mut().push(spare);
        }
    }
}

/// Returns the cases of the table; a turn is the work of all twenty tasks.
pub fn all() -> Vec<TimedCase<'static>> {
    let bytes = request::browser("/articles/2026/11/a-page.html?page=2");
    let runtime =
        || Builder::new_current_thread().build_local(LocalOptions::default()).expect("a runtime without drivers");
    vec![
        case("20 started, 5 each", bytes.clone(), runtime(), |runtime, desk| {
            runtime.block_on(async {
                let tasks = [(); WORKERS].map(|()| {
                    let desk = Rc::clone(desk);
                    spawn_local(async move { desk.work() })
                });
                for task in tasks {
                    task.await.expect("it does not panic");
                }
            });
        }),
        woken(bytes, runtime()),
    ]
}

fn woken(bytes: String, runtime: LocalRuntime) -> TimedCase<'static> {
    let asked: Rc<[Notify; WORKERS]> = Rc::new([(); WORKERS].map(|()| Notify::new()));
    let (done, mut ended) = mpsc::channel(WORKERS);
    let mut started = false;
    case("20 woken, 5 each", bytes, runtime, move |runtime, desk| {
        runtime.block_on(async {
            if !std::mem::replace(&mut started, true) {
                for number in 0..WORKERS {
                    let (desk, asked, done) = (Rc::clone(desk), Rc::clone(&asked), done.clone());
                    spawn_local(async move {
                        loop {
                            asked[number].notified().await;
                            desk.work();
                            done.send(()).await.expect("the case is there as long as its tasks");
                        }
                    });
                }
            }
            asked.iter().for_each(Notify::notify_one);
            for _ in 0..WORKERS {
                ended.recv().await.expect("the tasks live as long as the case");
            }
        });
    })
}

/// Creates a case. Parsing the heads is not timed.
fn case(
    name: &'static str,
    bytes: String,
    runtime: LocalRuntime,
    mut all: impl FnMut(&LocalRuntime, &Rc<SharedTasks>) + 'static,
) -> TimedCase<'static> {
    let (desk, limits) = (SharedTasks::new(), Limits::default());
    let turns = move |turns| {
        let mut sum = Cost::default();
        for _ in 0..turns {
            desk.make_ready(bytes.as_bytes(), &limits);
            sum.add(Cost::of(|| all(&runtime, &desk)));
            assert_eq!(desk.done.borrow().len(), WORKERS * EACH);
        }
        sum
    };
    TimedCase { name, turns: Box::new(turns) }
}
