//! The room of a cache: memory of the engine that serves it (ADR 0028).
#![forbid(unsafe_code)]

use core::ptr::NonNull;

/// A cache's room: memory that an engine made and kept for the next cache of this id.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct EngineRoom {
    address: usize,
    bytes: usize,
}

impl EngineRoom {
    pub fn new(memory: NonNull<u8>, bytes: usize) -> Self {
        Self {
            address: memory.as_ptr() as usize,
            bytes,
        }
    }

    /// The same room for another cache, if it has so many bytes.
    pub fn again(&self, bytes: usize) -> Option<Self> {
        (self.address != 0 && self.bytes >= bytes).then_some(*self)
    }

    #[inline]
    pub fn address(&self) -> usize {
        self.address
    }
}
