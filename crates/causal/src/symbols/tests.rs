use super::here::here;
use super::*;

#[inline(always)]
fn inner() -> usize {
    let address = here();
    std::hint::black_box(address + 1) - 1
}

#[inline(never)]
fn outer() -> usize {
    let address = inner();
    std::hint::black_box(address + 1) - 1
}

#[test]
fn functions_inlined_ones_and_lines_have_names() {
    let mut symbols = Symbolizer::new();
    let address = outer() - 1;
    let places = symbols.places(address);
    let names: Vec<_> = places.iter().map(|place| symbols.name(place.function).to_owned()).collect();
    assert!(names[0].ends_with("symbols::tests::inner"), "{names:?}");
    assert!(names[1].ends_with("symbols::tests::outer"), "{names:?}");
    assert!(places[0].is_inlined && !places[1].is_inlined, "{places:?}");
    for (place, line) in places.iter().zip(5..) {
        let text = symbols.name(place.line.unwrap());
        assert!(text.starts_with("crates/causal/src/symbols/tests.rs:"), "{text}");
        let number: u32 = text.rsplit(':').next().unwrap().parse().unwrap();
        assert!((line..line + 10).contains(&number), "{text}");
        assert_eq!(place.origin, Origin::Program);
    }
    assert_eq!(symbols.symbols(), Symbols::Lines);
    assert_eq!(symbols.places(address), places);
}

#[test]
fn functions_of_shared_objects_have_names() {
    let mut symbols = Symbolizer::new();
    let places = symbols.places(libc::getenv as *const () as usize);
    let name = symbols.name(places[0].function);
    // In a statically linked program `getenv` is part of the program.
    assert!(name.contains("getenv"), "{name}");
    assert_eq!(symbols.symbols(), Symbols::Lines, "no address of the program was looked up");
}

#[test]
fn addresses_outside_code_have_a_distinct_name() {
    let mut symbols = Symbolizer::new();
    for address in [0, 1, usize::MAX] {
        let places = symbols.places(address);
        assert_eq!(symbols.name(places[0].function), "[unknown]");
    }
}

#[test]
fn the_symbol_table_is_used_without_line_tables() {
    // A lookup in stripped copies of this program; skipped if `strip` is not installed.
    let here = std::env::current_exe().unwrap();
    let directory = std::env::temp_dir().join(format!("causal-symbols-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let module = modules::list(|_, _| false).swap_remove(0);
    let address = outer() - 1;
    for (flag, want, name) in
        [("--strip-debug", Symbols::Functions, "outer"), ("--strip-all", Symbols::None, "[program]")]
    {
        let copy = directory.join(&flag[2..]);
        let stripped = std::process::Command::new("strip").arg(flag).arg("-o").arg(&copy).arg(&here).status();
        if !stripped.is_ok_and(|status| status.success()) {
            eprintln!("skipped: there is no `strip` here");
            break;
        }
        let mut symbols = Symbolizer::new();
        symbols.see_modules();
        symbols.modules[0] = LoadedModule { module: module.clone(), tables: Some(FileSymbols::read(&copy)) };
        let places = symbols.places(address);
        let found = symbols.name(places.last().unwrap().function).to_owned();
        assert!(found.ends_with(name), "{flag}: {found}");
        assert_eq!((places.len(), places[0].line, symbols.symbols()), (1, None, want), "{flag}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
