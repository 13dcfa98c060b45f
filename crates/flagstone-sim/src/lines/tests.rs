//! What lines cost whom, by a profile's figures.

use super::*;
use crate::costs::NS;
use crate::machine::Machine;

/// A transfer inside a socket takes 54 ns here, whatever was fitted.
fn world() -> (Directory, Topology, Costs) {
    let mut machine = Machine::named("spr-2s-224").unwrap();
    machine.latency_ns.socket = 54.0;
    let topology = Topology::new(&machine);
    (
        Directory::new(1 << 40, 1 << 20, &topology).unwrap(),
        topology,
        Costs::new(&machine),
    )
}

/// Each write by a CPU at a time ends when it should.
fn writes(
    (lines, t, c): &mut (Directory, Topology, Costs),
    home: u32,
    steps: &[(u32, Ps, Ps, &str)],
) {
    for &(cpu, at, end, why) in steps {
        assert_eq!(lines.write(home, cpu, at, t, c), end, "{why}");
    }
}

#[test]
fn a_line_costs_its_distance_and_hot_lines_queue() {
    let mut world = world();
    let home = world.0.home((1 << 40) + 64);
    let steps = [
        (0, 0, 110 * NS, "from memory"),
        (0, 200 * NS, 200 * NS + 1500, "in L1"),
        (56, 300 * NS, 470 * NS, "across sockets"),
        (57, 300 * NS, 524 * NS, "waits for the journey before"),
    ];
    writes(&mut world, home, &steps);
}

#[test]
fn the_last_owner_keeps_a_line_until_the_request_has_arrived() {
    let mut world = world();
    world.2.linger = 512;
    let home = world.0.home(1 << 40);
    let gone = "gone: waits for its arrival and fetches it back";
    let steps = [
        (0, 0, 110 * NS, "from memory"),
        (1, 200 * NS, 254 * NS, "from the other CPU"),
        (0, 226 * NS, 226 * NS + 1500, "half of the way not over"),
        (0, 240 * NS, 308 * NS, gone),
    ];
    writes(&mut world, home, &steps);
}

#[test]
fn where_written_lines_migrate_a_reader_may_write_and_a_second_reader_has_a_copy() {
    let (mut lines, t, mut c) = world();
    c.migrates = true;
    let home = lines.home(1 << 40);
    lines.write(home, 0, 0, &t, &c);
    assert_eq!(lines.read(home, 1, 200 * NS, &t, &c), 254 * NS);
    // CPU 1 has not written it yet: the next reader leaves it a copy.
    let mut copies = lines;
    assert_eq!(copies.read(home, 2, 300 * NS, &t, &c), 354 * NS);
    assert_eq!(copies.read(home, 1, 400 * NS, &t, &c), 401_500);
    assert_eq!(copies.write(home, 1, 500 * NS, &t, &c), 554 * NS);
    assert_eq!(copies.write(home, 1, 600 * NS, &t, &c), 601_500);
    assert_eq!(copies.read(home, 0, 700 * NS, &t, &c), 754 * NS);
    assert_eq!(
        copies.write(home, 0, 800 * NS, &t, &c),
        801_500,
        "it moved whole"
    );
}

#[test]
fn readers_share_and_a_writer_pays_for_the_farthest_copy() {
    let (mut lines, t, c) = world();
    let home = lines.home(1 << 40);
    lines.write(home, 0, 0, &t, &c);
    for cpu in [1, 2, 56] {
        let at = 1000 * NS * u64::from(cpu);
        assert!(lines.read(home, cpu, at, &t, &c) > at + 2 * NS);
        let again = lines.read(home, cpu, at + 500 * NS, &t, &c);
        assert_eq!(again, at + 500 * NS + 1500, "a copy stays");
    }
    let end = lines.write(home, 0, 1_000_000 * NS, &t, &c);
    assert_eq!(
        end,
        (1_000_000 + 170) * NS,
        "the owner too waits for the far copy to go"
    );
    assert!(
        lines.read(home, 1, 2_000_000 * NS, &t, &c) > 2_000_002 * NS,
        "copies are gone"
    );
}

