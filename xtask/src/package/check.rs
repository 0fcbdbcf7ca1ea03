//! The step `package`: builds the Debian package from the program of the tests, and installs it into a clean Debian;
//! builds the container's image, and runs it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::{deb, install, run, write};
use crate::report::{Done, StepError};
use crate::stage::Stage;
use crate::steps::Workspace;
use crate::tools;

/// The worst value of `systemd-analyze security`, of 10, that the units may have.
const EXPOSURE_MAX: f64 = 2.0;

/// Each file of the package except for the manual pages and the guides.
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
    "/usr/share/doc/causeway/packaging/monitoring/grafana-dashboard.json",
    "/usr/share/doc/causeway/packaging/monitoring/prometheus-alerts.yml",
    "/usr/share/fish/vendor_completions.d/causeway.fish",
    "/usr/share/lintian/overrides/causeway",
    "/usr/share/zsh/vendor-completions/_causeway",
];

/// Programs that the clean Debian needs for `try-install.sh` and `try-systemd.sh`, beyond those that every Debian has.
const PACKAGES: &str = "adduser,curl,ca-certificates,init-system-helpers,iproute2,libgcc-s1,systemd";

/// Runs the step.
pub(crate) fn step(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    for program in ["dpkg-deb", "dpkg-shlibdeps"] {
        if tools::find(program).is_none() {
            return Err(StepError::MissingTool(format!("needs {program} of Debian (package dpkg-dev)")));
        }
    }
    // The tests have built this program already.
    stage.run(workspace.cargo(&["build", "--package", "causeway-server", "--bin", "causeway"]))?;
    let out = workspace.scratch("package")?;
    stage.note("building the package");
    let package = deb::build(workspace, &workspace.target.join("debug/causeway"), &out, deb::Compression::Fast)?;
    content(workspace, &package)?;
    let mut done = vec!["content"];
    if units(stage, workspace, &out)? {
        done.push("units");
    }
    let mut lacking = String::new();
    let mut optional = |name: &'static str, outcome: Result<(), StepError>| {
        match outcome {
            Ok(()) => done.push(name),
            Err(StepError::MissingOptional(why)) => lacking.push_str(&format!("; no {name}: {why}")),
            // With `--install` every tool should be there.
            Err(StepError::MissingTool(why)) if !workspace.install => lacking.push_str(&format!("; no {name}: {why}")),
            Err(halt) => return Err(halt),
        }
        Ok(())
    };
    optional("lintian", lintian(stage, workspace, &package))?;
    optional("installation", installation(stage, workspace, &package))?;
    optional("systemd", systemd(stage, workspace, &package))?;
    optional("container", container(stage, workspace))?;
    Ok(Done::with_detail(format!("{}{lacking}", done.join(", "))))
}

/// Runs Debian's own checks of packages.
fn lintian(stage: &mut Stage, workspace: &Workspace, package: &Path) -> Result<(), StepError> {
    let mut lintian = Command::new(tools::LINTIAN.need(stage, workspace)?);
    // Root runs the tests of a container.
    lintian.args(["--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0"]).arg(package);
    stage.run(lintian).map(drop)
}

/// Compares the names of the files, and the owner and permissions of all entries.
fn content(workspace: &Workspace, package: &Path) -> Result<(), StepError> {
    let listing = run(Command::new("dpkg-deb").arg("--contents").arg(package))?;
    let (mut names, mut guides) = (Vec::new(), 0);
    for line in listing.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode, owner, .., name] = words[..] else {
            return Err(StepError::Failed(format!("found '{line}', expected a line of dpkg-deb --contents\n")));
        };
        let name = name.trim_start_matches('.');
        let want = match name {
            "/usr/bin/causeway" => "-rwxr-xr-x",
            _ if name.ends_with('/') => "drwxr-xr-x",
            _ => "-rw-r--r--",
        };
        if (mode, owner) != (want, "root/root") {
            return Err(StepError::Failed(format!("{name}: found {mode} {owner}, expected {want} root/root\n")));
        }
        let is_page = name.starts_with("/usr/share/man/man8/causeway") && name.ends_with(".8.gz");
        let is_guide = name.starts_with("/usr/share/doc/causeway/docs/") && name.ends_with(".md");
        guides += usize::from(is_guide);
        if !name.ends_with('/') && !is_page && !is_guide {
            names.push(name);
        }
    }
    names.sort_unstable();
    if names != CONTENT {
        return Err(StepError::Failed(format!("the package contains {names:#?}\nexpected {CONTENT:#?}\n")));
    }
    let want = fs::read_dir(workspace.root.join("docs")).context("cannot list the guides")?.flatten();
    let want = want.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "md")).count();
    if guides != want {
        return Err(StepError::Failed(format!("the package contains {guides} guides, expected {want}\n")));
    }
    let field = |name: &str| run(Command::new("dpkg-deb").arg("--field").arg(package).arg(name));
    let depends = field("Depends")?;
    if !depends.contains("libc6 (>= ") || !depends.contains("adduser") {
        return Err(StepError::Failed(format!("found Depends: {depends}expected adduser and libc6 with a version\n")));
    }
    Ok(())
}

