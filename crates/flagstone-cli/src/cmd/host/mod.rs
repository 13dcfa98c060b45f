//! `flagstone host`: what the kernel's own caches cost here, and what another setting would change.
//!
//! ```text
//!   source::Tree -> gather -> population -+-> formula -> deviations
//!     (live, DIR or TAR)                  +-> what_if    pagesets
//!   capture: Tree -> TAR                  +-> advice
//!                                         `-> report (JSON) -> view (text)
//! ```

mod advice;
mod apply;
mod capture;
mod deviations;
mod formula;
pub mod gather;
mod pagesets;
mod population;
pub mod report;
mod view;
mod what_if;
mod words;

use crate::args::Json;
use crate::exit::{Failure, Outcome};
use crate::source::Tree;
use crate::{outfile, suggest};
use flagstone_core::base::PageSize;
use flagstone_core::policy::Policy;
use flagstone_kernels::Named;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show what the running kernel's caches cost, and what another setting would change.
///
/// Reads /proc/slabinfo, /sys/kernel/slab, /proc/zoneinfo, /proc/buddyinfo and the CPU topology.
/// Advice is printed with its gain and cost; nothing is changed unless --apply names a change.
/// Without root most slab files are unreadable; the answer then says what it lacks.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo flagstone host
  sudo flagstone host --capture web7.tar      (copy what it reads, for another machine)
  flagstone host --root web7.tar --policy linux-7.0 --policy linux-6.5+order4")]
pub struct Args {
    /// Read a captured tree: a directory that holds proc and sys, or a tar file from
    /// --capture, plain or compressed by zstd
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Write a copy of everything this command reads to a tar file, and stop
    #[arg(long, value_name = "FILE.tar", conflicts_with = "json")]
    capture: Option<PathBuf>,

    /// Make this one change now, by its rule's name in --json (never a boot parameter)
    #[arg(long, value_name = "RULE", conflicts_with_all = ["capture", "json"])]
    apply: Option<String>,

    /// Cost the population under this policy instead of the usual ones; A,B or given again
    #[arg(long, value_name = "P", value_delimiter = ',')]
    policy: Vec<String>,

    /// Caches to list, largest first; 0 lists all
    #[arg(long, value_name = "N", default_value_t = 8)]
    top: usize,

    /// Page size in bytes, for a captured tree that does not tell it
    #[arg(long, value_name = "BYTES")]
    page_size: Option<usize>,

    #[command(flatten)]
    json: Json,
}

/// The answer about `tree` as text of `width` columns, as the command prints it.
///
/// # Errors
/// What [`gather::gather`] refuses.
pub fn text(tree: &Tree, width: u16) -> Result<String, Failure> {
    let host = gather::gather(tree, None)?;
    let report = report::build(&host, &usual_policies(&host));
    Ok(view::render(
        &report,
        8,
        &view::Screen {
            width,
            styled: false,
        },
    ))
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    let page_size = args.page_size.map(parse_page_size).transpose()?;
    let asked = parse_policies(&args.policy)?;
    let tree = match &args.root {
        Some(path) => Tree::open(path).map_err(|why| Failure::Usage(format!("host: {why}")))?,
        None => Tree::live(),
    };
    if let Some(to) = &args.capture {
        return write_capture(&tree, to, page_size);
    }
    let host = gather::gather(&tree, page_size)?;
    let policies = if asked.is_empty() {
        usual_policies(&host)
    } else {
        asked
    };
    let report = report::build(&host, &policies);
    if let Some(rule) = &args.apply {
        return apply::apply(&report, rule);
    }
    if let Some(file) = args.json.path() {
        outfile::write_json("host: --json", file, &report)?;
    }
    if !args.json.to_stdout() {
        print!(
            "{}",
            view::render(
                &report,
                args.top,
                &view::Screen::of(&std::io::stdout(), view::WIDTH_PIPE)
            )
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn parse_page_size(bytes: usize) -> Result<PageSize, Failure> {
    let size = PageSize::new(bytes).filter(|size| size.bytes() >= 512);
    size.ok_or_else(|| {
        Failure::Usage(format!(
            "host: --page-size {bytes} is not a power of two from 512 to 1 GiB"
        ))
    })
}

fn parse_policies(names: &[String]) -> Result<Vec<(String, Policy)>, Failure> {
    let parse = |name: &String| {
        suggest::policy(name).map_err(|why| Failure::Usage(format!("host: --policy {name}: {why}")))
    };
    names.iter().map(parse).collect()
}

/// The published trade-offs on top of the host's own formula, and the newest designs.
fn usual_policies(host: &gather::Host) -> Vec<(String, Policy)> {
    let mut names: Vec<String> = Vec::new();
    if let Some(formula) = formula::fit(host) {
        names.push(format!("{}+order4", formula.name));
        names.push(format!("{}+least-waste-repaired", formula.name));
        names.extend(
            ["linux-6.1", "linux-6.7", "linux-7.0"]
                .iter()
                .filter(|&&name| name != formula.name && !formula.alike.contains(&name))
                .map(|&name| name.to_owned()),
        );
    }
    names.push("flagstone".into());
    names
        .into_iter()
        .filter_map(|name| {
            Policy::parse(&name)
                .ok()
                .map(|policy| (name.clone(), policy))
        })
        .collect()
}

fn write_capture(tree: &Tree, to: &std::path::Path, page_size: Option<PageSize>) -> Outcome {
    // The page size of a tree that is not this machine's is known only if it tells.
    let told = page_size.map(PageSize::bytes).or_else(|| {
        let found = gather::gather(tree, None).ok()?;
        (found.page_size_from != gather::PageSizeFrom::Assumed).then(|| found.page_size.bytes())
    });
    let summary = capture::write(tree, to, told)
        .map_err(|why| Failure::Usage(format!("host: --capture {why}")))?;
    if summary.files == 0 {
        // Nobody needs a capture of nothing; what stood there is overwritten already.
        let _ = std::fs::remove_file(to);
        return Err(Failure::Usage(
            "host: --capture: nothing to copy; no proc/ or sys/ file could be read below the root"
                .into(),
        ));
    }
    eprintln!(
        "flagstone: host: wrote {} files to {}",
        summary.files,
        to.display()
    );
    for path in &summary.denied {
        eprintln!("flagstone: host: not in it: /{path} (permission denied; run as root)");
    }
    Ok(ExitCode::SUCCESS)
}
