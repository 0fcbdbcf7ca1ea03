//! The command line. See `cli` for what it accepts.

mod cli;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The allocator asks for huge pages, 2 MiB each; a server's memory is to grow with its connections instead. Where the
    // kernel has none there is nothing to refuse.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    cli::main()
}
