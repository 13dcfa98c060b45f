//! The table of the least-waste patch, computed again from real populations: wastage and total
//! slab memory under its base, under the patch, and under slabs by population.
//!
//! Every capture is costed on 16 and on 160 CPUs for each reading of its population: all objects
//! its slabs have room for, those the kernel counts as used, and those without what CPUs' own
//! slabs hide; each packed, and spread over the CPUs with slabs of each CPU's own, as after boot.
//! `docs/adr/0011` explains them and holds the figures; `--nocapture` prints them.

mod ground_truth;

use flagstone_core::policy::{Cpus, Policy};
use flagstone_kernels::Named;
use flagstone_kernels::policy::{Population, Populations, estimated_live};
use ground_truth::{Boot, CacheRow, boots, caches};

/// How the objects of a capture may be read, and laid out.
const READINGS: [&str; 6] = [
    "slots packed",
    "slots spread",
    "active packed",
    "active spread",
    "estimated packed",
    "estimated spread",
];
const ESTIMATED_SPREAD: usize = 5;

/// One capture under one policy, in each reading.
type Cost = [Population; READINGS.len()];

/// Slabs of a cache, and the objects in them that count as used.
type Count = (u64, u64);

fn captured(row: &CacheRow) -> Count {
    (row.slabs, row.active)
}

fn cost(
    policy: &Policy,
    boot: &Boot,
    rows: &[&CacheRow],
    cpus: Cpus,
    count: &dyn Fn(&CacheRow) -> Count,
) -> Cost {
    let mut sums = Cost::default();
    for row in rows {
        let per_slab = u64::from(row.objects);
        let (slabs, active) = count(row);
        let estimated = estimated_live(active, slabs, per_slab, boot.cpus.online);
        for (index, objects) in [slabs * per_slab, active, estimated]
            .into_iter()
            .enumerate()
        {
            let packed = policy.population(row.size, boot.page_size, cpus, objects);
            let spread = policy.population_spread(row.size, boot.page_size, cpus, objects);
            sums[2 * index] = sums[2 * index].plus(packed.unwrap());
            sums[2 * index + 1] = sums[2 * index + 1].plus(spread.unwrap());
        }
    }
    sums
}

fn percent(from: u64, to: u64) -> f64 {
    100.0 * (to as f64 - from as f64) / from as f64
}

/// Costs every capture with the populations `count` reads from it; gives the number of cases and
/// the names of those in which slabs by population do not win both columns.
fn compare(count: &dyn Fn(&CacheRow) -> Count, print: bool) -> (usize, Vec<String>) {
    let boots = boots();
    let all = caches();
    let policies = ["linux-6.5", "linux-6.5+least-waste-repaired", "flagstone"]
        .map(|name| Policy::parse(name).unwrap());
    let (mut cases, mut lost) = (0, Vec::new());
    for (index, boot) in boots.iter().enumerate() {
        let rows: Vec<&CacheRow> = all.iter().filter(|row| row.boot == index).collect();
        for cpus in [16, 160] {
            let [base, patched, own] = policies
                .each_ref()
                .map(|policy| cost(policy, boot, &rows, Cpus::new(cpus), count));
            for (reading, kind) in READINGS.iter().enumerate() {
                let [base, patched, own] = [base[reading], patched[reading], own[reading]];
                let name = format!("{} on {cpus} CPUs, {kind}", boot.name);
                if print {
                    println!(
                        "{name} ({}): waste {} KiB {:+.2} {:+.2} total {} KiB {:+.3} {:+.3}",
                        boot.page_size.bytes(),
                        base.tail_bytes >> 10,
                        percent(base.tail_bytes, patched.tail_bytes),
                        percent(base.tail_bytes, own.tail_bytes),
                        base.bytes >> 10,
                        percent(base.bytes, patched.bytes),
                        percent(base.bytes, own.bytes),
                    );
                }
                cases += 1;
                if own.tail_bytes >= base.tail_bytes.min(patched.tail_bytes)
                    || own.bytes >= base.bytes.min(patched.bytes)
                {
                    lost.push(name);
                }
            }
        }
    }
    (cases, lost)
}

#[test]
fn slabs_by_population_beat_base_and_patch_on_both_sides_of_every_capture() {
    let (cases, lost) = compare(&captured, true);
    assert_eq!(cases, 59 * 2 * READINGS.len());
    assert!(lost.is_empty(), "not better on both sides: {lost:#?}");
}

#[test]
fn they_do_so_for_nearly_all_populations_a_quarter_to_four_times_as_large() {
    // The rule's knobs were chosen with the captures in view. Here each cache of each capture has
    // another number of slabs, still of the base's own shape, which favours the base most.
    let mut all_lost = 0;
    for seed in 11..=14_u64 {
        let other = |row: &CacheRow| {
            let mut hash = seed ^ 0xcbf2_9ce4_8422_2325;
            for byte in row.cache.bytes().chain(row.boot.to_le_bytes()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            // 1/4 to 4, evenly on a logarithmic scale.
            let factor = 4_f64.powf((hash >> 40) as f64 / f64::from(1 << 23) - 1.0);
            let slabs = ((row.slabs as f64 * factor).round() as u64).max(row.slabs.min(1));
            let free = (row.slabs * u64::from(row.objects)).saturating_sub(row.active);
            (slabs, (slabs * u64::from(row.objects)).saturating_sub(free))
        };
        let (cases, lost) = compare(&other, false);
        println!(
            "seed {seed}: {} of {cases} not better: {lost:#?}",
            lost.len()
        );
        all_lost += lost.len();
    }
    // Measured: 0.2 %.
    assert!(all_lost * 100 <= 4 * 708, "{all_lost} of {}", 4 * 708);
}

#[test]
fn the_patch_trades_tails_for_total_memory_as_published() {
    // Published: wastage -20 % to -51 %, total memory +0.06 % to +37 %, both larger on 64 KiB.
    let boots = boots();
    let all = caches();
    let [base, patched] =
        ["linux-6.5", "linux-6.5+least-waste-repaired"].map(|name| Policy::parse(name).unwrap());
    for (name, count, waste, total) in [
        ("amd64-6.1-smp16-m2048-n1-default", 16, -50..=-5, 1..=30),
        ("amd64-6.12-smp224-m2048-n1-maxcpus1", 160, -50..=-2, 1..=30),
        (
            "ppc64el-6.12-64k-smp16-m1024-n1-maxcpus1",
            16,
            -70..=-30,
            20..=70,
        ),
        (
            "ppc64el-6.12-64k-smp160-m2048-n1-maxcpus1",
            160,
            -70..=-30,
            20..=70,
        ),
    ] {
        let index = boots.iter().position(|boot| boot.name == name).unwrap();
        let rows: Vec<&CacheRow> = all.iter().filter(|row| row.boot == index).collect();
        let [base, patched] = [&base, &patched].map(|policy| {
            cost(policy, &boots[index], &rows, Cpus::new(count), &captured)[ESTIMATED_SPREAD]
        });
        let got = (
            percent(base.tail_bytes, patched.tail_bytes) as i32,
            percent(base.bytes, patched.bytes) as i32,
        );
        assert!(
            waste.contains(&got.0) && total.contains(&got.1),
            "{name}: {got:?}"
        );
    }
}
