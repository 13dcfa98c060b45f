//! What a boot parameter would cost, predicted from a boot without it, beside a boot with it.
//!
//! Pairs of boots of one kernel on one machine, differing in slab parameters alone. From the
//! population of the first the total under the second's rules is computed as `flagstone host`
//! does ("What if", and the advice about `slab_max_order`): the same slots, and as many slabs
//! part-filled as half the free objects' slabs would be. `docs/host.md` holds the table;
//! `--nocapture` prints it.

mod ground_truth;

use flagstone_core::policy::Policy;
use flagstone_kernels::policy::Populations;
use ground_truth::{Boot, CacheRow, boots, caches};

/// Bytes of all slabs of a boot's caches under `policy`: same slots, same part-filled slabs.
fn predicted(policy: &Policy, boot: &Boot, rows: &[&CacheRow]) -> (u64, u64) {
    let (mut same_slots, mut same_partial) = (0, 0);
    for row in rows {
        let per_slab = u64::from(row.objects);
        let slots = row.slabs * per_slab;
        let partial = ((slots.saturating_sub(row.active)) * 2)
            .div_ceil(per_slab)
            .min(row.slabs);
        let bytes = |objects| {
            let held = policy.population(row.size, boot.page_size, boot.cpus, objects);
            held.unwrap().bytes
        };
        let slab = policy
            .slab_shape(row.size, boot.page_size, boot.cpus)
            .unwrap()
            .bytes(boot.page_size) as u64;
        same_slots += bytes(slots);
        same_partial += bytes(slots - partial * per_slab) + partial * slab;
    }
    (same_slots, same_partial)
}

fn allocated(boot: &Boot, rows: &[&CacheRow]) -> u64 {
    rows.iter()
        .map(|row| row.slabs * ((boot.page_size.bytes() as u64) << row.order))
        .sum()
}

#[test]
fn the_dearer_prediction_of_a_boot_parameter_is_never_below_what_it_really_cost() {
    let boots = boots();
    let all = caches();
    let pairs = [
        (
            "amd64-7.0-smp16-m1024-n1-maxcpus1",
            "amd64-7.0-smp16-m1024-n1-maxcpus1_slab_max_order4",
        ),
        (
            "amd64-7.0-smp16-m1024-n1-maxcpus1",
            "amd64-7.0-smp16-m1024-n1-maxcpus1_slab_min_order1",
        ),
        (
            "amd64-6.12-smp224-m2048-n1-maxcpus1",
            "amd64-6.12-smp224-m2048-n1-maxcpus1_slub_max_order4",
        ),
        (
            "amd64-6.12-smp16-m1024-n1-maxcpus1_slub_min_objects64",
            "amd64-6.12-smp16-m1024-n1-maxcpus1_slub_max_order0",
        ),
        (
            "ppc64el-6.12-64k-smp160-m2048-n1-maxcpus1",
            "ppc64el-6.12-64k-smp160-m2048-n1-maxcpus1_slub_max_order4",
        ),
        (
            "ppc64el-7.2-64k-smp160-m2048-n1-maxcpus1_slab_min_objects64",
            "ppc64el-7.2-64k-smp160-m2048-n1-maxcpus1_slab_max_order0",
        ),
    ];
    for (one, other) in pairs {
        for (from, to) in [(one, other), (other, one)] {
            let index = |name| boots.iter().position(|boot| boot.name == name).unwrap();
            let rows = |at| -> Vec<&CacheRow> { all.iter().filter(|row| row.boot == at).collect() };
            let (from, to) = (index(from), index(to));
            let policy = boots[to].policy();
            let here = allocated(&boots[from], &rows(from));
            let (slots, partial) = predicted(&policy, &boots[from], &rows(from));
            let real = allocated(&boots[to], &rows(to));
            let change = |bytes: u64| 100.0 * (bytes as f64 / here as f64 - 1.0);
            println!(
                "| {} -> {} | {} | {:+.1} | {:+.1} | {:+.1} |",
                boots[from].name,
                boots[to].name,
                here >> 10,
                change(slots),
                change(partial),
                change(real)
            );
            // The advice speaks of the dearer of the two: never less than what came, and at most
            // nine points more.
            let dear = change(slots.max(partial));
            let error = dear - change(real);
            assert!(
                (0.0..9.0).contains(&error),
                "{}: {error:+.1}",
                boots[to].name
            );
        }
    }
}
