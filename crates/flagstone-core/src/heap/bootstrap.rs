//! Building a heap in place, once, whoever comes first (stage.rs).

use super::class::usable_classes;
use super::falls::{DEEP, EMPTY, Falls};
use super::forking::Forking;
use super::gate::Gate;
use super::heap::Heap;
use super::huge_table::HugeTable;
use super::mark::MARK_AT;
use super::ready::Ready;
use super::refusals::Refusals;
use super::stage::Turn;
use super::strays::Strays;
use super::unlisted::Unlisted;
use crate::page::PageConfig;
use crate::platform::{Lock, LockKind, OutOfMemory};
use crate::policy::Policy;
use crate::slab::{CacheRequest, Engines, Slabs};
use crate::sync::AtomicBool;

/// What a heap is built with.
#[derive(Clone, Copy, Debug)]
pub struct HeapConfig {
    /// The policy of everything inside.
    pub policy: Policy,
    /// Address space wished for the page layer, in bytes; less is taken if refused.
    pub span_bytes: usize,
}

impl<P: Engines> Heap<P> {
    /// Builds the heap now, unless it is built.
    ///
    /// # Errors
    /// `OutOfMemory` when the system refuses; it may be tried again.
    pub fn init(&self, config: &HeapConfig) -> Result<(), OutOfMemory> {
        self.init_by(|| *config, |_| {})
    }

    /// The same by a world that must be prepared: the one thread that builds calls `prepare` before, and `finish`
    /// when the heap is built and nobody else uses it yet.
    ///
    /// # Errors
    /// As for [`Heap::init`], and for a signal handler on top of the thread that builds.
    pub fn init_by(
        &self,
        prepare: impl FnOnce() -> HeapConfig,
        finish: impl FnOnce(&Ready<P>),
    ) -> Result<(), OutOfMemory> {
        match self.stage.enter::<P>() {
            Turn::Ready => return Ok(()),
            Turn::OnTop => return Err(OutOfMemory),
            Turn::Builds => {}
        }
        let config = prepare();
        // SAFETY: the stage makes us the only builder, and nobody reads `ready` before it is left.
        let built = unsafe { self.build(&config) };
        if built.is_ok() {
            // SAFETY: built above, by us.
            finish(unsafe { (*self.ready.get()).assume_init_ref() });
        }
        self.stage.leave(built);
        built
    }

    /// Waits while another thread builds the heap: a child forked meanwhile would not have that thread.
    pub fn wait_for_builder(&self) {
        self.stage.wait_for_others::<P>();
    }

    /// The heap's parts, built if need be; `None` when memory is refused.
    #[inline]
    pub fn ready(&self) -> Option<&Ready<P>> {
        if !self.stage.is_ready() {
            self.init_as_usual()?;
        }
        // SAFETY: the stage was left after `ready` was written.
        Some(unsafe { (*self.ready.get()).assume_init_ref() })
    }

    /// The heap's parts if they are built.
    #[must_use]
    #[inline]
    pub fn ready_if_built(&self) -> Option<&Ready<P>> {
        self.stage.is_ready().then(|| {
            // SAFETY: as in `ready`.
            unsafe { (*self.ready.get()).assume_init_ref() }
        })
    }

    /// Builds a heap that nobody configured.
    #[cold]
    fn init_as_usual(&self) -> Option<()> {
        let config = HeapConfig {
            policy: Policy::default(),
            span_bytes: 64 << 30,
        };
        self.init(&config).ok()
    }

    unsafe fn build(&self, config: &HeapConfig) -> Result<(), OutOfMemory> {
        let ready = self.ready.get().cast::<Ready<P>>();
        let pages = PageConfig {
            span_bytes: config.span_bytes,
            ..PageConfig::of(&config.policy)
        };
        // SAFETY: the heap does not move once used, and we are its only builder.
        unsafe {
            Slabs::init(&raw mut (*ready).slabs, &pages, &config.policy)?;
            (&raw mut (*ready).huge).write(Lock::new(LockKind::Heap, HugeTable::new()));
            (&raw mut (*ready).class_max).write(0);
            (&raw mut (*ready).deep).write(Falls::new(DEEP));
            (&raw mut (*ready).empty).write(Falls::new(EMPTY));
            (&raw mut (*ready).watched).write(AtomicBool::new(false));
            (&raw mut (*ready).forking).write(Forking::new());
            (&raw mut (*ready).strays).write(Strays::new());
            (&raw mut (*ready).unlisted).write(Unlisted::new());
            (&raw mut (*ready).refusals).write(Refusals::default());
            (&raw mut (*ready).roomy).write(AtomicBool::new(false));
        }
        // SAFETY: every field is written.
        let parts = unsafe { &mut *ready };
        parts.class_max = make_classes(&self.gate, &parts.slabs, &config.policy)?;
        if P::fast_slots() {
            let pages = parts.slabs.pages();
            self.gate.open(
                parts.class_max,
                pages.base(),
                pages.page_map(),
                P::page_size().shift(),
                parts.slabs.area(),
            );
        }
        Ok(())
    }
}

/// Makes the caches of the size classes and fills the table. Returns the largest class.
fn make_classes<P: Engines>(
    gate: &Gate,
    slabs: &Slabs<P>,
    policy: &Policy,
) -> Result<usize, OutOfMemory> {
    let mut below = 0;
    for class in usable_classes(policy.size_classes, P::page_size()) {
        let mut name = Name::default();
        let mut request = CacheRequest::new(name.of_class(class), class);
        request.kmalloc = true;
        request.kept_word = Some(MARK_AT);
        let Ok(id) = slabs.create_cache(&request) else {
            break;
        };
        gate.classes().fill(below, class, id.0 as u8);
        let geometry = slabs.cache(id).geometry();
        let draw = slabs.draw(id);
        gate.set_stride(id.index(), geometry.size(), geometry.slab_bytes(), draw);
        below = class;
    }
    Some(below)
        .filter(|&largest| largest > 0)
        .ok_or(OutOfMemory)
}

/// Room for the name of a class's cache.
#[derive(Default)]
struct Name {
    bytes: [u8; 16],
}

impl Name {
    /// `malloc-<size>`, with the kernel's `k` for whole kibibytes.
    fn of_class(&mut self, size: usize) -> &str {
        const PREFIX: &[u8] = b"malloc-";
        self.bytes[..PREFIX.len()].copy_from_slice(PREFIX);
        let (mut number, kibi) = if size >= 1024 && size % 1024 == 0 {
            (size / 1024, true)
        } else {
            (size, false)
        };
        let mut digits = [0; 6];
        let mut count = 0;
        while number > 0 && count < digits.len() {
            digits[count] = b'0' + (number % 10) as u8;
            number /= 10;
            count += 1;
        }
        let mut end = PREFIX.len();
        for &digit in digits[..count].iter().rev() {
            self.bytes[end] = digit;
            end += 1;
        }
        if kibi {
            self.bytes[end] = b'k';
            end += 1;
        }
        core::str::from_utf8(&self.bytes[..end]).unwrap_or("malloc")
    }
}
