//! From the size a program asks for to the stride of its objects.
//!
//! ```text
//!   one object slot, debugging on
//!   [ left red zone | object | right red zone | free pointer | owner tracks | pad ] -> align
//!                   ^ 0      ^ object_size    ^ inuse
//! ```
//!
//! Without debugging, constructor or RCU an object pays nothing: its free pointer lies inside the
//! object while it is free, and only alignment grows it (docs: linux-policies 1.1).
#![forbid(unsafe_code)]

/// Bytes of a machine word; every rule here is for 64-bit machines.
pub const WORD: usize = 8;

/// Which objects of the general-purpose caches lie at multiples of their own size's power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NaturalAlign {
    /// None.
    Never,
    /// Those whose size is a power of two.
    Powers,
    /// All, by the largest power of two that divides the size.
    Always,
}

/// In what the layouts of kernels and of the default policy differ (docs: linux-policies 1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutRule {
    /// Free objects hold a link to the next.
    pub linked: bool,
    /// The link lies in the middle of the object, else at its start.
    pub link_in_middle: bool,
    /// A cache whose objects RCU readers may still read can say where the link may lie inside.
    pub rcu_offset: bool,
    /// So can a cache with a constructor.
    pub ctor_offset: bool,
    /// The line an object is aligned to is halved while the object fits half of it; else it is a whole line or none.
    pub halves_lines: bool,
    /// Alignment of the general-purpose caches.
    pub natural: NaturalAlign,
    /// Guard bytes before the object too.
    pub left_red_zone: bool,
    /// Bytes of one owner track: who allocated or freed, when, on which CPU.
    pub track_bytes: usize,
    /// Bytes behind the tracks of a general-purpose cache for the size that was asked for.
    pub request_bytes: usize,
}

/// What the layout of a cache's objects depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectSpec {
    /// Bytes the program uses; not zero.
    pub object_size: usize,
    /// Requested alignment, a power of two, or 0.
    pub align: usize,
    /// Cache line of the machine in bytes, used if `hwcache_align`.
    pub cache_line: usize,
    /// Objects should not straddle cache lines.
    pub hwcache_align: bool,
    /// The cache constructs its objects once, so free ones must stay intact.
    pub ctor: bool,
    /// Freed objects may still be read by RCU readers (`SLAB_TYPESAFE_BY_RCU`).
    pub rcu: bool,
    /// Guard bytes on both sides.
    pub red_zone: bool,
    /// Freed objects are overwritten with a pattern.
    pub poison: bool,
    /// The last allocator and freer are recorded.
    pub store_user: bool,
    /// One of the general-purpose caches.
    pub kmalloc: bool,
    /// The cache's creator says where inside the object the free pointer may go.
    pub free_pointer_offset: Option<usize>,
}

impl ObjectSpec {
    /// An ordinary object of `object_size` bytes.
    #[must_use]
    pub const fn new(object_size: usize) -> Self {
        Self {
            object_size,
            align: 0,
            cache_line: 64,
            hwcache_align: false,
            ctor: false,
            rcu: false,
            red_zone: false,
            poison: false,
            store_user: false,
            kmalloc: false,
            free_pointer_offset: None,
        }
    }

    /// Whether any debugging flag is set; such caches get no per-CPU lists in any kernel.
    #[must_use]
    pub const fn debugged(&self) -> bool {
        self.red_zone || self.poison || self.store_user
    }
}

/// Where everything of one object lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectLayout {
    /// Stride in bytes: what the order rules call `size`.
    pub size: usize,
    /// Alignment of the stride.
    pub align: usize,
    /// Bytes from the object's start to its metadata.
    pub inuse: usize,
    /// Free pointer, from the object's start.
    pub free_pointer: usize,
    /// Bytes of red zone before the object's start.
    pub left_pad: usize,
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

impl LayoutRule {
    /// The default policy's, as Linux 7.0 has it.
    pub const DEFAULT: Self = Self {
        linked: true,
        link_in_middle: true,
        rcu_offset: true,
        ctor_offset: true,
        halves_lines: true,
        natural: NaturalAlign::Always,
        left_red_zone: true,
        track_bytes: 32,
        request_bytes: WORD,
    };

    /// Alignment of the stride (docs: linux-policies 1.1 step 1).
    #[must_use]
    pub const fn alignment(self, spec: &ObjectSpec) -> usize {
        let mut align = max(spec.align, 1);
        if spec.hwcache_align {
            let mut line = spec.cache_line;
            while line > 1 && spec.object_size <= line / 2 {
                line = if self.halves_lines { line / 2 } else { 1 };
            }
            align = max(align, line);
        }
        if spec.kmalloc {
            align = max(align, self.kmalloc_alignment(spec.object_size));
        }
        max(align, WORD).next_multiple_of(WORD)
    }

    /// Alignment every kmalloc object of this size has.
    const fn kmalloc_alignment(self, size: usize) -> usize {
        match self.natural {
            NaturalAlign::Always => 1 << size.trailing_zeros(),
            NaturalAlign::Powers if size.is_power_of_two() => size,
            _ => WORD,
        }
    }

    const fn link_outside(self, spec: &ObjectSpec) -> bool {
        if !self.linked {
            return false;
        }
        let explained = (!spec.rcu || self.rcu_offset) && (!spec.ctor || self.ctor_offset);
        if spec.free_pointer_offset.is_some() && !spec.poison && explained && self.rcu_offset {
            return false;
        }
        let small_guarded = self.left_red_zone && spec.red_zone && spec.object_size < WORD;
        let tracks_request = self.rcu_offset && spec.red_zone && spec.kmalloc && spec.store_user;
        spec.rcu || spec.poison || spec.ctor || small_guarded || tracks_request
    }

    /// Lays out one object (docs: linux-policies 1.1).
    #[must_use]
    pub const fn layout(self, spec: &ObjectSpec) -> ObjectLayout {
        let align = self.alignment(spec);
        let mut size = spec.object_size.next_multiple_of(WORD);
        if spec.red_zone && size == spec.object_size {
            size += WORD;
        }
        let inuse = size;
        let free_pointer = if self.link_outside(spec) {
            size += WORD;
            inuse
        } else {
            match spec.free_pointer_offset {
                Some(offset) if self.rcu_offset && (spec.rcu || spec.ctor) => offset,
                _ if !self.link_in_middle => 0,
                _ => spec.object_size / 2 / WORD * WORD,
            }
        };
        if spec.store_user {
            size += 2 * self.track_bytes;
            if spec.kmalloc {
                size += self.request_bytes;
            }
        }
        let mut left_pad = 0;
        if spec.red_zone {
            size += WORD;
            if self.left_red_zone {
                left_pad = WORD.next_multiple_of(align);
                size += left_pad;
            }
        }
        ObjectLayout {
            size: size.next_multiple_of(align),
            align,
            inuse,
            free_pointer,
            left_pad,
        }
    }
}