#[test]
fn a_watched_line_comes_back_for_each_store_of_its_owner() {
    let machine = Machine::named("xeon-2007-8").unwrap();
    let (t, c) = (Topology::new(&machine), Costs::new(&machine));
    let mut lines = Directory::new(1 << 40, 1 << 20, &t).unwrap();
    let home = lines.home(1 << 40);
    let begin = lines.write(home, 0, 0, &t, &c);
    let store = |lines: &mut Directory| lines.write(home, 0, begin, &t, &c) - begin;
    let alone = store(&mut lines);
    lines.watch(home, 4, 3);
    assert_eq!(store(&mut lines), 128_700 + 3 * 27_900);
    lines.watch(home, 0, 0);
    assert_eq!(store(&mut lines), alone);
}

#[test]
fn object_lines_remember_their_last_cpu_only() {
    let (mut lines, t, c) = world();
    let at = (1 << 40) + 4096;
    let steps = [
        (0, 110_000),
        (0, 1500),
        (112, 4000),
        (1, 54_000),
        (60, 170_000),
    ];
    for (cpu, cost) in steps {
        assert_eq!(lines.object(at, cpu, &t, &c), cost);
    }
}

#[test]
fn a_link_comes_sooner_after_one_beside_it_and_is_waited_for_all_the_way_after_another() {
    let (mut lines, t, _) = world();
    let mut machine = Machine::named("spr-2s-224").unwrap();
    machine.latency_ns.socket = 54.0;
    machine.latency_ns.overlap = Some(0.1);
    machine.latency_ns.in_row = Some([0.125, 0.25]);
    let c = Costs::new(&machine);
    let ways = c.link_transfer.unwrap();
    let place = |number: usize| (1 << 40) + number * 128;
    for number in 0..64 {
        lines.object(place(number), 0, &t, &c);
    }
    let steps = [
        (40, 54_000, "the first one"),
        (39, 13_500, "beside it"),
        (41, 13_500, "still near"),
        (3, 54_000, "far from it"),
        (3, 1500, "at hand now"),
    ];
    lines.object(place(3) - 64, 0, &t, &c);
    for (number, cost, why) in steps {
        assert_eq!(lines.link(place(number), 1, &ways, &t, &c), cost, "{why}");
    }
    let one = lines.link(place(3) - 64, 1, &ways, &t, &c);
    assert_eq!(one, 6_750, "an object of one line");
    assert_eq!(lines.object(place(50), 1, &t, &c), 5_400, "no link");
    machine.latency_ns.in_row = None;
    assert!(Costs::new(&machine).link_transfer.is_none());
}

#[test]
fn an_objects_lines_cost_the_same_together_as_one_by_one() {
    let ((mut together, t, c), (mut single, ..)) = (world(), world());
    let chance = crate::chance::Chance::new(5);
    let mut costs_seen = std::collections::BTreeSet::new();
    for _ in 0..3000 {
        let address = (1 << 40) + chance.below(8192) as usize;
        let (bytes, cpu) = (chance.below(700) as usize, chance.below(224));
        if chance.happens(1, 20) {
            for lines in [&mut together, &mut single] {
                let home = lines.home(address);
                lines.write(home, cpu, 0, &t, &c);
            }
        }
        let sum = together.object_part(address, bytes, cpu, &t, &c);
        let each = (address & !63..address + bytes.max(1)).step_by(64);
        let costs = each.map(|line| single.object(line, cpu, &t, &c));
        let (near, far): (Vec<Ps>, Vec<Ps>) = costs.partition(|cost| *cost == c.transfer[0]);
        costs_seen.extend(far.iter().copied());
        assert_eq!(sum, (near.iter().sum(), far.iter().sum()));
    }
    assert!(costs_seen.len() > 3, "from memory, and over every distance");
}

#[test]
fn a_line_outside_the_arena_works_the_same() {
    let (mut lines, t, c) = world();
    let home = lines.home(64);
    assert_eq!(home, lines.home(100));
    assert_eq!(lines.write(home, 0, 0, &t, &c), 110 * NS);
}
