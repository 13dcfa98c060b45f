//! What a thread knows: its stream, and whether it is inside the recorder.
//!
//! Two words that are found by one load and one addition ([`flagstone_linux::thread_storage`]). The standard
//! library's thread-locals would call `__tls_get_addr`, which may allocate.

use crate::stream::Stream;

/// A thread's words; all zeroes at first.
#[repr(C)]
pub struct Local {
    /// The thread's stream, null before its first event.
    pub stream: *mut Stream,
    /// Not zero while the thread is inside the recorder.
    pub depth: u64,
}

flagstone_linux::thread_storage! {
    /// This thread's words.
    pub fn local: Local = "flagstone_record_local", 16
}
