//! The question: every argument checked and turned into a kind.

use super::Args;
use super::population::{Captured, Count};
use super::rows::{Machine, NamedPolicy, Object};
use crate::exit::Failure;
use crate::suggest;
use flagstone_core::base::{Order, PageSize};
use flagstone_core::policy::{Cpus, ObjectSpec, WatermarkInput, Watermarks, min_free_kib};

/// A checked question.
pub struct Ask {
    /// Policies in the order given; the first is what the others are compared with.
    pub policies: Vec<NamedPolicy>,
    /// Every page size with every CPU count.
    pub machines: Vec<Machine>,
    /// Sizes asked for, as strides or as objects.
    pub objects: Vec<Object>,
    /// A capture's caches.
    pub captured: Vec<Captured>,
    /// Zones whose pageset marks are wanted.
    pub zones: Vec<Zone>,
}

/// One zone: managed pages and watermarks.
#[derive(Clone, Copy, Debug)]
pub struct Zone {
    /// Managed pages.
    pub pages: u64,
    /// Low watermark in pages, if given.
    low: Option<u64>,
    /// High watermark in pages, if given.
    high: Option<u64>,
}

impl Zone {
    /// Low and high watermark: as given, or those of a machine that has only this zone.
    pub fn watermarks(&self, page_size: PageSize) -> (u64, u64) {
        let own = Watermarks::of(&WatermarkInput {
            managed: self.pages,
            lowmem: self.pages,
            min_free_kib: min_free_kib(self.pages.saturating_mul(page_size.bytes() as u64) / 1024),
            scale_factor: 10,
            page_size,
            movable_only: false,
        });
        let low = self.low.unwrap_or(own.low);
        // The kernel's marks are equally far apart.
        (
            low,
            self.high.unwrap_or(low.saturating_add(own.high - own.low)),
        )
    }
}

fn usage(line: impl std::fmt::Display) -> Failure {
    Failure::Usage(format!("plan: {line}"))
}

/// A whole number with an optional K, M, G or T suffix.
fn number(option: &str, text: &str) -> Result<u64, Failure> {
    suggest::bytes(text).ok_or_else(|| {
        usage(format_args!(
            "{option} {text}: not a whole number; 256, 4096, 64K, 8M and 1G are"
        ))
    })
}

fn cpu_count(option: &str, text: &str) -> Result<u32, Failure> {
    let count = number(option, text)?;
    match u32::try_from(count) {
        Ok(0) => Err(usage(format_args!(
            "{option} 0: a machine has at least 1 CPU"
        ))),
        Ok(count) if count <= 1 << 20 => Ok(count),
        _ => Err(usage(format_args!(
            "{option} {text}: more than the 1048576 CPUs any rule knows"
        ))),
    }
}

fn power_of_two(option: &str, text: &str, most: u64) -> Result<usize, Failure> {
    let bytes = number(option, text)?;
    if bytes.is_power_of_two() && bytes <= most {
        Ok(bytes as usize)
    } else {
        Err(usage(format_args!(
            "{option} {text}: must be a power of two from 1 to {most}"
        )))
    }
}

impl Ask {
    /// Checks the arguments.
    pub fn from_args(args: &Args) -> Result<Self, Failure> {
        let policies = policies(args)?;
        let cpus = cpus(args)?;
        let page_sizes = page_sizes(args)?;
        let machines: Vec<_> = page_sizes
            .iter()
            .flat_map(|&page_size| cpus.iter().map(move |&cpus| Machine { page_size, cpus }))
            .collect();
        let objects = objects(args, &page_sizes)?;
        let count = Count::parse(&args.population).map_err(usage)?;
        let captured = match &args.from {
            None => Vec::new(),
            Some(_) if !objects.is_empty() => {
                return Err(usage("--from and --size exclude each other; ask twice"));
            }
            Some(_) if page_sizes.len() > 1 => {
                return Err(usage(
                    "--from is one capture of one page size; give one --page-size",
                ));
            }
            Some(path) => Captured::read(path, page_sizes[0], count).map_err(usage)?,
        };
        let zones = zones(args)?;
        if objects.is_empty() && args.from.is_none() && zones.is_empty() {
            return Err(usage(
                "nothing to plan for; give --size B, --object-size B, --from FILE or --zone-pages N",
            ));
        }
        Ok(Self {
            policies,
            machines,
            objects,
            captured,
            zones,
        })
    }
}

fn policies(args: &Args) -> Result<Vec<NamedPolicy>, Failure> {
    let mut named = Vec::new();
    for name in &args.policies {
        let (name, mut policy) = suggest::policy(name).map_err(usage)?;
        for setting in &args.settings {
            suggest::set(&mut policy, setting).map_err(usage)?;
        }
        named.push(NamedPolicy { name, policy });
    }
    Ok(named)
}

