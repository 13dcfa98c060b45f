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

/// Which kernels' layout rules apply.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LayoutRule {
    /// 2.6.24: free pointer at the start of the object, cache-line alignment all or nothing, no
    /// left red zone.
    V2007,
    /// 5.7 to 6.11: free pointer in the middle, both red zones.
    V2020,
    /// 6.12: natural alignment of every kmalloc size, explicit free-pointer offset for RCU
    /// caches, kmalloc tracks the requested size behind a moved free pointer.
    V2024,
    /// 7.0: explicit free-pointer offset for caches with a constructor too; the requested size
    /// takes a whole word.
    V2026,
    /// SLAB of 2.6.24: no free pointer in the object at all.
    Slab2007,
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
    /// Bytes of one owner track: who allocated or freed, when, on which CPU.
    const fn track_bytes(self) -> usize {
        match self {
            // Address, CPU, process, time.
            Self::V2007 | Self::Slab2007 => 24,
            // The same and a handle to the stored stack.
            Self::V2020 | Self::V2024 | Self::V2026 => 32,
        }
    }

    /// Alignment of the stride (docs: linux-policies 1.1 step 1).
    #[must_use]
    pub const fn alignment(self, spec: &ObjectSpec) -> usize {
        let mut align = max(spec.align, 1);
        if spec.hwcache_align {
            let mut line = spec.cache_line;
            match self {
                Self::V2007 | Self::Slab2007 if spec.object_size <= line / 2 => line = 1,
                Self::V2007 | Self::Slab2007 => {}
                _ => {
                    while line > 1 && spec.object_size <= line / 2 {
                        line /= 2;
                    }
                }
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
        match self {
            Self::V2007 | Self::Slab2007 => WORD,
            Self::V2020 if !size.is_power_of_two() => WORD,
            _ => 1 << size.trailing_zeros(),
        }
    }

    const fn pointer_outside(self, spec: &ObjectSpec) -> bool {
        if matches!(self, Self::Slab2007) {
            return false;
        }
        if spec.free_pointer_offset.is_some() && !spec.poison {
            let rcu_may = matches!(self, Self::V2024 | Self::V2026);
            let ctor_may = matches!(self, Self::V2026);
            let explained = (!spec.rcu || rcu_may) && (!spec.ctor || ctor_may);
            if explained && (rcu_may || ctor_may) {
                return false;
            }
        }
        let small_guarded =
            !matches!(self, Self::V2007) && spec.red_zone && spec.object_size < WORD;
        let tracks_request = matches!(self, Self::V2024 | Self::V2026)
            && spec.red_zone
            && spec.kmalloc
            && spec.store_user;
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
        let free_pointer = if self.pointer_outside(spec) {
            size += WORD;
            inuse
        } else {
            match (spec.free_pointer_offset, self) {
                (Some(offset), Self::V2024 | Self::V2026) if spec.rcu || spec.ctor => offset,
                (_, Self::V2007 | Self::Slab2007) => 0,
                _ => spec.object_size / 2 / WORD * WORD,
            }
        };
        if spec.store_user {
            size += 2 * self.track_bytes();
            if spec.kmalloc {
                size += match self {
                    Self::V2007 | Self::Slab2007 => 0,
                    Self::V2020 | Self::V2024 => 4,
                    Self::V2026 => WORD,
                };
            }
        }
        let mut left_pad = 0;
        if spec.red_zone {
            size += WORD;
            if !matches!(self, Self::V2007 | Self::Slab2007) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of(rule: LayoutRule, change: impl Fn(&mut ObjectSpec), object_size: usize) -> usize {
        let mut spec = ObjectSpec::new(object_size);
        change(&mut spec);
        rule.layout(&spec).size
    }

    #[test]
    fn an_ordinary_object_pays_nothing_for_its_free_pointer() {
        for rule in [
            LayoutRule::V2007,
            LayoutRule::V2020,
            LayoutRule::V2024,
            LayoutRule::V2026,
        ] {
            assert_eq!(
                [1, 8, 9, 100, 256].map(|s| size_of(rule, |_| (), s)),
                [8, 8, 16, 104, 256]
            );
        }
        assert_eq!(
            LayoutRule::V2026.layout(&ObjectSpec::new(256)).free_pointer,
            128
        );
        assert_eq!(
            LayoutRule::V2007.layout(&ObjectSpec::new(256)).free_pointer,
            0
        );
    }

    #[test]
    fn a_constructor_or_rcu_moves_the_free_pointer_behind_the_object() {
        assert_eq!(size_of(LayoutRule::V2026, |s| s.ctor = true, 256), 264);
        assert_eq!(size_of(LayoutRule::V2026, |s| s.rcu = true, 256), 264);
        let told = |s: &mut ObjectSpec| (s.rcu, s.free_pointer_offset) = (true, Some(16));
        assert_eq!(size_of(LayoutRule::V2020, told, 192), 200);
        assert_eq!(size_of(LayoutRule::V2024, told, 192), 192);
        let told = |s: &mut ObjectSpec| (s.ctor, s.free_pointer_offset) = (true, Some(16));
        assert_eq!(size_of(LayoutRule::V2024, told, 192), 200);
        assert_eq!(size_of(LayoutRule::V2026, told, 192), 192);
    }

    #[test]
    fn cache_line_alignment_halves_for_small_objects_but_not_in_2007() {
        let line = |s: &mut ObjectSpec| s.hwcache_align = true;
        assert_eq!(
            [8, 16, 24, 40, 72].map(|s| size_of(LayoutRule::V2026, line, s)),
            [8, 16, 32, 64, 128]
        );
        assert_eq!(
            [8, 24, 32, 40].map(|s| size_of(LayoutRule::V2007, line, s)),
            [8, 24, 32, 64]
        );
    }

    #[test]
    fn every_kmalloc_size_is_naturally_aligned_since_6_12() {
        let align = |rule: LayoutRule, size| {
            rule.alignment(&ObjectSpec {
                kmalloc: true,
                ..ObjectSpec::new(size)
            })
        };
        assert_eq!(
            [96, 192, 512].map(|s| align(LayoutRule::V2024, s)),
            [32, 64, 512]
        );
        assert_eq!(
            [96, 192, 512].map(|s| align(LayoutRule::V2020, s)),
            [8, 8, 512]
        );
    }
}
