//! CPUs: how many slots, how many really usable, which memory node, how much cache.
//!
//! Two counts that must not be mixed up:
//! - [`slot_count`]: a bound on every index the kernel can give a thread. Safety rests on it, so it
//!   comes from the kernel's own CPU mask and not from a file a container may fake.
//! - [`means`]: what affinity and a CPU quota leave. How much may be cached rests on it.

use crate::limits::{self, Controller, Version};
use crate::text::{self, Path};
use crate::{filter, rseq, sys};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use flagstone_core::base::{CpuId, Means, NodeId};

/// CPUs in one word of the kernel's mask.
const MASK_WORD: u32 = 64;
/// Bytes of the largest mask asked for: 8192 CPUs, the most Linux can be built for.
const MASK_BYTES: usize = 1024;

/// An upper bound on CPU numbers, rounded up to a word of the kernel's mask, and the CPUs this
/// thread may run on. The kernel refuses a mask that is too small for its CPUs, so the smallest
/// one it accepts is the bound.
fn affinity() -> (u32, u32) {
    let mut mask = [0u64; MASK_BYTES / 8];
    for words in 1..=mask.len() {
        // SAFETY: the mask is writable for the bytes named.
        let got = unsafe {
            sys::call(
                libc::SYS_sched_getaffinity,
                [0, words * 8, mask.as_mut_ptr() as usize, 0, 0, 0],
            )
        };
        if got > 0 {
            let allowed = mask[..words].iter().map(|w| w.count_ones()).sum();
            return (words as u32 * MASK_WORD, allowed);
        }
    }
    (MASK_WORD, 1)
}

/// Slots to keep: one more than the highest index a thread can be given, be it `cpu_id` or
/// `mm_cid`.
///
/// The possible CPUs as sysfs lists them, if that agrees with the kernel's mask to a word;
/// otherwise all of the mask.
pub fn slot_count() -> u32 {
    let (bound, _) = affinity();
    let mut buffer = [0; 256];
    let possible = Path::of(&[b"/sys/devices/system/cpu/possible"])
        .read(&mut buffer)
        .and_then(highest)
        .map_or(bound, |last| last.saturating_add(1));
    trusted_count(bound, possible)
}

const fn trusted_count(bound: u32, possible: u32) -> u32 {
    if possible > 0 && possible.next_multiple_of(MASK_WORD) == bound {
        possible
    } else {
        bound
    }
}

/// The highest number in a list such as `0-3,7`.
fn highest(list: &[u8]) -> Option<u32> {
    let mut last = 0;
    text::each_range(list, |_, end| last = last.max(end))?;
    u32::try_from(last).ok().filter(|&last| last < 1 << 16)
}

/// What this process may use: its memory limit, the CPUs it may run on, and those of them that it
/// can keep busy. Some tens of microseconds: not for start-up. `None` beside a filter.
#[must_use]
pub fn means() -> Option<Means> {
    let _permit = filter::permit()?;
    let (_, allowed) = affinity();
    Some(Means {
        memory_bytes: limits::memory_limit(),
        cpus: within_quota(allowed.max(1)),
        cpus_in_reach: allowed.max(1),
    })
}

/// The least of `cpus` and the CPU quotas of the process's control groups, rounded up.
fn within_quota(cpus: u32) -> u32 {
    let mut cpus = cpus;
    limits::each_group(Controller::Cpu, |version, directory| {
        if let Some(quota) = quota_in(version, directory) {
            cpus = cpus.min(quota);
        }
    });
    cpus
}

/// The quota of one control group in CPUs, rounded up; `None` where there is none.
fn quota_in(version: Version, directory: &[u8]) -> Option<u32> {
    if version == Version::Two {
        let mut buffer = [0; 64];
        let line = Path::of(&[directory, b"/cpu.max"]).read(&mut buffer)?;
        let (quota, rest) = text::number(line)?;
        let (period, _) = text::number(rest.strip_prefix(b" ")?)?;
        return whole_cpus(quota, period);
    }
    let quota = text::read_number(&[directory, b"/cpu.cfs_quota_us"])?;
    let period = text::read_number(&[directory, b"/cpu.cfs_period_us"])?;
    whole_cpus(quota, period)
}

