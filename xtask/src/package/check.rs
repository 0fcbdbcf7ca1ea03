//! The step `package`: builds the Debian package from the program of the tests, and installs it into a clean Debian.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::{deb, run};
use crate::report::{Done, Halt};
use crate::stage::Stage;
use crate::steps::House;
use crate::tools;

/// The worst value of `systemd-analyze security`, of 10, that the units may have.
const EXPOSURE_MAX: f64 = 2.0;

/// Each file of the package except for the manual pages.
const CONTENT: &[&str] = &[
    "/etc/causeway/Caddyfile",
    "/lib/systemd/system/causeway-api.service",
    "/lib/systemd/system/causeway.service",
    "/usr/bin/causeway",
    "/usr/share/bash-completion/completions/causeway",
    "/usr/share/causeway/index.html",
    "/usr/share/doc/causeway/changelog.Debian.gz",
    "/usr/share/doc/causeway/changelog.gz",
    "/usr/share/doc/causeway/copyright",
    "/usr/share/fish/vendor_completions.d/causeway.fish",
    "/usr/share/lintian/overrides/causeway",
    "/usr/share/zsh/vendor-completions/_causeway",
];

/// Programs that the clean Debian needs for `try-install.sh`, beyond those that every Debian has.
const PACKAGES: &str = "adduser,curl,ca-certificates,init-system-helpers,iproute2,libgcc-s1";

/// Runs the step.
pub(crate) fn step(stage: &mut Stage, house: &House) -> Result<Done, Halt> {
    for program in ["dpkg-deb", "dpkg-shlibdeps"] {
        if tools::find(program).is_none() {
            return Err(Halt::Lacks(format!("needs {program} of Debian (package dpkg-dev)")));
        }
    }
    // The tests have built this program already.
    stage.run(house.cargo(&["build", "--package", "causeway-server", "--bin", "causeway"]))?;
    let out = house.scratch("package")?;
    stage.note("building the package");
    let package = deb::build(house, &house.target.join("debug/causeway"), &out, deb::Compression::Fast)?;
    content(&package)?;
    let mut done = vec!["content"];
    if units(stage, house, &out)? {
        done.push("units");
    }
    if tools::find("lintian").is_some() {
        let mut lintian = Command::new("lintian");
        // Root runs the tests of a container.
        stage.run({
            lintian.args(["--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]).arg(&package);
            lintian
        })?;
        done.push("lintian");
    }
    let lacking = match clean_debian(stage, house)? {
        Ok(debian) => {
            install(stage, house, &package, &debian)?;
            done.push("installation");
            String::new()
        }
        Err(why) => format!("; no installation: {why}"),
    };
    Ok(Done::saying(format!("{}{lacking}", done.join(", "))))
}

/// Compares the names of the files, and the owner and permissions of all entries.
fn content(package: &Path) -> Result<(), Halt> {
    let listing = run(Command::new("dpkg-deb").arg("--contents").arg(package))?;
    let mut names = Vec::new();
    for line in listing.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode, owner, .., name] = words[..] else {
            return Err(Halt::Failed(format!("found '{line}', expected a line of dpkg-deb --contents\n")));
        };
        let name = name.trim_start_matches('.');
        let want = match name {
            "/usr/bin/causeway" => "-rwxr-xr-x",
            _ if name.ends_with('/') => "drwxr-xr-x",
            _ => "-rw-r--r--",
        };
        if (mode, owner) != (want, "root/root") {
            return Err(Halt::Failed(format!("{name}: found {mode} {owner}, expected {want} root/root\n")));
        }
        let is_page = name.starts_with("/usr/share/man/man8/causeway") && name.ends_with(".8.gz");
        if !name.ends_with('/') && !is_page {
            names.push(name);
        }
    }
    names.sort_unstable();
    if names != CONTENT {
        return Err(Halt::Failed(format!("the package contains {names:#?}\nexpected {CONTENT:#?}\n")));
    }
    let field = |name: &str| run(Command::new("dpkg-deb").arg("--field").arg(package).arg(name));
    let depends = field("Depends")?;
    if !depends.contains("libc6 (>= ") || !depends.contains("adduser") {
        return Err(Halt::Failed(format!("found Depends: {depends}expected adduser and libc6 with a version\n")));
    }
    Ok(())
}

