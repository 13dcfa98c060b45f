//! Building the page allocator in place: span, zones, marks, pagesets.
//!
//! ```text
//!   span wished ─► claim, where address space is limited
//!               ─► reserve, halving until granted ─► zones: equal shares, a power of two each
//!                                                    pagesets: one per CPU and zone
//! ```

use super::allocator::PageAllocator;
use super::config::PageConfig;
use super::descriptor::Spacing;
use super::memmap::{Ground, Layout, Memmap};
use super::pageset::{Pageset, Pagesets};
use super::whole::Whole;
use super::zone::{Zone, ZonePlan};
use super::zone_size::{Managed, Shares};
use crate::base::{CpuId, NodeId, Order, PageSize, Pfn};
use crate::platform::{OutOfMemory, Platform};
use crate::policy::{PcpMarks, PcpZone, Policy, WatermarkInput, Watermarks, min_free_kib};
use crate::sync::{AtomicU64, AtomicUsize};
use core::ptr::NonNull;

/// The control part: zones, then pagesets, then the bits of whole blocks.
struct Control {
    bytes: usize,
    pagesets: usize,
    whole: usize,
}

impl Control {
    fn of<P: Platform>(zones: u32, cpus: u32, pages: usize) -> Self {
        let pagesets =
            (zones as usize * size_of::<Zone<P>>()).next_multiple_of(align_of::<Pageset>());
        let whole = pagesets + zones as usize * cpus as usize * size_of::<Pageset>();
        Self {
            bytes: whole + Whole::bytes(pages),
            pagesets,
            whole,
        }
    }
}

impl<P: Pagesets> PageAllocator<P> {
    /// Builds the allocator in place: `this` must not move afterwards.
    ///
    /// # Errors
    /// `OutOfMemory` if not even the smallest span could be reserved, or its first pages not
    /// committed; `this` is not initialised then.
    ///
    /// # Safety
    /// 1. `this` is valid for writes and nobody else's.
    pub unsafe fn init(this: *mut Self, config: &PageConfig) -> Result<(), OutOfMemory> {
        let page_size = P::page_size();
        let block = page_size.block_bytes(Order::MAX);
        let unit = if config.span_bytes >= block {
            block
        } else {
            page_size.bytes()
        };
        let most = page_size.bytes() << 31;
        let mut span = config.span_bytes.clamp(page_size.bytes(), most) / unit * unit;
        let least = config.span_bytes_min.min(span).max(unit);
        let claim = P::claim_span().map(|bytes| bytes.min(most) / block * block);
        if let Some(built) = claim.and_then(|claim| Self::build(claim, Ground::Claimed, config)) {
            // SAFETY: obligation 1.
            unsafe { this.write(built) };
            return Ok(());
        }
        loop {
            if let Some(built) = Self::build(span, Ground::Reserved, config) {
                // SAFETY: obligation 1.
                unsafe { this.write(built) };
                return Ok(());
            }
            span = span / 2 / unit * unit;
            if span < least {
                return Err(OutOfMemory);
            }
        }
    }