fn whole_cpus(quota: u64, period: u64) -> Option<u32> {
    if period == 0 {
        return None;
    }
    u32::try_from(quota.div_ceil(period).max(1)).ok()
}

/// Nodes known; zero before the first question.
static NODE_COUNT: AtomicU8 = AtomicU8::new(0);
/// The node last seen for a slot, plus one; zero is unknown.
static NODE_OF: [AtomicU8; 1024] = [const { AtomicU8::new(0) }; 1024];

/// Memory nodes of this process, counted from zero to the highest; at least one, at most 64.
pub fn node_count() -> u8 {
    let known = NODE_COUNT.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let last = highest_node_allowed().or_else(highest_node_online);
    let count = last.map_or(1, |last| last.min(63) as u8 + 1);
    NODE_COUNT.store(count, Ordering::Relaxed);
    count
}

/// The highest node this process may have memory from: one call, where a container's filter lets
/// it through.
fn highest_node_allowed() -> Option<u32> {
    const MEMS_ALLOWED: usize = 1 << 2;
    let mut mask = [0u64; MASK_BYTES / 8];
    // SAFETY: the kernel writes at most the bits named; the policy itself is not asked for.
    let result = unsafe {
        sys::call(
            libc::SYS_get_mempolicy,
            [
                0,
                mask.as_mut_ptr() as usize,
                MASK_BYTES * 8,
                0,
                MEMS_ALLOWED,
                0,
            ],
        )
    };
    let word = mask.iter().rposition(|&word| word != 0)?;
    (result == 0).then(|| word as u32 * MASK_WORD + mask[word].ilog2())
}

fn highest_node_online() -> Option<u32> {
    let mut buffer = [0; 256];
    let online = Path::of(&[b"/sys/devices/system/node/online"]).read(&mut buffer)?;
    highest(online)
}

/// The memory node near a slot.
///
/// A dense index (`mm_cid`) wanders between CPUs, so a slot's node is where its last user ran: the
/// caller's own slot is looked up now and remembered for others who ask.
pub fn node_of(slot: CpuId) -> NodeId {
    let nodes = node_count();
    if nodes <= 1 {
        return NodeId(0);
    }
    let memory = NODE_OF.get(slot.index());
    let here = (crate::slots::current() == slot.0).then(current_node);
    if let Some(node) = here.flatten() {
        let node = node.min(u32::from(nodes) - 1) as u8;
        if let Some(memory) = memory {
            memory.store(node + 1, Ordering::Relaxed);
        }
        return NodeId(node);
    }
    let remembered = memory.map_or(0, |memory| memory.load(Ordering::Relaxed));
    NodeId(remembered.saturating_sub(1))
}

/// The node the caller runs on; `None` where only a call tells and a filter may not expect it.
fn current_node() -> Option<u32> {
    if rseq::ready() && rseq::index_is_mm_cid() {
        return Some(rseq::node());
    }
    let _permit = filter::permit()?;
    let (mut cpu, mut node) = (0u32, 0u32);
    // SAFETY: the kernel writes two words.
    unsafe {
        sys::call(
            libc::SYS_getcpu,
            [
                (&raw mut cpu) as usize,
                (&raw mut node) as usize,
                0,
                0,
                0,
                0,
            ],
        )
    };
    Some(node)
}

/// Bytes of last-level data cache per CPU that shares it, from sysfs; zero when unknown
/// (docs: linux-policies 6, the per-CPU data cache slice). Asked once, then remembered.
pub fn cache_slice_bytes() -> usize {
    /// Remembered answer plus one; zero before the first question.
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    let known = KNOWN.load(Ordering::Relaxed);
    if known != 0 {
        return known - 1;
    }
    let Some(_permit) = filter::permit() else {
        return 0;
    };
    let slice = (0..=4u8)
        .rev()
        .find_map(cache_leaf)
        .map_or(0, |(bytes, sharers)| bytes / sharers.max(1) as usize);
    KNOWN.store(slice + 1, Ordering::Relaxed);
    slice
}