fn cpus(args: &Args) -> Result<Vec<Cpus>, Failure> {
    let option = |name: &str, text: &Option<String>| {
        text.as_deref()
            .map(|text| cpu_count(name, text))
            .transpose()
    };
    let present = option("--present", &args.present)?;
    let possible = option("--possible", &args.possible)?;
    let mut counts = Vec::new();
    for text in &args.cpus {
        counts.push(cpu_count("--cpus", text)?);
    }
    if counts.is_empty() {
        let here = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        counts.push(present.or(possible).unwrap_or(here));
    }
    counts
        .into_iter()
        .map(|count| {
            let present = present.unwrap_or(count.min(possible.unwrap_or(count)));
            let possible = possible.unwrap_or(count.max(present));
            if possible < present {
                return Err(usage(format_args!(
                    "--possible {possible}: fewer than the {present} present CPUs"
                )));
            }
            Ok(Cpus {
                possible,
                present,
                online: count.min(present),
            })
        })
        .collect()
}

fn page_sizes(args: &Args) -> Result<Vec<PageSize>, Failure> {
    if args.page_sizes.is_empty() {
        // SAFETY: sysconf reads a constant of the system and touches no memory of ours.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let here = usize::try_from(bytes).ok().and_then(PageSize::new);
        return Ok(vec![here.unwrap_or(PageSize::K4)]);
    }
    args.page_sizes
        .iter()
        .map(|text| {
            let bytes = number("--page-size", text)?;
            usize::try_from(bytes)
                .ok()
                .filter(|&bytes| bytes >= 512)
                .and_then(PageSize::new)
                .ok_or_else(|| {
                    usage(format_args!(
                        "--page-size {text}: must be a power of two from 512 to 1073741824 bytes"
                    ))
                })
        })
        .collect()
}

fn object_bytes(option: &str, text: &str, page_sizes: &[PageSize]) -> Result<usize, Failure> {
    let bytes = number(option, text)?;
    if bytes == 0 {
        return Err(usage(format_args!(
            "{option} 0: an object has at least 1 byte"
        )));
    }
    for page_size in page_sizes {
        let largest = page_size.block_bytes(Order::MAX) as u64;
        if bytes > largest {
            return Err(usage(format_args!(
                "{option} {text}: larger than the largest block, {largest} bytes (order {} of \
                 {}-byte pages)",
                Order::MAX.get(),
                page_size.bytes()
            )));
        }
    }
    Ok(bytes as usize)
}

fn objects(args: &Args, page_sizes: &[PageSize]) -> Result<Vec<Object>, Failure> {
    let flags = [
        (args.align.is_some(), "--align"),
        (args.hwcache_align, "--hwcache-align"),
        (args.cache_line.is_some(), "--cache-line"),
        (args.kmalloc, "--kmalloc"),
        (args.ctor, "--ctor"),
        (args.rcu, "--rcu"),
        (args.red_zone, "--red-zone"),
        (args.poison, "--poison"),
        (args.store_user, "--store-user"),
    ];
    if args.object_sizes.is_empty()
        && let Some((_, flag)) = flags.iter().find(|(given, _)| *given)
    {
        return Err(usage(format_args!(
            "{flag} changes an object's layout; give --object-size"
        )));
    }
    let mut objects = Vec::new();
    for text in &args.sizes {
        objects.push(Object::Stride(object_bytes("--size", text, page_sizes)?));
    }
    let align = args
        .align
        .as_deref()
        .map_or(Ok(0), |text| power_of_two("--align", text, 1 << 20))?;
    let cache_line = args
        .cache_line
        .as_deref()
        .map_or(Ok(64), |text| power_of_two("--cache-line", text, 1024))?;
    for text in &args.object_sizes {
        let object_size = object_bytes("--object-size", text, page_sizes)?;
        objects.push(Object::Spec(ObjectSpec {
            align,
            cache_line,
            hwcache_align: args.hwcache_align,
            ctor: args.ctor,
            rcu: args.rcu,
            red_zone: args.red_zone,
            poison: args.poison,
            store_user: args.store_user,
            kmalloc: args.kmalloc,
            ..ObjectSpec::new(object_size)
        }));
    }
    Ok(objects)
}

fn zones(args: &Args) -> Result<Vec<Zone>, Failure> {
    let option = |name: &str, text: &Option<String>| {
        text.as_deref().map(|text| number(name, text)).transpose()
    };
    let low = option("--wmark-low", &args.wmark_low)?;
    let high = option("--wmark-high", &args.wmark_high)?;
    if args.zone_pages.is_empty() && (low.is_some() || high.is_some()) {
        return Err(usage(
            "--wmark-low and --wmark-high belong to a zone; give --zone-pages N",
        ));
    }
    if let (Some(low), Some(high)) = (low, high)
        && high < low
    {
        return Err(usage(format_args!(
            "--wmark-high {high}: below --wmark-low {low}"
        )));
    }
    let mut zones = Vec::new();
    for text in &args.zone_pages {
        let pages = number("--zone-pages", text)?;
        if pages == 0 || pages > 1 << 48 {
            return Err(usage(format_args!(
                "--zone-pages {text}: must be from 1 to 2^48 pages"
            )));
        }
        for (name, mark) in [("--wmark-low", low), ("--wmark-high", high)] {
            if let Some(mark) = mark.filter(|&mark| mark > pages) {
                return Err(usage(format_args!(
                    "{name} {mark}: more than the zone's {pages} pages"
                )));
            }
        }
        zones.push(Zone { pages, low, high });
    }
    Ok(zones)
}
