//! Interrupts in the middle of an allocation.
//!
//! A kernel makes a slab with interrupts on: what comes then allocates and frees on the same CPU
//! while the allocation below it is half done, and on return that one finds the world changed.
//! A program says what may come ([`Vm::interruptible`]); the world calls it wherever the core
//! reports a new slab ([`flagstone_core::platform::Work::NewSlab`]). Nobody holds a lock there.
//! An interrupt is not interrupted, and its time is not the allocation's.

use crate::costs::Ps;
use crate::vm::Vm;
use core::fmt;
use core::ptr::NonNull;

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
            // SAFETY: set by `interruptible`, which is still below us on this thread's stack.
            unsafe { handler.0.as_ref()(self) };
            slot.set(Some(handler));
            let taken = &self.threads[self.current.get() as usize].interrupted;
            taken.set(taken.get() + self.now() - start);
        }
    }
}
