//! How the layouts of older kernels differ from that of 7.0, which is the default policy's
//! (docs: linux-policies 1.1).

use flagstone_core::policy::{LayoutRule, NaturalAlign, WORD};

/// 6.12: natural alignment of every kmalloc size, explicit free-pointer offset for RCU caches, kmalloc tracks the
/// requested size behind a moved free pointer.
pub const V2024: LayoutRule = LayoutRule {
    ctor_offset: false,
    request_bytes: 4,
    ..LayoutRule::DEFAULT
};

/// 5.7 to 6.11: free pointer in the middle, both red zones.
pub const V2020: LayoutRule = LayoutRule {
    rcu_offset: false,
    natural: NaturalAlign::Powers,
    ..V2024
};

/// 2.6.24: free pointer at the start of the object, cache-line alignment all or nothing, no left red zone.
pub const V2007: LayoutRule = LayoutRule {
    link_in_middle: false,
    halves_lines: false,
    natural: NaturalAlign::Never,
    left_red_zone: false,
    // Address, CPU, process, time; later kernels add a handle to the stored stack.
    track_bytes: 3 * WORD,
    request_bytes: 0,
    ..V2020
};

/// SLAB of 2.6.24: no free pointer in the object at all.
pub const SLAB: LayoutRule = LayoutRule {
    linked: false,
    ..V2007
};

#[cfg(test)]
mod tests {
    use super::*;
    use flagstone_core::policy::{LayoutRule, ObjectSpec};

    fn size_of(rule: LayoutRule, change: impl Fn(&mut ObjectSpec), object_size: usize) -> usize {
        let mut spec = ObjectSpec::new(object_size);
        change(&mut spec);
        rule.layout(&spec).size
    }

    #[test]
    fn an_ordinary_object_pays_nothing_for_its_free_pointer() {
        for rule in [V2007, V2020, V2024, LayoutRule::DEFAULT] {
            assert_eq!(
                [1, 8, 9, 100, 256].map(|s| size_of(rule, |_| (), s)),
                [8, 8, 16, 104, 256]
            );
        }
        assert_eq!(
            LayoutRule::DEFAULT
                .layout(&ObjectSpec::new(256))
                .free_pointer,
            128
        );
        assert_eq!(V2007.layout(&ObjectSpec::new(256)).free_pointer, 0);
    }

    #[test]
    fn a_constructor_or_rcu_moves_the_free_pointer_behind_the_object() {
        assert_eq!(size_of(LayoutRule::DEFAULT, |s| s.ctor = true, 256), 264);
        assert_eq!(size_of(LayoutRule::DEFAULT, |s| s.rcu = true, 256), 264);
        let told = |s: &mut ObjectSpec| (s.rcu, s.free_pointer_offset) = (true, Some(16));
        assert_eq!(size_of(V2020, told, 192), 200);
        assert_eq!(size_of(V2024, told, 192), 192);
        let told = |s: &mut ObjectSpec| (s.ctor, s.free_pointer_offset) = (true, Some(16));
        assert_eq!(size_of(V2024, told, 192), 200);
        assert_eq!(size_of(LayoutRule::DEFAULT, told, 192), 192);
    }

    #[test]
    fn cache_line_alignment_halves_for_small_objects_but_not_in_2007() {
        let line = |s: &mut ObjectSpec| s.hwcache_align = true;
        assert_eq!(
            [8, 16, 24, 40, 72].map(|s| size_of(LayoutRule::DEFAULT, line, s)),
            [8, 16, 32, 64, 128]
        );
        assert_eq!(
            [8, 24, 32, 40].map(|s| size_of(V2007, line, s)),
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
        assert_eq!([96, 192, 512].map(|s| align(V2024, s)), [32, 64, 512]);
        assert_eq!([96, 192, 512].map(|s| align(V2020, s)), [8, 8, 512]);
    }
}