/// Lets systemd verify the units, and measure how far they are shielded. Returns whether systemd is there.
fn units(stage: &mut Stage, house: &House, out: &Path) -> Result<bool, Halt> {
    let Some(analyze) = tools::find("systemd-analyze") else { return Ok(false) };
    for unit in ["causeway.service", "causeway-api.service"] {
        let text = fs::read_to_string(house.root.join("packaging").join(unit)).context("cannot read the unit")?;
        // The program of the unit must exist for the verification.
        let program = house.target.join("debug/causeway").display().to_string();
        let path = out.join(unit);
        fs::write(&path, text.replace("/usr/bin/causeway", &program))?;
    }
    for unit in ["causeway.service", "causeway-api.service"] {
        let path = out.join(unit);
        let mut verify = Command::new(&analyze);
        verify.args(["verify", "--man=no"]).arg(&path);
        let output = stage.run(verify)?;
        // It reports unknown settings with status 0.
        if output.contains(unit) {
            return Err(Halt::Failed(output));
        }
        let mut security = Command::new(&analyze);
        security.args(["security", "--offline=true", "--no-pager"]).arg(&path);
        let output = stage.run(security)?;
        let level = output.rsplit_once("Overall exposure level").and_then(|(_, rest)| rest.split_once(": "));
        let level = level.and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<f64>().ok());
        if level.is_none_or(|level| level > EXPOSURE_MAX) {
            return Err(Halt::Failed(format!("{output}\nexpected an exposure of at most {EXPOSURE_MAX}\n")));
        }
    }
    Ok(true)
}

/// Returns an archive of a clean Debian, which is kept for later runs, or the reason why there is none.
fn clean_debian(stage: &mut Stage, house: &House) -> Result<Result<PathBuf, String>, Halt> {
    let is_root = run(Command::new("id").arg("-u"))?.trim() == "0";
    if !is_root {
        return Ok(Err("it needs root".into()));
    }
    if let Some(missing) =
        ["mmdebstrap", "unshare", "chroot"].into_iter().find(|program| tools::find(program).is_none())
    {
        return Ok(Err(format!("it needs {missing}")));
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let Some(suite) = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")) else {
        return Ok(Err("this Debian has no code name".into()));
    };
    // The program is linked to the libraries of this machine, so the clean Debian is of the same release.
    let archive = house.target.join(format!("debian-{suite}.tar"));
    if !archive.exists() {
        stage.note("making a clean Debian");
        let part = archive.with_extension("part.tar");
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=essential", &format!("--include={PACKAGES}"), suite]).arg(&part);
        // The machine's own sources, since its network may reach no other.
        if let Some(sources) = sources() {
            make.arg(sources);
        }
        if let Err(Halt::Failed(output)) = stage.run(make) {
            let last = output.lines().rev().find(|line| line.starts_with("E: ")).unwrap_or("mmdebstrap failed");
            return Ok(Err(format!("no clean Debian could be made: {last}")));
        }
        fs::rename(&part, &archive)?;
    }
    Ok(Ok(archive))
}

/// The file with the machine's sources of packages.
fn sources() -> Option<&'static str> {
    ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"]
        .into_iter()
        .find(|path| Path::new(path).exists())
}

/// Installs the package into the clean Debian, and uses it there.
fn install(stage: &mut Stage, house: &House, package: &Path, debian: &Path) -> Result<(), Halt> {
    let root = house.scratch("debian")?;
    stage.note("installing the package into a clean Debian");
    let mut unpack = Command::new("tar");
    unpack.arg("--extract").arg("--file").arg(debian).arg("--directory").arg(&root);
    stage.run(unpack)?;
    fs::copy(package, root.join("tmp/causeway.deb"))?;
    fs::copy(house.root.join("packaging/try-install.sh"), root.join("tmp/try-install.sh"))?;
    let mut command = Command::new("unshare");
    // Its own network, so that port 80 is free; its own mounts and processes, so that nothing of it remains.
    command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]);
    command.arg(r#"mount -t proc proc "$0/proc" && exec chroot "$0" sh /tmp/try-install.sh"#).arg(&root);
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
    let done = stage.run(command);
    // Root's files would be in the way of a later run by another user.
    fs::remove_dir_all(&root).context("cannot remove the clean Debian")?;
    done.map(drop)
}
