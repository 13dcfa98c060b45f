//! Folded stacks: a line for each place, outermost function first, and its bytes. Flame graphs and speedscope read it.

use super::sites::Sites;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Which bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Of {
    /// Those that are live.
    Live,
    /// All that were allocated.
    Allocated,
}

/// The text.
pub fn text(processes: &mut [Sites], of: Of) -> String {
    let several = processes.len() > 1;
    let mut lines: BTreeMap<String, f64> = BTreeMap::new();
    for sites in processes {
        let all = std::mem::take(&mut sites.all);
        for site in &all {
            let bytes = match of {
                Of::Live => site.live.bytes,
                Of::Allocated => site.allocated.bytes,
            };
            if bytes < 1.0 {
                continue;
            }
            let functions = sites.functions(site);
            let names = functions.iter().rev().map(|line| clean(&line.function));
            let title = several.then(|| clean(&sites.title));
            let stack: Vec<String> = title.into_iter().chain(names).collect();
            *lines.entry(stack.join(";")).or_default() += bytes;
        }
        sites.all = all;
    }
    let mut text = String::new();
    for (stack, bytes) in lines {
        let _ = writeln!(text, "{stack} {bytes:.0}");
    }
    text
}

/// A name without what separates names in this format.
fn clean(name: &str) -> String {
    name.replace([';', '\n'], ":")
}
