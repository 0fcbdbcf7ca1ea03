//! Options of the command.

use anyhow::{Context as _, bail};

pub(crate) const USAGE: &str =
    "usage: cargo xtask differential [--caddyfiles N] [--requests N] [--seed N] [--case N] [--reports N] [--verbose]

  --caddyfiles N  number of Caddyfiles that both servers accept (500)
  --requests N    number of requests in total (40 per Caddyfile)
  --seed N        seed of the random choices (1)
  --case N        only this Caddyfile of the seed
  --reports N     number of differences that are shrunk and shown (10); at most two per class
  --verbose       print how often each wanted difference occurred, and the Caddyfiles that both refuse

CADDY_BIN and CAUSEWAY_BIN name other programs to compare. `./test differential` takes these options from the
environment: DIFFERENTIAL='--caddyfiles 500 --requests 20000' ./test differential";

/// A run takes about a minute on two idle cores.
const CADDYFILES: usize = 500;
const REQUESTS_EACH: usize = 40;

pub(crate) struct Options {
    pub(crate) caddyfiles: usize,
    pub(crate) requests: usize,
    pub(crate) seed: u64,
    pub(crate) case: Option<u64>,
    pub(crate) reports: usize,
    pub(crate) verbose: bool,
}

impl Options {
    pub(crate) fn parse(words: &[String]) -> anyhow::Result<Self> {
        let mut options =
            Self { caddyfiles: CADDYFILES, requests: 0, seed: 1, case: None, reports: 10, verbose: false };
        let mut requests = None;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--verbose" {
                options.verbose = true;
                continue;
            }
            let known = ["--caddyfiles", "--requests", "--seed", "--case", "--reports"];
            if !known.contains(&&**word) {
                bail!("found {word}, expected one of {} or --verbose", known.join(", "));
            }
            let number = words.next().with_context(|| format!("found nothing after {word}, expected a number"))?;
            let number: u64 = number.parse().with_context(|| format!("{word}: found {number}, expected a number"))?;
            let size = usize::try_from(number).with_context(|| format!("{word}: {number} is too large"))?;
            match &**word {
                "--caddyfiles" => options.caddyfiles = size.max(1),
                "--requests" => requests = Some(size),
                "--seed" => options.seed = number,
                "--case" => options.case = Some(number),
                _ => options.reports = size,
            }
        }
        options.requests = requests.unwrap_or(options.caddyfiles * REQUESTS_EACH);
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> anyhow::Result<Options> {
        Options::parse(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_read_and_mistakes_are_named() {
        let options = parse("--seed 7 --caddyfiles 2 --verbose").unwrap();
        assert_eq!((options.seed, options.caddyfiles, options.requests, options.verbose), (7, 2, 80, true));
        for (words, mistake) in [("--sed 1", "--sed"), ("--seed", "after --seed"), ("--seed x", "found x")] {
            let error = parse(words).err().unwrap();
            assert!(format!("{error:#}").contains(mistake), "{error:#}");
        }
    }
}
