//! `list-modules`: prints the registry's module names.

use clap::Args;
use serde_json::json;

use super::output;

#[derive(Args)]
pub(crate) struct ListModules {
    /// Also print the package of each module
    #[arg(long)]
    packages: bool,
    /// Also print the version of each module
    #[arg(long)]
    versions: bool,
    /// Leave out the standard modules; this program has no others
    #[arg(short, long)]
    skip_standard: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const PACKAGE: &str = env!("CARGO_PKG_NAME");
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

impl ListModules {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let modules = if self.skip_standard { Vec::new() } else { causeway::registry().modules() };
        if self.json {
            let list = modules.iter().map(|module| {
                json!({ "module_name": module, "module_type": "standard", "version": VERSION, "package_url": PACKAGE })
            });
            return output::print(&serde_json::to_string_pretty(&list.collect::<Vec<_>>())?);
        }
        let mut lines: Vec<_> = modules.iter().map(|module| self.line(module)).collect();
        if !self.skip_standard {
            lines.push(format!("\n  Standard modules: {}", modules.len()));
        }
        lines.push("\n  Non-standard modules: 0\n\n  Unknown modules: 0".to_owned());
        output::print(&lines.join("\n"))
    }

    fn line(&self, module: &str) -> String {
        let mut line = module.to_owned();
        for (word, wanted) in [(VERSION, self.versions), (PACKAGE, self.packages)] {
            if wanted {
                line = format!("{line} {word}");
            }
        }
        line
    }
}
