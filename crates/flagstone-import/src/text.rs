//! Lines of the kernel's allocation events, in the text that tracefs, `trace-cmd report` and `perf
//! script` print.
//!
//! ```text
//!   bash-812   [001] d..1.  912.000345: kmem_cache_alloc: call_site=... ptr=00000000ab12 name=dentry ...
//!   bash   812 [001]        912.000345: kmem:kmem_cache_alloc: (ffff...) call_site=... ptr=0xffff...
//! ```
//!
//! Fields are found by name, so kernels that add or reorder fields are read too.

use crate::input::Source;
use crate::slabs::PAGE_SHIFT;
use crate::{About, Error, Sink, What, kmalloc, packed};
use flagstone_trace::Move;

/// What a recorder writes to `trace_marker` when it has read /proc/zoneinfo, and before it reads it again.
pub const BEGUN: &str = "flagstone: pagesets read";
/// The second of them.
pub const ENDED: &str = "flagstone: pagesets to be read";

/// One kernel event.
#[derive(Clone, PartialEq, Debug)]
struct Line<'a> {
    /// The CPU it happened on.
    cpu: u32,
    /// Nanoseconds on the trace's clock.
    ns: u64,
    /// What happened.
    what: What<'a>,
}

/// Hands on what all lines tell. The order of lines is the order of events, also where the printed times
/// are equal: later lines get later nanoseconds.
pub fn read(source: &mut dyn Source, sink: &mut dyn Sink) -> Result<About, Error> {
    let mut about = About::default();
    let (mut last, mut last_told) = (0, None);
    let cut = packed::lines(source, |bytes| {
        let Some(line) = std::str::from_utf8(bytes).ok().and_then(parse) else {
            about.others += 1;
            return Ok(());
        };
        about.backwards += u64::from(line.ns < last);
        last = line.ns;
        let ns = last_told.map_or(line.ns, |told: u64| line.ns.max(told.saturating_add(1)));
        last_told = Some(ns);
        sink.event(line.cpu, ns, &line.what)
    })?;
    if cut {
        about
            .notes
            .push("The packed text is cut off; what was there is read.".into());
    }
    Ok(about)
}

/// Reads a line; `None` for one that is no allocation event.
fn parse(line: &str) -> Option<Line<'_>> {
    // A command's name may hold brackets: the CPU's are the last before the time.
    let (head, rest) = split_time(line)?;
    let open = head.rfind('[')?;
    let close = head[open..].find(']')? + open;
    let cpu = head[open + 1..close].trim().parse().ok()?;
    let ns = time(head.rsplit(' ').next()?)?;
    let (name, fields) = rest.split_once(": ")?;
    let name = name.rsplit(':').next()?.trim();
    let what = event(name, fields)?;
    Some(Line { cpu, ns, what })
}

/// Splits at the colon behind the time: the first that follows digits, a point and digits.
fn split_time(line: &str) -> Option<(&str, &str)> {
    let mut from = 0;
    while let Some(at) = line[from..].find(": ").map(|at| at + from) {
        let word = line[..at].rsplit(' ').next()?;
        if time(word).is_some() {
            return Some((&line[..at], line[at + 2..].trim_start()));
        }
        from = at + 2;
    }
    None
}

/// Seconds with a fraction, as nanoseconds.
fn time(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(seconds) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10_u64.pow(9 - fraction.len() as u32);
    let seconds: u64 = seconds.parse().ok()?;
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(fraction.parse::<u64>().ok()? * scale)
}

