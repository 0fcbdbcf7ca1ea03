//! An axum router on Causeway's engine. Usage: `axum_edge PORT WORKERS`.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next()?.parse::<u16>().ok();
    let (Some(port), Some(workers)) = (number(), number()) else { panic!("usage: axum_edge PORT WORKERS") };
    let server = tower_edge::Server::builder().listen(format!("127.0.0.1:{port}")).workers(usize::from(workers));
    let _running = server.start(answer::router::router()).unwrap_or_else(|error| panic!("{error}"));
    // Serve until a signal ends the process.
    loop {
        std::thread::park();
    }
}
