//! Layer 0: the vocabulary everything else is written in.
//!
//! ```text
//!   units   Bytes are usize; Order, Pfn, PageCount, PageSize are kinds
//!   ids     CpuId, NodeId, CacheId
//!   means   what a process may use of its machine
//! ```
//!
//! Nothing here touches memory it was not handed, and nothing here knows a platform.

mod ids;
mod means;
mod units;

pub use ids::{CacheId, CpuId, NodeId};
pub use means::Means;
pub use units::{Order, PageCount, PageSize, Pfn, fls, ilog2};