fn event<'a>(name: &str, fields: &'a str) -> Option<What<'a>> {
    let field = |key: &str| {
        fields
            .split_ascii_whitespace()
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    };
    let number = |key: &str| field(key).and_then(decimal);
    // The flags are names here; the two that choose among kmalloc's caches are looked for.
    let flags = || {
        let words = field("gfp_flags").unwrap_or("");
        kmalloc::flags(
            words.contains("DMA") && !words.contains("DMA32"),
            words.contains("__GFP_RECLAIMABLE"),
            words.contains("ACCOUNT"),
        )
    };
    let order = || number("order").map(|order| order.min(15) as u8);
    let migratetype = || number("migratetype").unwrap_or(0).min(255) as u8;
    let moved = |what| {
        Some(What::PageMove {
            what,
            pfn: pointer(field("pfn")?)?,
            order: order().unwrap_or(0),
            migratetype: migratetype(),
        })
    };
    let plain = |what, pfn| What::PageMove {
        what,
        pfn,
        order: 0,
        migratetype: 0,
    };
    Some(match name {
        "kmem_cache_alloc" | "kmem_cache_alloc_node" | "kmalloc" | "kmalloc_node" => What::Alloc {
            pointer: pointer(field("ptr")?)?,
            requested: number("bytes_req")?,
            given: number("bytes_alloc")?,
            cache: match field("name") {
                Some(name) => Some(name),
                None => kmalloc::name(number("bytes_alloc")?, flags()),
            },
        },
        "kmem_cache_free" | "kfree" => match pointer(field("ptr")?)? {
            // `kfree` of null is no free.
            0 => return None,
            pointer => What::Free {
                pointer,
                cache: field("name"),
            },
        },
        "mm_page_alloc" => What::PageAlloc {
            pfn: pointer(field("pfn")?)?,
            order: order()?,
            migratetype: migratetype(),
        },
        "mm_page_free" => What::PageFree {
            pfn: pointer(field("pfn")?)?,
            order: order().unwrap_or(0),
        },
        "mm_page_alloc_zone_locked" => match number("percpu_refill") {
            Some(1) => moved(Move::Refill)?,
            _ => moved(Move::Zone)?,
        },
        "mm_page_pcpu_drain" => moved(Move::Drain)?,
        // A page freed in a batch is told by `mm_page_free` as well.
        "mm_page_free_batched" => moved(Move::Batched)?,
        // Pages of kernel stacks are taken in bulk, right after their addresses; one of these has no page.
        "alloc_vmap_area" => plain(
            Move::Bulk,
            (number("size")? >> PAGE_SHIFT).saturating_sub(1),
        ),
        "workqueue_execute_start" if fields.trim_end().ends_with("function vmstat_update") => {
            plain(Move::Decay, 0)
        }
        "tracing_mark_write" => match fields.trim() {
            BEGUN => plain(Move::Begun, 0),
            ENDED => plain(Move::Ended, 0),
            _ => return None,
        },
        _ => return None,
    })
}

fn decimal(text: &str) -> Option<u64> {
    text.trim_end_matches(',').parse().ok()
}

/// A pointer or a page frame: hexadecimal with or without `0x`, or decimal where it has no letter and
/// the prefix is missing on a frame number.
fn pointer(text: &str) -> Option<u64> {
    let text = text.trim_end_matches(',');
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if text.len() == 16 => u64::from_str_radix(text, 16).ok(),
        None => text
            .parse()
            .ok()
            .or_else(|| u64::from_str_radix(text, 16).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tracefs_and_of_perf_are_read() {
        let tracefs = "  kworker/1:2-99 [001] d..1.   912.000345: kmem_cache_alloc: \
            call_site=getname+0x2b ptr=00000000ab12cd34 name=names_cache bytes_req=4096 \
            bytes_alloc=4096 gfp_flags=GFP_KERNEL node=-1 accounted=false";
        let read = parse(tracefs).unwrap();
        assert_eq!((read.cpu, read.ns), (1, 912_000_345_000));
        let What::Alloc {
            pointer,
            cache,
            requested,
            ..
        } = read.what
        else {
            panic!("an allocation");
        };
        assert_eq!(
            (pointer, cache, requested),
            (0xab12_cd34, Some("names_cache"), 4096)
        );
        let perf =
            "redis server  812 [003] 77.5: kmem:kfree: call_site=ffff ptr=0xffff888100000010";
        let free = What::Free {
            pointer: 0xffff_8881_0000_0010,
            cache: None,
        };
        let read = parse(perf).unwrap();
        assert_eq!((read.cpu, read.ns, read.what), (3, 77_500_000_000, free));
        let page = "x-1 [000] ..... 1.000000: mm_page_alloc: page=0x1 pfn=0x40b9 order=2 migratetype=1 gfp_flags=GFP";
        let read = parse(page).unwrap();
        assert_eq!(
            read.what,
            What::PageAlloc {
                pfn: 0x40b9,
                order: 2,
                migratetype: 1
            }
        );
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "# tracer: nop",
            "x-1 [000] ..... 1.000000: sched_switch: prev_comm=x",
            "x-1 [000] ..... 1.000000: kmem_cache_alloc: ptr=zz bytes_req=1 bytes_alloc=1",
            "x-1 [bad] ..... 1.000000: kfree: ptr=0x1",
            ": : : :",
            "99999999999999999999.1: kfree: ptr=0x1",
            "x-1 [000] ..... 1.000000: kfree: call_site=f ptr=0000000000000000",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
