//! Readable file names: without the prefixes that differ between machines.

/// The owner of a piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// The program's own workspace.
    Program,
    /// A package that the program depends on.
    Package,
    /// Rust's own libraries.
    Rust,
    /// The C library, or another shared object.
    System,
}

/// The file's name relative to its package or workspace: `tokio/src/runtime/task/mod.rs`, `std/src/thread/mod.rs`,
/// `crates/h1/src/parse.rs`. `directories` are the directories in which the program was compiled, longest first.
pub(super) fn readable(file: &str, directories: &[String]) -> (String, Origin) {
    let file = file.replace("/./", "/");
    let behind = |mark: &str| file.split_once(mark).map(|(_, rest)| rest);
    if let Some(rest) = behind("/registry/src/").and_then(|rest| rest.split_once('/')).map(|(_, rest)| rest) {
        return (without_version(rest), Origin::Package);
    }
    if let Some(rest) = behind("/git/checkouts/") {
        // Layout: name-hash/revision/path.
        let mut parts = rest.splitn(3, '/');
        if let (Some(name), Some(_), Some(path)) = (parts.next(), parts.next(), parts.next()) {
            let name = name.rsplit_once('-').map_or(name, |(name, _)| name);
            return (format!("{name}/{path}"), Origin::Package);
        }
    }
    if let Some(rest) = behind("/rust/deps/") {
        return (without_version(rest), Origin::Rust);
    }
    if file.contains("/rustc/") || file.contains("/rustlib/src/rust/") {
        return match file.split_once("/library/") {
            Some((_, rest)) => (rest.to_owned(), Origin::Rust),
            None => (file, Origin::Rust),
        };
    }
    for directory in directories {
        if let Some(rest) = file.strip_prefix(directory.as_str()).and_then(|rest| rest.strip_prefix('/')) {
            return (rest.to_owned(), Origin::Program);
        }
    }
    let origin = if file.starts_with('/') { Origin::System } else { Origin::Program };
    (file.trim_start_matches("./").to_owned(), origin)
}

/// Turns `name-1.2.3/src/lib.rs` into `name/src/lib.rs`.
fn without_version(path: &str) -> String {
    let (package, rest) = path.split_once('/').unwrap_or((path, ""));
    let is_version = |at: &usize| {
        let mut numbers = package[at + 1..].splitn(3, '.');
        let is_number = |part: Option<&str>| part.is_some_and(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        is_number(numbers.next()) && is_number(numbers.next()) && numbers.next().is_some()
    };
    let end = package.match_indices('-').map(|(at, _)| at).find(is_version).unwrap_or(package.len());
    format!("{}/{rest}", &package[..end])
}

/// The module of a file, by the root files and names of crates: `/w/crates/h1/src/read/body.rs` is `h1::read::body`.
pub(super) fn module(file: &str, crates: &[(String, String)]) -> Option<String> {
    let file = file.replace("/./", "/");
    let directory = |root: &str| root.rfind('/').map_or(0, |at| at + 1);
    let of_file = crates.iter().filter(|(root, _)| *root == file || file.starts_with(&root[..directory(root)]));
    // A directory may have the roots of a library and of programs: a file that is no root belongs to the library.
    let (root, name) = of_file.max_by_key(|(root, _)| (*root == file, directory(root), root.ends_with("/lib.rs")))?;
    let inside = if *root == file { "" } else { &file[directory(root)..] };
    let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    let parts = std::iter::once(name.as_str()).chain(inside.split('/').filter(|part| !part.is_empty()));
    Some(parts.collect::<Vec<_>>().join("::"))
}

/// The owner by a function's name, for code whose file is unknown.
pub(super) fn by_function(name: &str) -> Option<Origin> {
    let path = name.trim_start_matches(['<', '&', '*']);
    let package = path.split("::").next()?;
    let is_rust =
        ["std", "core", "alloc", "test", "proc_macro", "__rustc", "rust_begin_unwind", "hashbrown"].contains(&package);
    is_rust.then_some(Origin::Rust)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_dependent_parts_of_paths_are_omitted() {
        let directories = ["/home/u/app/crates/deep".to_owned(), "/home/u/app".to_owned()];
        let cases = [
            ("/home/u/app/src/main.rs", "src/main.rs", Origin::Program),
            ("/home/u/app/crates/deep/src/lib.rs", "src/lib.rs", Origin::Program),
            ("/home/u/app/./crates/h1/src/lib.rs", "crates/h1/src/lib.rs", Origin::Program),
            ("/home/u/apparent/src/lib.rs", "/home/u/apparent/src/lib.rs", Origin::System),
            ("src/main.rs", "src/main.rs", Origin::Program),
            ("./src/main.rs", "src/main.rs", Origin::Program),
            (
                "/home/u/.cargo/registry/src/index.example-0123/tokio-1.54.0/src/runtime/park.rs",
                "tokio/src/runtime/park.rs",
                Origin::Package,
            ),
            ("/c/registry/src/i/aws-lc-sys-0.30.0-rc.1/a/b.c", "aws-lc-sys/a/b.c", Origin::Package),
            ("/c/registry/src/i/md-5-0.10.6/src/lib.rs", "md-5/src/lib.rs", Origin::Package),
            ("/c/git/checkouts/some-name-0123abc/4567/src/lib.rs", "some-name/src/lib.rs", Origin::Package),
            ("/rustc/0123/library/std/src/io/mod.rs", "std/src/io/mod.rs", Origin::Rust),
            ("/x/lib/rustlib/src/rust/library/core/src/fmt/mod.rs", "core/src/fmt/mod.rs", Origin::Rust),
            ("/rust/deps/hashbrown-0.15.2/src/raw/mod.rs", "hashbrown/src/raw/mod.rs", Origin::Rust),
            ("/build/glibc/string/memcpy.S", "/build/glibc/string/memcpy.S", Origin::System),
        ];
        for (file, want, origin) in cases {
            assert_eq!(readable(file, &directories), (want.to_owned(), origin), "{file}");
        }
    }

    #[test]
    fn a_file_is_a_module_of_the_crate_whose_root_is_nearest() {
        let crates = [
            ("/w/h1/src/lib.rs", "h1"),
            ("/w/h1/src/main.rs", "tool"),
            ("/w/src/lib.rs", "app"),
            ("/w/h1/examples/x.rs", "x"),
        ];
        let crates = crates.map(|(root, name)| (root.to_owned(), name.to_owned()));
        for (file, want) in [
            ("/w/h1/src/lib.rs", Some("h1")),
            ("/w/h1/src/main.rs", Some("tool")),
            ("/w/h1/src/read/body.rs", Some("h1::read::body")),
            ("/w/h1/src/read/mod.rs", Some("h1::read")),
            ("/w/./src/a.rs", Some("app::a")),
            ("/w/h1/examples/x.rs", Some("x")),
            ("/elsewhere/a.rs", None),
        ] {
            assert_eq!(module(file, &crates).as_deref(), want, "{file}");
        }
    }

    #[test]
    fn functions_of_the_standard_library_are_recognised() {
        for (name, want) in [
            ("core::fmt::write", Some(Origin::Rust)),
            ("<alloc::vec::Vec<u8> as Drop>::drop", Some(Origin::Rust)),
            ("<&std::fs::File as Read>::read", Some(Origin::Rust)),
            ("app::core::run", None),
        ] {
            assert_eq!(by_function(name), want, "{name}");
        }
    }
}
