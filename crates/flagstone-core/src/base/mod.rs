//! Layer 0: the vocabulary everything else is written in.
//!
//! ```text
//!   units   Bytes are usize; Order, Pfn, PageCount, PageSize are kinds
//!   ids     CpuId, NodeId, CacheId
//! ```
//!
//! Nothing here touches memory it was not handed, and nothing here knows a platform.

mod ids;
mod units;

pub use ids::{CacheId, CpuId, NodeId};
pub use units::{Order, PageCount, PageSize, Pfn, fls, ilog2};
