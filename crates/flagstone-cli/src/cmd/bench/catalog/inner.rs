//! The workloads that a measured process runs, by name and by what they do.

use super::list::ORDERS;
use crate::cmd::bench::child::fixed::{self, FreeOrder};
use crate::cmd::bench::child::sharing::{self, Sharing};
use crate::cmd::bench::child::{
    Damage, Job, Sample, churn, deferred, footprint, growth, larson, leavers, phases, queue,
    remote, script, spawn, tables,
};

/// The workloads this program runs itself, with their parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    /// malloc and free of one size.
    Pair(usize),
    /// A thousand objects of one size, freed in one order.
    Batch(FreeOrder, usize),
    /// Random sizes in a window.
    Mixed,
    /// One thread allocates, this many free.
    OneAlloc(usize),
    /// Larson's server.
    Larson,
    /// Short-lived threads.
    Threads,
    /// Growth by realloc.
    Realloc,
    /// Large zeroed blocks.
    Calloc,
    /// All freed.
    Giveback,
    /// 90 % freed at random.
    Scatter,
    /// Tables that go from thread to thread; whether frees are told sizes.
    Churn(bool),
    /// Batches through queues.
    Queue,
    /// Trees in phases.
    Phases,
    /// Frees by other threads, later.
    Deferred,
    /// Threads that leave a block behind.
    Leavers,
    /// Blocks of megabytes.
    Large,
    /// Tables one inside the other.
    LifoTables,
    /// Numbers of an algebra system.
    Algebra,
    /// Covers of a logic minimiser.
    Logic,
    /// A scripting language's heap.
    Script,
    /// Blocks of several threads side by side.
    Sharing(Sharing),
}

impl Inner {
    /// The workload of this full name, without making the whole list: what a measured process
    /// touches is resident in every row.
    pub fn named(name: &str) -> Option<Self> {
        let number = |text: &str| text.parse::<usize>().ok();
        Some(match name {
            "mixed" => Self::Mixed,
            "larson" => Self::Larson,
            "threads" => Self::Threads,
            "realloc" => Self::Realloc,
            "calloc" => Self::Calloc,
            "giveback" => Self::Giveback,
            "scatter" => Self::Scatter,
            "churn" => Self::Churn(false),
            "churn-sized" => Self::Churn(true),
            "queue" => Self::Queue,
            "phases" => Self::Phases,
            "deferred" => Self::Deferred,
            "leavers" => Self::Leavers,
            "large" => Self::Large,
            "lifo-tables" => Self::LifoTables,
            "algebra" => Self::Algebra,
            "logic" => Self::Logic,
            "script" => Self::Script,
            "sharing-passive" => Self::Sharing(Sharing::Passive),
            "sharing-active" => Self::Sharing(Sharing::Active),
            _ => {
                let (kind, rest) = name.split_once('-')?;
                match kind {
                    "pair" => Self::Pair(number(rest)?),
                    "batch" => {
                        let (order, size) = rest.split_once('-')?;
                        let (_, order) = ORDERS.into_iter().find(|known| known.0 == order)?;
                        Self::Batch(order, number(size)?)
                    }
                    "one" => {
                        let freeing = rest.strip_prefix("alloc-")?.strip_suffix("-free")?;
                        Self::OneAlloc(number(freeing)?)
                    }
                    _ => return None,
                }
            }
        })
    }

    /// Does the work in this process.
    pub fn run(self, job: Job) -> Result<Sample, Damage> {
        match self {
            Inner::Pair(size) => fixed::pair(job, size),
            Inner::Batch(order, size) => fixed::batch(job, size, order),
            Inner::Mixed => fixed::mixed(job),
            Inner::OneAlloc(freeing) => remote::one_alloc(job, freeing),
            Inner::Larson => larson::larson(job),
            Inner::Threads => spawn::threads(job),
            Inner::Realloc => growth::realloc(job),
            Inner::Calloc => growth::calloc(job),
            Inner::Giveback => footprint::giveback(job),
            Inner::Scatter => footprint::scatter(job),
            Inner::Churn(sized) => churn::churn(job, sized),
            Inner::Queue => queue::queue(job),
            Inner::Phases => phases::phases(job),
            Inner::Deferred => deferred::deferred(job),
            Inner::Leavers => leavers::leavers(job),
            Inner::Large => leavers::large(job),
            Inner::LifoTables => tables::lifo_tables(job),
            Inner::Algebra => tables::algebra(job),
            Inner::Logic => tables::logic(job),
            Inner::Script => script::script(job),
            Inner::Sharing(kind) => sharing::sharing(job, kind),
        }
    }
}
