//! Interrupts in the middle of an allocation.
//!
//! What comes in the middle allocates and frees on the same thread while the allocation below it is
//! half done, and on return that one finds the world changed. A program says what may come
//! ([`Vm::interruptible`]). An interrupt is not interrupted.
//!
//! ```text
//!   timed gear        a kernel's interrupt: where the core reports a new slab
//!                     ([`flagstone_core::platform::Work::NewSlab`]); nobody holds a lock there, and
//!                     its time is not the allocation's
//!   interleaved gear  a program's signal handler: at any scheduling point, under any lock
//! ```
//!
//! A handler on top of a lock's holder must not wait for a lock of the same kind or a later one that
//! somebody else has (`flagstone_core::platform::LockKind`): it asks a second time, then goes without.

use crate::costs::Ps;
use crate::vm::Vm;
use core::fmt;
use core::ptr::NonNull;
use flagstone_core::platform::LockKind;

/// What an interrupt of a CPU does.
#[derive(Clone, Copy)]
pub(crate) struct Handler(NonNull<dyn Fn(&Vm)>);

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

impl Vm {
    /// Runs `body`; whenever this thread makes a slab in it, `handler` comes in between.
    pub fn interruptible<T>(&self, handler: &dyn Fn(&Self), body: impl FnOnce() -> T) -> T {
        let handler = NonNull::from(handler);
        // SAFETY: only the lifetime of the reference is forgotten, and the slot is emptied below
        // before it ends. A run that fails inside `body` never calls this thread's slot again.
        let handler: NonNull<dyn Fn(&Self)> = unsafe { core::mem::transmute(handler) };
        let thread = &self.threads[self.current.get() as usize];
        thread.handler.set(Some(Handler(handler)));
        let out = body();
        thread.handler.set(None);
        out
    }

    /// Runs `body` with interrupts off: nothing comes in the middle of what it allocates.
    pub fn masked<T>(&self, body: impl FnOnce() -> T) -> T {
        let slot = &self.threads[self.current.get() as usize].handler;
        let handler = slot.take();
        let out = body();
        slot.set(handler);
        out
    }

    /// Picoseconds this thread has spent in interrupts.
    #[inline]
    pub(crate) fn interrupted(&self) -> Ps {
        self.threads[self.current.get() as usize].interrupted.get()
    }

    /// Lets what may come on this thread come now.
    #[inline]
    pub(crate) fn interrupt(&self) {
        let slot = &self.threads[self.current.get() as usize].handler;
        if let Some(handler) = slot.take() {
            let start = self.now();
            let thread = self.thread();
            let below = thread.held.borrow().len();
            thread.held_below.set(below);
            // SAFETY: set by `interruptible`, which is still below us on this thread's stack.
            unsafe { handler.0.as_ref()(self) };
            if thread.held.borrow().len() != below {
                self.fail("lock.named: a handler returns with a lock, or gave back one from below");
            }
            thread.held_below.set(0);
            slot.set(Some(handler));
            let taken = &self.threads[self.current.get() as usize].interrupted;
            taken.set(taken.get() + self.now() - start);
        }
    }

    /// Whether the running thread runs a handler on top of a holder of a lock of `kind` or of a later
    /// one.
    pub(crate) fn is_on_top_from(&self, kind: LockKind) -> bool {
        let thread = self.thread();
        let held = thread.held.borrow();
        held[..thread.held_below.get()]
            .iter()
            .any(|below| *below >= kind)
    }
}