    fn build(span: usize, ground: Ground, config: &PageConfig) -> Option<Self> {
        let page_size = P::page_size();
        let pages = span >> page_size.shift();
        let cpus = P::cpu_count();
        let shares = Shares::of(pages, u32::from(P::node_count()));
        let control = Control::of::<P>(shares.zones, cpus, pages);
        let layout = Layout::of(page_size, control.bytes, span, Spacing::of(&config.policy));
        let (bytes, align) = layout.reservation();
        let start = match ground {
            Ground::Reserved => P::reserve(bytes, align)?,
            Ground::Claimed => P::claim(bytes, align)?,
        };
        let rule = &config.retention;
        // SAFETY: `start` is that reservation or claim; control is committed next.
        let (map, control_at) =
            unsafe { Memmap::new(start, &layout, page_size, control.whole, rule, ground) };
        // SAFETY: whole pages of the reservation or the claim, given back if that is refused.
        unsafe {
            let committed = match ground {
                Ground::Reserved => P::commit(control_at, layout.control).is_ok(),
                Ground::Claimed => P::map(control_at, layout.control).is_ok(),
            };
            if !committed {
                if ground == Ground::Reserved {
                    P::release(start, bytes);
                }
                return None;
            }
        }
        let zones: NonNull<Zone<P>> = control_at.cast();
        for index in 0..shares.zones {
            // SAFETY: the control part has room for every zone's pagesets.
            let pagesets: NonNull<Pageset> = unsafe {
                control_at
                    .byte_add(control.pagesets)
                    .cast::<Pageset>()
                    .add(index as usize * cpus as usize)
            };
            let plan = plan_of::<P>(index, &shares, pages, (pagesets, ground), config);
            write_pagesets::<P>(&plan, config);
            // SAFETY: the pagesets were written on the line above.
            let zone = unsafe { Zone::new(&plan, &map) };
            // SAFETY: the control part has room for this many zones.
            unsafe { zones.add(index as usize).write(zone) };
        }
        Some(Self {
            map,
            zones,
            zone_count: shares.zones,
            zone_shift: shares.shift,
            cached_order: config.policy.pcp_rule.largest,
            control_bytes: layout.control,
            own_bytes: AtomicUsize::new(0),
            hole_bytes: AtomicU64::new(0),
            ticked: AtomicU64::new(0),
            config: *config,
        })
    }
}

/// One zone's share of span and memory, and the marks that follow.
fn plan_of<P: Platform>(
    index: u32,
    shares: &Shares,
    pages: usize,
    (pagesets, ground): (NonNull<Pageset>, Ground),
    config: &PageConfig,
) -> ZonePlan {
    let limit = config.managed_bytes.unwrap_or_else(P::memory_at_start);
    let start = Pfn(index * shares.pages_each);
    ZonePlan {
        node: NodeId(index as u8),
        start,
        end: Pfn(start.0 + shares.pages_each),
        size: size_of_zone(pages, shares.zones, limit, P::page_size(), config),
        pagesets,
        ground,
    }
}

/// What each of `zones` zones may use of a span of `pages` where memory is limited to `limit`
/// bytes.
pub(super) fn size_of_zone(
    pages: usize,
    zones: u32,
    limit: usize,
    page_size: PageSize,
    config: &PageConfig,
) -> Managed {
    let shift = page_size.shift();
    let managed_all = pages.min(limit >> shift);
    let managed = managed_all / zones as usize;
    let lowmem_kib = ((managed_all as u64) << shift) / 1024;
    Managed {
        pages: managed,
        marks: Watermarks::of(&WatermarkInput {
            managed: managed as u64,
            lowmem: managed_all as u64,
            // Never more than a twentieth: tiny limits would otherwise be all reserve.
            min_free_kib: config
                .min_free_kib
                .unwrap_or_else(|| min_free_kib(lowmem_kib).min(lowmem_kib / 20)),
            scale_factor: config.watermark_scale,
            page_size,
            movable_only: false,
        }),
    }
}

/// The marks of every pageset of a zone of this size.
pub(super) fn marks_of<P: Platform>(node: NodeId, size: &Managed, policy: &Policy) -> PcpMarks {
    let cpus = P::cpu_count();
    let near = (0..cpus)
        .filter(|&cpu| P::node_of(CpuId(cpu)) == node)
        .count() as u32;
    policy.pcp_marks(&PcpZone {
        managed: size.pages as u64,
        low: size.marks.low,
        cpus: if near == 0 { cpus } else { near },
        high_fraction: 0,
        page_size: P::page_size(),
    })
}

fn write_pagesets<P: Pagesets>(plan: &ZonePlan, config: &PageConfig) {
    let marks = marks_of::<P>(plan.node, &plan.size, &config.policy);
    let mut state = config.policy.pcp_state::<P::Rule>(marks);
    if !P::ASKS_LATE {
        state.set_cache_slice(P::cache_slice_bytes() as u64, P::page_size().shift());
    }
    for cpu in 0..P::cpu_count() as usize {
        // SAFETY: the plan's pagesets are one for each CPU, in committed memory of ours.
        unsafe { plan.pagesets.add(cpu).write(Pageset::new(state)) };
    }
}