/// Lets systemd verify the units, and measure how far they are shielded. Returns whether systemd is there.
fn units(stage: &mut Stage, workspace: &Workspace, out: &Path) -> Result<bool, StepError> {
    let Some(analyze) = tools::find("systemd-analyze") else { return Ok(false) };
    for unit in ["causeway.service", "causeway-api.service"] {
        let text = fs::read_to_string(workspace.root.join("packaging").join(unit)).context("cannot read the unit")?;
        // The program of the unit must exist for the verification.
        let program = workspace.target.join("debug/causeway").display().to_string();
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
            return Err(StepError::Failed(output));
        }
        let mut security = Command::new(&analyze);
        security.args(["security", "--offline=true", "--no-pager"]).arg(&path);
        let output = stage.run(security)?;
        let level = output.rsplit_once("Overall exposure level").and_then(|(_, rest)| rest.split_once(": "));
        let level = level.and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<f64>().ok());
        if level.is_none_or(|level| level > EXPOSURE_MAX) {
            return Err(StepError::Failed(format!("{output}\nexpected an exposure of at most {EXPOSURE_MAX}\n")));
        }
    }
    Ok(true)
}

/// Fails, with the reason, unless this process may run commands [`apart`].
fn need_namespaces() -> Result<(), StepError> {
    if run(Command::new("id").arg("-u"))?.trim() != "0" {
        return Err(StepError::MissingOptional("it needs root".to_owned()));
    }
    if let Some(missing) =
        ["unshare", "chroot", "ip", "curl", "pgrep"].into_iter().find(|name| tools::find(name).is_none())
    {
        return Err(StepError::MissingOptional(format!("it needs {missing}")));
    }
    // Root of a container may lack the permission.
    match run(&mut apart("mount -t proc proc /proc", Path::new("/"))) {
        Ok(_) => Ok(()),
        Err(error) => {
            let error = error.to_string();
            let last = error.lines().next_back().unwrap_or_default();
            Err(StepError::MissingOptional(format!("no namespaces here: {last}")))
        }
    }
}

/// Returns a command that runs `script` with its own network, so that its ports are free, and with its own mounts and
/// processes, so that nothing of it remains. `$0` of the script is `root`.
fn apart(script: &str, root: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--fork", "--kill-child"]);
    command.args(["sh", "-c", script]).arg(root);
    command.env_clear().env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
    command
}

/// Returns an archive of a clean Debian, which is kept for later runs.
fn clean_debian(stage: &mut Stage, workspace: &Workspace) -> Result<PathBuf, StepError> {
    need_namespaces()?;
    let mmdebstrap = tools::MMDEBSTRAP.need(stage, workspace)?;
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let Some(suite) = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")) else {
        return Err(StepError::MissingOptional("this Debian has no code name".to_owned()));
    };
    // The program is linked to the libraries of this machine, so the clean Debian is of the same release.
    let archive = workspace.target.join(format!("clean-debian-{suite}.tar"));
    if !archive.exists() {
        stage.note("making a clean Debian");
        let part = archive.with_extension("part.tar");
        let mut make = Command::new(mmdebstrap);
        make.args([
            "--quiet",
            "--variant=essential",
            "--aptopt=Acquire::Retries \"5\"",
            &format!("--include={PACKAGES}"),
            suite,
        ])
        .arg(&part);
        // The machine's own sources, since its network may reach no other.
        if let Some(sources) = sources() {
            make.arg(sources);
        }
        if let Err(StepError::Failed(output)) = stage.run(make) {
            let last = output.lines().rev().find(|line| line.starts_with("E: ")).unwrap_or("mmdebstrap failed");
            return Err(StepError::MissingOptional(format!("no clean Debian could be made: {last}")));
        }
        fs::rename(&part, &archive)?;
    }
    Ok(archive)
}

/// The file with the machine's sources of packages.
fn sources() -> Option<&'static str> {
    ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"]
        .into_iter()
        .find(|path| Path::new(path).exists())
}

/// Unpacks a clean Debian, and puts the package and these scripts into its directory `/srv`, which systemd leaves
/// alone.
fn unpacked(stage: &mut Stage, workspace: &Workspace, package: &Path, scripts: &[&str]) -> Result<PathBuf, StepError> {
    let debian = clean_debian(stage, workspace)?;
    let root = workspace.scratch("debian")?;
    let mut unpack = Command::new("tar");
    unpack.arg("--extract").arg("--file").arg(debian).arg("--directory").arg(&root);
    stage.run(unpack)?;
    fs::copy(package, root.join("srv/causeway.deb"))?;
    for script in scripts {
        fs::copy(workspace.root.join("packaging").join(script), root.join("srv").join(script))?;
    }
    Ok(root)
}