/// Size in bytes and sharers of cache leaf `index` of the first CPU; `None` unless it is a data
/// or unified cache.
fn cache_leaf(index: u8) -> Option<(usize, u32)> {
    let digit = [b'0' + index];
    let leaf = |file: &'static [u8], buffer: &mut [u8; 256]| {
        let parts: [&[u8]; 4] = [
            b"/sys/devices/system/cpu/cpu0/cache/index",
            &digit,
            b"/",
            file,
        ];
        Path::of(&parts).read(buffer).map(<[u8]>::len)
    };
    let mut buffer = [0; 256];
    let len = leaf(b"type", &mut buffer)?;
    if buffer[..len].starts_with(b"Instruction") {
        return None;
    }
    let len = leaf(b"size", &mut buffer)?;
    let bytes = cache_size(&buffer[..len])?;
    let len = leaf(b"shared_cpu_list", &mut buffer)?;
    let sharers = AtomicU32::new(0);
    text::each_range(&buffer[..len], |first, last| {
        let count = last.saturating_sub(first).saturating_add(1);
        sharers.fetch_add(count.min(1 << 16) as u32, Ordering::Relaxed);
    })?;
    Some((bytes, sharers.into_inner()))
}

/// A size such as `32768K` or `16M`.
fn cache_size(text: &[u8]) -> Option<usize> {
    let (value, rest) = text::number(text)?;
    let shift = match rest.first() {
        Some(b'K') => 10,
        Some(b'M') => 20,
        _ => 0,
    };
    usize::try_from(value).ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_count_covers_every_cpu_this_machine_has() {
        let count = slot_count();
        let cpus = std::thread::available_parallelism().unwrap().get() as u32;
        assert!(count >= cpus);
        assert!(count <= affinity().0);
    }

    #[test]
    fn a_faked_list_of_cpus_is_not_trusted() {
        assert_eq!(trusted_count(64, 2), 2);
        assert_eq!(trusted_count(64, 64), 64);
        assert_eq!(trusted_count(128, 2), 128);
        assert_eq!(trusted_count(64, 0), 64);
        assert_eq!(trusted_count(64, 1000), 64);
    }

    #[test]
    fn a_quota_is_rounded_up_to_whole_cpus() {
        assert_eq!(whole_cpus(50_000, 100_000), Some(1));
        assert_eq!(whole_cpus(250_000, 100_000), Some(3));
        assert_eq!(whole_cpus(200_000, 100_000), Some(2));
        assert_eq!(whole_cpus(1, 0), None);
    }

    #[test]
    fn the_cpus_kept_busy_are_at_least_one_and_at_most_those_in_reach() {
        let means = means().unwrap();
        assert!((1..=means.cpus_in_reach).contains(&means.cpus));
        assert!(means.cpus_in_reach <= slot_count());
    }

    #[test]
    fn cache_sizes_are_read_with_their_unit() {
        assert_eq!(cache_size(b"32768K\n"), Some(32 << 20));
        assert_eq!(cache_size(b"16M"), Some(16 << 20));
        assert_eq!(cache_size(b"512"), Some(512));
        assert_eq!(cache_size(b"K"), None);
    }

    #[test]
    fn the_kernel_and_sysfs_agree_on_nodes_where_both_can_be_asked() {
        if let (Some(allowed), Some(online)) = (highest_node_allowed(), highest_node_online()) {
            assert!(allowed <= online);
        }
    }

    #[test]
    fn nodes_are_counted_and_every_slot_has_one() {
        let nodes = node_count();
        assert!(nodes >= 1);
        assert!(node_of(CpuId(0)).0 < nodes);
        assert!(node_of(CpuId(5000)).0 < nodes);
    }
}
