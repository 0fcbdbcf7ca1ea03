//! The Debian package.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::{epoch, install, pages, run, version, write};
use crate::steps::Workspace;

/// The revision of the package; the next one of the same version counts up.
const REVISION: u32 = 1;

/// Each file of the repository, and its place in the package.
const FILES: &[(&str, &str)] = &[
    ("packaging/Caddyfile", "etc/causeway/Caddyfile"),
    ("packaging/index.html", "usr/share/causeway/index.html"),
    ("packaging/causeway.service", "lib/systemd/system/causeway.service"),
    ("packaging/causeway-api.service", "lib/systemd/system/causeway-api.service"),
    ("packaging/debian/lintian-overrides", "usr/share/lintian/overrides/causeway"),
];

/// The scripts of the package's maintainer.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];

/// How `dpkg-deb` compresses the package.
#[derive(Clone, Copy)]
pub(super) enum Compression {
    /// For downloads.
    Small,
    /// For the test, whose program is large.
    Fast,
}

/// Builds the package from this program, and returns its path.
pub(super) fn build(
    workspace: &Workspace,
    program: &Path,
    out: &Path,
    compression: Compression,
) -> anyhow::Result<PathBuf> {
    // `0.2.0~rc.1` precedes `0.2.0` (Debian Policy §5.6.12).
    let version = format!("{}-{REVISION}", version(workspace)?.replacen('-', "~", 1));
    let epoch = epoch(workspace)?;
    let scratch = workspace.scratch("deb")?;
    let root = scratch.join("root");
    install(program, &root.join("usr/bin/causeway"), 0o755)?;
    for (from, to) in FILES {
        install(&workspace.root.join(from), &root.join(to), 0o644)?;
    }
    let share = root.join("usr/share");
    pages(program, &share.join("man/man8"), &scratch.join("completions"))?;
    for (script, place) in [
        ("causeway", "bash-completion/completions/causeway"),
        ("_causeway", "zsh/vendor-completions/_causeway"),
        ("causeway.fish", "fish/vendor_completions.d/causeway.fish"),
    ] {
        install(&scratch.join("completions").join(script), &share.join(place), 0o644)?;
    }
    let documents = share.join("doc/causeway");
    write(&documents.join("copyright"), copyright(workspace)?, 0o644)?;
    write(&documents.join("changelog.Debian"), changelog(&version, epoch)?, 0o644)?;
    install(&workspace.root.join("CHANGELOG.md"), &documents.join("changelog"), 0o644)?;
    super::guides(workspace, &documents.join("docs"))?;
    compress(&share.join("man/man8"), |_| true)?;
    compress(&documents, |name| name.starts_with("changelog"))?;

    let control = root.join("DEBIAN");
    for script in SCRIPTS {
        install(&workspace.root.join("packaging/debian").join(script), &control.join(script), 0o755)?;
    }
    install(&workspace.root.join("packaging/debian/conffiles"), &control.join("conffiles"), 0o644)?;
    let architecture = run(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let text = fs::read_to_string(workspace.root.join("packaging/debian/control"))?;
    let size = run(Command::new("du").args(["--summarize", "--apparent-size", "--block-size=1024"]).arg(&root))?;
    let text = text
        .replace("@VERSION@", &version)
        .replace("@ARCHITECTURE@", &architecture)
        .replace("@INSTALLED_SIZE@", size.split_whitespace().next().unwrap_or("0"))
        .replace("@DEPENDS@", &libraries(&scratch, &root)?);
    write(&control.join("control"), text, 0o644)?;
    write(&control.join("md5sums"), sums(&root)?, 0o644)?;
    open_directories(&root)?;
    let path = out.join(format!("causeway_{version}_{architecture}.deb"));
    let mut pack = Command::new("dpkg-deb");
    let how: &[&str] = match compression {
        Compression::Small => &["-Zxz"],
        Compression::Fast => &["-Zgzip", "-z1"],
    };
    pack.arg("--root-owner-group").args(how).arg("--build").arg(&root).arg(&path);
    run(pack.env("SOURCE_DATE_EPOCH", epoch.to_string()))?;
    Ok(path)
}

/// Returns the packages of the libraries that the program is linked to.
fn libraries(scratch: &Path, root: &Path) -> anyhow::Result<String> {
    // dpkg-shlibdeps runs in a source package only, and reads this file of it.
    write(&scratch.join("debian/control"), "Source: causeway\n\nPackage: causeway\nArchitecture: any\n", 0o644)?;
    let mut command = Command::new("dpkg-shlibdeps");
    command.arg("-O").arg(format!("-e{}", root.join("usr/bin/causeway").display())).current_dir(scratch);
    let output = run(&mut command).context("finding the libraries of the program (Debian: dpkg-dev)")?;
    let line = output.lines().find_map(|line| line.strip_prefix("shlibs:Depends="));
    Ok(line.context("dpkg-shlibdeps: found no line shlibs:Depends=")?.to_owned())
}

/// Debian's description of the licences, with the text of the one that Debian does not ship.
fn copyright(workspace: &Workspace) -> anyhow::Result<String> {
    let text = fs::read_to_string(workspace.root.join("packaging/debian/copyright"))?;
    let license = fs::read_to_string(workspace.root.join("LICENSE-MIT")).context("cannot read LICENSE-MIT")?;
    let line = |line: &str| if line.trim().is_empty() { " .".to_owned() } else { format!(" {line}") };
    let license: Vec<_> = license.trim().lines().map(line).collect();
    Ok(text.replace("@MIT@", &license.join("\n")))
}

/// The change log of the package itself, in Debian's format. That of the program is `CHANGELOG.md`.
fn changelog(version: &str, epoch: u64) -> anyhow::Result<String> {
    let date =
        run(Command::new("date").args(["--utc", "--rfc-email", &format!("--date=@{epoch}")]).env("LC_ALL", "C"))?;
    Ok(format!(
        "causeway ({version}) unstable; urgency=medium\n\n  * Package of this version.\n\n -- The Causeway authors \
         <causeway@localhost.invalid>  {date}"
    ))
}

/// Compresses files of a directory, without names and times in the result.
fn compress(directory: &Path, is_chosen: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if is_chosen(&entry.file_name().to_string_lossy()) {
            run(Command::new("gzip").args(["--best", "--no-name"]).arg(entry.path()))?;
            let mut name = entry.path().into_os_string();
            name.push(".gz");
            fs::set_permissions(name, fs::Permissions::from_mode(0o644))?;
        }
    }
    Ok(())
}

/// The sums of all files, which `dpkg --verify` compares.
fn sums(root: &Path) -> anyhow::Result<String> {
    let files = "find usr lib etc -type f ! -path etc/causeway/Caddyfile -print0 | LC_ALL=C sort -z | xargs -0 md5sum";
    run(Command::new("sh").args(["-c", files]).current_dir(root))
}

/// Opens the directories to everyone: the builder's umask must not change the package.
fn open_directories(directory: &Path) -> anyhow::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_directories(&entry.path())?;
        }
    }
    Ok(())
}
