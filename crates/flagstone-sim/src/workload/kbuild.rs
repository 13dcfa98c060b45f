//! A build server: many compilers, each a process that faults its memory in page by page and
//! gives all of it back at exit.
//!
//! From a trace of real compilations (four small files, two at a time): 6000 order-0 pages for
//! each, 52,000 page allocations a second and CPU, half of the pages alive for 60 ms and more,
//! nearly all frees on the allocating CPU in one burst at exit. Process sizes are exponential
//! around the mean. The last free of an exit is the top of the page table, of order 1: the free
//! after which the first patch of the pageset series no longer drains everything.
//!
//! ```text
//!   memory in use   files of eight trees (constant) + processes (0 to 24 MiB, 12 on average each)
//!   a CPU's time    process · wait for the build's serial parts · process · wait ..
//! ```
//!
//! An operation is one page faulted in, exits included; build time is the inverse of throughput.
//! The published test keeps 224 CPUs busy with 8 builds of 28 jobs. A compiler of the kernel takes about
//! a second; here it takes a tenth of that, and the statistics interval, after which pagesets
//! decay, is a tenth of a second with it. Left out: files read and written while it runs.

use super::Env;
use crate::costs::{MS, NS, Ps};
use crate::schedule::Program;
use crate::vm::Vm;
use flagstone_core::base::{Order, Pfn};
use flagstone_core::platform::{Platform, Work};

/// Mean pages of one process, from the trace.
const PAGES: f64 = 6000.0;
/// Nanoseconds between two faults, clearing and mapping the page apart: fitted to the base row's
/// lock share (14 % of 224 CPUs) alone. A trace of one compiler shows 19 us
/// in all; a build also allocates page cache and page tables, which are not modelled one by one.
/// The share moves by several points from one value to the next (docs/fits.md).
pub(super) const THINK_NS: f64 = 5600.0;
/// Time a CPU waits for its build's serial parts (linking, what depends on it), in percent of the
/// time its processes would take alone: an estimate.
const WAIT_PERCENT: u64 = 25;
/// A tenth of the kernel's statistics interval, as compilers take a tenth of their time here.
const UPKEEP_EVERY: Ps = 100 * MS;
/// Trees that are built at a time, and bytes of one in memory: sources read, objects written
/// (an estimate for a kernel's default configuration).
const TREES: usize = 8;
const TREE_BYTES: usize = 1433 << 20;

pub(super) fn make<'a>(env: &'a Env<'a>) -> Vec<(u32, Program<'a>)> {
    let think = env.think(THINK_NS);
    let small = env.subject.cache("anon_vma_chain", 64);
    env.subject.note_beside(TREES * TREE_BYTES);
    env.vm.set_upkeep_every(UPKEEP_EVERY);
    let programs = env.cpus.iter().map(|&cpu| {
        let program: Program<'a> = Box::new(move |vm: &Vm| {
            let mut pages: Vec<(Pfn, Order)> = Vec::new();
            let mut objects = Vec::new();
            // Processes start at different points of their lives.
            let mut first = u64::from(vm.chance.below(1 << 20));
            while !vm.stopping() {
                let mut count = vm.chance.exponential(PAGES).clamp(100, 30_000);
                if first != 0 {
                    count = ((count * first) >> 20).max(1);
                    first = 0;
                }
                for index in 0..count {
                    if vm.stopping() {
                        break;
                    }
                    let order = order_of(index);
                    let pfn = env.subject.alloc_pages(vm, order);
                    crate::Virtual::work(Work::Pages(1));
                    vm.use_page(env.subject.page_address(pfn), 4096);
                    vm.use_own_data(2000, 0);
                    pages.push((pfn, order));
                    if index % 8 == 0 {
                        objects.push(env.subject.alloc(vm, small));
                    }
                    vm.spend(jitter(vm, think));
                    vm.count_op();
                }
                exit(vm, env, &mut pages);
                for object in objects.drain(..) {
                    // SAFETY: allocated above from this cache.
                    unsafe { env.subject.free(vm, small, object) };
                }
                if !vm.stopping() {
                    vm.sleep_until(vm.now() + count * (2 * think) / 100 * WAIT_PERCENT);
                }
            }
        });
        (cpu, program)
    });
    programs.collect()
}

/// One block of order 1 for each process, early in its life: the top of its page table.
fn order_of(index: u64) -> Order {
    Order::new(u32::from(index == 17)).unwrap_or(Order::ZERO)
}

/// Everything goes back, in the order of addresses it was mapped in; the table's top comes last.
fn exit(vm: &Vm, env: &Env<'_>, pages: &mut Vec<(Pfn, Order)>) {
    pages.sort_by_key(|(_, order)| *order);
    for (pfn, order) in pages.drain(..) {
        // SAFETY: allocated by this process, which ends.
        unsafe { env.subject.free_pages(vm, pfn, order) };
        vm.spend(60 * NS);
    }
}

/// Between a half and one and a half of `think`.
fn jitter(vm: &Vm, think: u64) -> u64 {
    think / 2 + think * u64::from(vm.chance.below(1024)) / 1024
}
