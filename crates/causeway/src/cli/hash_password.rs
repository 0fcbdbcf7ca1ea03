//! `hash-password`: hashes a password for a configuration.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};

use anyhow::{Context as _, bail};
use causeway_modules::authentication::hash::{Algorithm, Argon2idCost, argon2id_string, bcrypt};
use clap::Args;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use super::output;

const BCRYPT_COST: i64 = 14;

#[derive(Args)]
pub(crate) struct HashPassword {
    /// The password; by default prompted for on a terminal, else read from the first line of standard input
    #[arg(short, long, value_name = "PASSWORD", hide_default_value = true, default_value = "")]
    plaintext: String,
    /// bcrypt or argon2id
    #[arg(short, long, value_name = "NAME", default_value = Algorithm::Bcrypt.name())]
    algorithm: String,
    /// Cost of bcrypt, from 4 to 31; any other number means 14
    #[arg(long, value_name = "COST", default_value_t = BCRYPT_COST, allow_negative_numbers = true)]
    bcrypt_cost: i64,
    /// Number of Argon2id's passes over its memory
    #[arg(long, value_name = "PASSES", default_value_t = 1)]
    argon2id_time: u32,
    /// Memory of Argon2id
    #[arg(long, value_name = "KIB", default_value_t = 46 * 1024)]
    argon2id_memory: u32,
    /// Number of threads for Argon2id
    #[arg(long, value_name = "N", default_value_t = 1)]
    argon2id_threads: u8,
    /// Length of Argon2id's key
    #[arg(long, value_name = "BYTES", default_value_t = 32)]
    argon2id_keylen: u32,
}

impl HashPassword {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let Some(algorithm) = Algorithm::of_name(&self.algorithm) else {
            bail!("--algorithm: unrecognized hash algorithm: {}; expected bcrypt or argon2id", self.algorithm);
        };
        let given = Zeroizing::new(self.plaintext.into_bytes());
        let password = match given.is_empty() {
            false => given,
            true if std::io::stdin().is_terminal() => read_confirmed_password()?,
            true => first_line()?,
        };
        if password.is_empty() {
            bail!("plaintext is required: found an empty password");
        }
        output::print(&match algorithm {
            Algorithm::Bcrypt => {
                // Caddy's rule: a cost out of range means the default.
                let cost = Some(self.bcrypt_cost).filter(|cost| (4..=31).contains(cost)).unwrap_or(BCRYPT_COST);
                bcrypt(&password, cost as u32)?
            }
            Algorithm::Argon2id => {
                let cost = Argon2idCost {
                    time: self.argon2id_time,
                    memory: self.argon2id_memory,
                    lanes: self.argon2id_threads,
                    key_len: self.argon2id_keylen,
                };
                argon2id_string(&password, cost)?
            }
        })
    }
}

/// Reads the first line of standard input, without its line break.
fn first_line() -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let mut line = Zeroizing::new(Vec::new());
    std::io::stdin().lock().read_until(b'\n', &mut line).context("reading the password from standard input")?;
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    Ok(line)
}

/// Prompts for the password twice and compares the two.
fn read_confirmed_password() -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let password = prompt_hidden("Enter password: ")?;
    if *password != *prompt_hidden("Confirm password: ")? {
        bail!("password does not match: the second one differs from the first");
    }
    Ok(password)
}

/// Switches off the terminal's echo, line editing and signals. Dropping it restores the previous modes.
struct NoEcho(Termios);

impl NoEcho {
    fn start() -> rustix::io::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut silent = before.clone();
        // Without ISIG, Ctrl-C arrives as a byte, so that the process restores the terminal before it exits.
        silent.local_modes &= !(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        silent.special_codes[SpecialCodeIndex::VMIN] = 1;
        silent.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &silent)?;
        Ok(Self(before))
    }
}

impl Drop for NoEcho {
    fn drop(&mut self) {
        // A terminal that has gone away needs no restoring.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Prompts for a line and reads it without echo. Handles the editing keys itself, since line editing is off.
fn prompt_hidden(prompt: &str) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    const INTERRUPT: u8 = 3;
    const END: u8 = 4;
    const BACKSPACE: [u8; 2] = [8, 0x7f];
    const KILL_LINE: u8 = 0x15;
    let mut err = std::io::stderr();
    let _ = write!(err, "{prompt}").and_then(|()| err.flush());
    let no_echo = NoEcho::start().context("silencing the terminal")?;
    // Reserve enough that the buffer rarely grows: a reallocation leaves an unzeroed copy.
    let mut line = Zeroizing::new(Vec::with_capacity(128));
    let outcome = loop {
        let mut byte = [0];
        match std::io::stdin().lock().read(&mut byte) {
            Ok(0) => break Ok(()),
            Ok(_) => match byte[0] {
                b'\r' | b'\n' | END => break Ok(()),
                INTERRUPT => break Err(anyhow::anyhow!("interrupted")),
                KILL_LINE => line.clear(),
                byte if BACKSPACE.contains(&byte) => take_last(&mut line),
                byte => line.push(byte),
            },
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error.into()),
        }
    };
    drop(no_echo);
    let _ = writeln!(err);
    outcome.map(|()| line)
}

/// Removes the last character: all bytes of its UTF-8 sequence.
fn take_last(line: &mut Vec<u8>) {
    while let Some(byte) = line.pop() {
        if byte & 0xc0 != 0x80 {
            return;
        }
    }
}
