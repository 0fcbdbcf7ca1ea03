//! The documentation's configurations are valid, and its lists are complete.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::client::get;
use crate::process::Directory;

/// Checks every fenced block of README.md and docs/ that is marked as a Caddyfile or as JSON.
#[test]
fn configurations_in_the_documentation_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut checked = 0;
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|extension| extension == "md"));
    for page in pages.chain([root.join("README.md")]) {
        let text = std::fs::read_to_string(&page).unwrap();
        for (language, file) in [("caddyfile", "Caddyfile"), ("json", "config.json")] {
            for block in text.split(&format!("```{language}\n")).skip(1) {
                let block = block.split("\n```").next().unwrap();
                let directory = Directory::with(&[(file, block)]);
                let mut validate = directory.command(&["validate", "--config", file]);
                // Secrets that blocks read.
                validate.env("CF_API_TOKEN", "a").env("ZEROSSL_API_KEY", "b");
                let output = validate.output().unwrap();
                assert_eq!(
                    output.status.code(),
                    Some(0),
                    "{}: {}",
                    page.display(),
                    String::from_utf8_lossy(&output.stderr)
                );
                checked += 1;
            }
        }
    }
    assert!(checked >= 50, "only {checked} blocks found; are they marked differently now?");
}

/// Runs the commands of README.md's first site, as an ordinary user. The result must match the page.
#[test]
fn the_commands_of_the_readme_serve_a_site() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (_, chapter) = text.split_once("\n## Your own site\n").expect("the chapter");
    let block = |before: &str| {
        let (_, rest) = chapter.split_once(before).unwrap_or_else(|| panic!("'{before}' is not there"));
        rest.split("\n```").next().unwrap().to_owned()
    };
    let directory = Directory::new();
    let commands: Vec<_> = block("```\n").lines().map(|line| line.strip_prefix("$ ").unwrap().to_owned()).collect();
    shell(&directory, &commands.join("\n"));
    directory.write("Caddyfile", on_any_port(&block("```caddyfile\n")));
    let server = directory.start(&["run"]);
    let shown = block("```\n$ curl -i localhost:8080\n");
    let page = get(server.port(), "/");
    assert!(
        shown.contains(&format!("HTTP/1.1 {}", page.status)) && shown.contains(page.body.trim_end()),
        "{}",
        page.body
    );
    for name in ["X-Served-By", "Content-Type", "Content-Length"] {
        assert!(shown.contains(&format!("{name}: {}", page.field(name).unwrap())), "{name}");
    }
    let listing = get(server.port(), "/notes/");
    assert!(listing.status == 200 && listing.body.contains("a.txt"), "{}", listing.body);
}

/// Runs the commands of the welcome page in order, in an empty directory.
#[test]
fn the_commands_of_the_welcome_page_serve_a_site() {
    let page = include_str!("../../src/welcome/index.html");
    let steps: Vec<_> =
        page.split("<pre tabindex=\"0\">").skip(1).map(|rest| rest.split("</pre>").next().unwrap()).collect();
    let text = |html: &str| {
        html.replace("<b>", "").replace("</b>", "").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    };
    let [site, share, help] = steps.iter().map(|step| text(step)).collect::<Vec<_>>().try_into().expect("three steps");

    let directory = Directory::new();
    let site = site.strip_suffix("\ncauseway run").expect("it serves at last");
    shell(&directory, &on_any_port(site));
    assert_eq!(get(directory.start(&["run"]).port(), "/").body, "Hello.\n");

    let words: Vec<_> = share.strip_prefix("causeway ").unwrap().split(' ').collect();
    let [words @ .., "--listen", ":8081"] = &*words else { panic!("{share}") };
    let server = directory.start(&[words, &["--listen", "127.0.0.1:0"]].concat());
    assert!(get(server.port(), "/").body.contains("Caddyfile"));

    assert_eq!(help, "causeway --help");
    assert_eq!(directory.output(&["--help"]).status.code(), Some(0));
}

/// Runs commands in a shell.
#[track_caller]
fn shell(directory: &Directory, commands: &str) {
    let status = Command::new("sh").args(["-euc", commands]).current_dir(directory.path("")).status().unwrap();
    assert!(status.success(), "{commands}");
}

/// Replaces the page's port, which may be in use, by one that the system chooses.
fn on_any_port(text: &str) -> String {
    assert!(text.contains(":8080"), "{text}");
    text.replace(":8080", ":0")
}

/// docs/caddyfile.md lists exactly the supported directives and matchers. A new directive or matcher must be added
/// there.
#[test]
fn the_lists_of_directives_and_matchers_are_correct() {
    let registry = causeway::registry();
    let directives = causeway::directives(&registry);
    assert_eq!(listed("## Directives"), directives.available().map(str::to_owned).collect());
    let modules = registry.modules();
    let matchers = modules.iter().filter_map(|module| module.strip_prefix("http.matchers."));
    let mut listed = listed("## Matchers");
    assert!(listed.remove("*"), "the path token has no module");
    assert_eq!(listed, matchers.map(str::to_owned).collect());
}

/// docs/reverse-proxy.md lists exactly the load-balancing policies.
#[test]
fn the_list_of_policies_is_correct() {
    let text = document("docs/reverse-proxy.md");
    let (_, text) = text.split_once("\n| `lb_policy` | selected upstream |\n").expect("the table");
    let rows = text.lines().take_while(|line| line.starts_with('|'));
    let words = rows.flat_map(|row| quoted(row).filter_map(|form| form.split(' ').next()));
    let listed: BTreeSet<_> = words.collect();
    assert_eq!(listed, causeway_config::selection_policies().iter().copied().collect());
}

/// docs/from-nginx.md shows a translation as the program prints it.
#[test]
fn the_translation_of_the_page_about_nginx_is_correct() {
    let text = document("docs/from-nginx.md");
    let (_, text) = text.split_once("$ cat ex.conf\n").expect("the configuration");
    let (configuration, text) = text.split_once("$ causeway ").expect("the command");
    let (command, text) = text.split_once('\n').expect("the output");
    let shown = text.split("```").next().unwrap();
    let directory = Directory::with(&[("ex.conf", configuration)]);
    let output = directory.command(&command.split(' ').collect::<Vec<_>>()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = [output.stderr, output.stdout].concat();
    assert_eq!(String::from_utf8_lossy(&printed), shown);
}

fn document(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// Returns the back-quoted words in the first column of a chapter's table.
fn listed(chapter: &str) -> BTreeSet<String> {
    let text = document("docs/caddyfile.md");
    let (_, text) = text.split_once(&format!("\n{chapter}\n")).expect("the chapter");
    let rows = text.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| "));
    rows.flat_map(quoted).map(str::to_owned).collect()
}

/// Returns the back-quoted words in the first column of a row.
fn quoted(row: &str) -> impl Iterator<Item = &str> {
    let cell = row.split(" | ").next().unwrap_or_default();
    cell.split('`').skip(1).step_by(2)
}