/// Installs the package into a clean Debian without a running systemd, and uses it there.
fn installation(stage: &mut Stage, workspace: &Workspace, package: &Path) -> Result<(), StepError> {
    let root = unpacked(stage, workspace, package, &["try-install.sh"])?;
    stage.note("installing the package into a clean Debian");
    let done = stage.run(apart(r#"mount -t proc proc "$0/proc" && exec chroot "$0" sh /srv/try-install.sh"#, &root));
    // Root's files would be in the way of a later run by another user.
    fs::remove_dir_all(&root).context("cannot remove the clean Debian")?;
    done.map(drop)
}

/// Boots systemd in a clean Debian, and installs, uses and upgrades the service there.
fn systemd(stage: &mut Stage, workspace: &Workspace, package: &Path) -> Result<(), StepError> {
    let root = unpacked(stage, workspace, package, &["boot-systemd.sh", "try-systemd.sh"])?;
    stage.note("booting systemd");
    let done = stage.run(apart(r#"exec sh "$0/srv/boot-systemd.sh" "$0""#, &root));
    let log = fs::read_to_string(root.join("srv/try.log"));
    fs::remove_dir_all(&root).context("cannot remove the clean Debian")?;
    match (done, log) {
        (Ok(_), Ok(_)) => Ok(()),
        (Err(StepError::Failed(output)), Ok(log)) => Err(StepError::Failed(output + &log)),
        (Err(halt), Ok(_)) => Err(halt),
        // Without it the script has not begun: this machine's kernel or its permissions do not suffice.
        (Ok(output) | Err(StepError::Failed(output)), Err(_)) => {
            let last = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            Err(StepError::MissingOptional(format!("systemd does not boot here: {last}")))
        }
        (Err(halt), Err(_)) => Err(halt),
    }
}

/// Checks that the context of the first stage has all files of the repository.
fn context_is_whole(workspace: &Workspace) -> anyhow::Result<()> {
    let ignored = fs::read_to_string(workspace.root.join(".dockerignore"))?;
    let ignored = Vec::from_iter(ignored.lines().filter(|line| !line.is_empty() && !line.starts_with('#')));
    if let Some(pattern) = ignored.iter().find(|line| line.contains(['*', '?', '!', '['])) {
        anyhow::bail!(".dockerignore: found {pattern}, expected paths without wildcards");
    }
    let files = run(Command::new("git").arg("-C").arg(&workspace.root).arg("ls-files"))?;
    let is_left_out = |file: &&str| ignored.iter().any(|path| Path::new(file).starts_with(path));
    match files.lines().find(is_left_out) {
        Some(file) => anyhow::bail!(".dockerignore leaves out {file}, a file of the repository"),
        None => Ok(()),
    }
}

/// Builds the last stage of the Containerfile from the program of the tests and the libraries that it is linked to, in
/// place of the static program of the first stage, whose base image needs a registry; and runs the image.
fn container(stage: &mut Stage, workspace: &Workspace) -> Result<(), StepError> {
    context_is_whole(workspace)?;
    need_namespaces()?;
    let buildah = tools::BUILDAH.need(stage, workspace)?;
    let directory = workspace.scratch("container")?;
    let first = directory.join("first-stage");
    let root = first.join("root-of-container");
    fs::create_dir_all(root.join("var/lib/causeway"))?;
    fs::create_dir_all(root.join("tmp"))?;
    // This configuration needs no public authority.
    write(&first.join("etc/ssl/certs/ca-certificates.crt"), "", 0o644)?;
    let program = workspace.target.join("debug/causeway");
    for library in run(Command::new("ldd").arg(&program))?.split_whitespace().filter(|word| word.starts_with('/')) {
        install(Path::new(library), &root.join(library.trim_start_matches('/')), 0o755)?;
    }
    install(&program, &first.join("source/target/dist/causeway"), 0o755)?;
    write(&root.join("etc/causeway/Caddyfile"), ":8080\nrespond \"Causeway runs in this container\"\n", 0o644)?;

    stage.note("building and running the container");
    fs::copy(workspace.root.join("packaging/Containerfile"), directory.join("Containerfile"))?;
    fs::copy(workspace.root.join("packaging/try-container.sh"), directory.join("try-container.sh"))?;
    let mut command = apart(r#"cd "$0" && exec sh try-container.sh"#, &directory);
    command.env("BUILDAH", buildah);
    let done = stage.run(command);
    fs::remove_dir_all(&directory).context("cannot remove the container")?;
    done.map(drop)
}
