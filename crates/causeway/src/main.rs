//! The `causeway` binary. The `cli` module defines its commands and flags.

mod cli;

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Without huge pages of 2 MiB the server's memory grows with its connections. mimalloc is built so that it requests
    // none; this is for systems where every process has them. The result is ignored: a kernel without huge pages needs
    // no change.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    causal::profiler::on_freed(give_back);
    cli::main()
}

/// Returns freed memory to the system, whichever thread freed it. The profiler calls this after it drops its data.
#[expect(unsafe_code, reason = "the allocator's crate has no safe face for it")]
fn give_back() {
    unsafe extern "C" {
        fn mi_collect(force: bool);
    }
    // SAFETY: mimalloc's documented function, part of the allocator that is linked here; any thread may call it at any
    // time.
    unsafe { mi_collect(true) };
}
