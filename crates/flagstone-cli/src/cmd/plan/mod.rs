//! `flagstone plan`: what a policy would choose, for any cache on any machine.
//!
//! ```text
//!   args -> ask    every word checked once; one line per mistake
//!   ask  -> rows   pure: policies x machines x sizes            (benches/plan.rs)
//!   rows -> table | json
//! ```
//!
//! Parsing never acts, rows never print, views never compute.

mod ask;
mod population;
pub mod rows;
mod table;

use crate::args::Json;
use crate::exit::{Failure, Outcome};
use crate::outfile;
use crate::terminal::Screen;
use std::process::ExitCode;

/// Ask what slab orders, list limits and pageset marks a policy chooses.
///
/// Every combination of policy, CPU count, page size and object size is one row. Sizes are strides
/// (metadata and alignment included); --object-size derives them from what a program asks for.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  flagstone plan --policy linux-6.5 linux-6.5+order4 --cpus 224 --size 256 192
  flagstone plan --policy linux-6.5 linux-6.5+least-waste --cpus 160 --page-size 64K --size 1536
  flagstone plan --policy linux-7.0 --object-size 192 --rcu --hwcache-align
  flagstone plan --policy linux-6.18 flagstone --from /proc/slabinfo
  flagstone plan --policy linux-6.6 linux-6.7 --cpus 8 --zone-pages 4194304 --wmark-low 18500
  flagstone plan --policy linux-6.12 --set slab_max_order=1 --size 1024

With --from, every policy is asked for slabs that hold as many objects as the capture's slabs do
(--population slots), so that the kernel's own policy gives the capture's own totals. 'active'
counts only the objects in use; 'estimated' takes off half a slab for each CPU that may be
allocating from one, because a capture counts those objects as used.

Slabs of policy flagstone follow the population, so no one order describes them. --size tells the
order rule's slab, which they never exceed for the same objects but by a passing credit of 4 pages
(1 KiB where pages are larger than 4 KiB), and in JSON the first slab; --from tells what they cost.")]
pub struct Args {
    /// Policy: a kernel or flagstone, each with any +patch; several are compared
    #[arg(long = "policy", value_name = "P", num_args = 1.., value_delimiter = ',',
          default_value = "flagstone")]
    policies: Vec<String>,
    /// Number of CPUs: possible, present and online [default: of this machine]
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',', allow_negative_numbers = true)]
    cpus: Vec<String>,
    /// CPUs plugged in, where they are fewer than possible
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    present: Option<String>,
    /// CPUs that could ever exist
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    possible: Option<String>,
    /// Page size in bytes, 4K and the like accepted [default: of this machine]
    #[arg(long = "page-size", value_name = "B", num_args = 1.., value_delimiter = ',',
          allow_negative_numbers = true)]
    page_sizes: Vec<String>,
    /// Slab size: the stride of an object in bytes
    #[arg(long = "size", value_name = "B", num_args = 1.., value_delimiter = ',',
          allow_negative_numbers = true)]
    sizes: Vec<String>,
    /// Caches and their populations from a captured /proc/slabinfo, or from a tree or archive of
    /// host --capture; - reads standard input
    #[arg(long, value_name = "FILE")]
    from: Option<String>,
    /// Which objects of the capture a policy must find room for
    #[arg(long, value_name = "WHICH", default_value = "slots")]
    population: String,
    /// Size a program asks for, from which each policy derives the stride
    #[arg(long = "object-size", value_name = "B", num_args = 1.., value_delimiter = ',',
          allow_negative_numbers = true)]
    object_sizes: Vec<String>,
    /// Requested alignment in bytes, with --object-size
    #[arg(long, value_name = "B", allow_negative_numbers = true)]
    align: Option<String>,
    /// Keep objects from straddling cache lines, with --object-size
    #[arg(long)]
    hwcache_align: bool,
    /// Cache line in bytes, with --hwcache-align [default: 64]
    #[arg(long, value_name = "B", allow_negative_numbers = true)]
    cache_line: Option<String>,
    /// A general-purpose (kmalloc) cache, with --object-size
    #[arg(long)]
    kmalloc: bool,
    /// The cache has a constructor, with --object-size
    #[arg(long)]
    ctor: bool,
    /// RCU readers may see freed objects (SLAB_TYPESAFE_BY_RCU), with --object-size
    #[arg(long)]
    rcu: bool,
    /// Guard bytes around objects, with --object-size
    #[arg(long)]
    red_zone: bool,
    /// Poison freed objects, with --object-size
    #[arg(long)]
    poison: bool,
    /// Record who allocated and freed, with --object-size
    #[arg(long)]
    store_user: bool,
    /// Override one knob of every policy, as a boot parameter would
    #[arg(long = "set", value_name = "K=V", num_args = 1..)]
    settings: Vec<String>,
    /// Managed pages of a zone: adds the pageset marks
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',',
          allow_negative_numbers = true)]
    zone_pages: Vec<String>,
    /// The zone's low watermark in pages [default: that of a machine with only this zone]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    wmark_low: Option<String>,
    /// The zone's high watermark in pages [default: likewise]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    wmark_high: Option<String>,
    /// With --from, caches to list, largest first; 0 lists all
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    #[command(flatten)]
    json: Json,
}

/// Hands the answer, which is the document of `--json`, to `show`.
///
/// # Errors
/// One line for a word that cannot be, and what `show` fails with.
pub fn answer<T>(
    args: &Args,
    show: impl FnOnce(&rows::Plan<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let ask = ask::Ask::from_args(args)?;
    show(&rows::Plan::of(&ask)?)
}

/// Runs the command.
pub fn run(args: &Args) -> Outcome {
    answer(args, |plan| {
        if let Some(file) = args.json.path() {
            outfile::write_json("plan: --json", file, plan)?;
        }
        if !args.json.to_stdout() {
            let screen = Screen::of(&std::io::stdout(), table::WIDTH_PIPE);
            print!("{}", table::render(plan, args.top, screen));
        }
        Ok(ExitCode::SUCCESS)
    })
}
