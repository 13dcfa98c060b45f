//! A complete profile of this host, every figure with the way it was found.

use super::loops::{self, Loops};
use super::pair::Pair;
use super::shape::{self, Found};
use super::solve::{self, Equation, PRICES, Price};
use super::{between, probe, threads};
use crate::machine::Machine;
use crate::topology::Distance;
use core::fmt::Write as _;
use core::hint::black_box;
use std::time::Duration;

/// Wall time of the loops through the core on the host.
const LOOPS: Duration = Duration::from_millis(3500);

/// Wall time of each loop in which two CPUs are in each other's way.
const PAIR: Duration = Duration::from_millis(250);

/// Where nothing can be measured: a line between two cores of one package, in ns.
const SOCKET_NS: f64 = 50.0;

/// The profile of this host.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// The profile.
    pub machine: Machine,
    /// The same as a file.
    pub text: String,
    /// The loops it was solved from.
    pub equations: Vec<Equation>,
    /// The prices found, in the order of [`PRICES`].
    pub prices: [f64; PRICES.len()],
}

/// A file being written: sections of `name = value  # source`.
struct Page(String);

impl Page {
    fn section(&mut self, name: &str) {
        let _ = write!(self.0, "\n[{name}]\n");
    }

    fn figure(&mut self, name: &str, value: f64, source: &str) {
        // Four digits that count: figures of this kind are not known better.
        let digits = (3 - value.abs().max(1e-3).log10().floor() as i32).clamp(1, 4) as usize;
        self.fixed(name, &format!("{value:.digits$}"), source);
    }

    fn count(&mut self, name: &str, value: usize, source: &str) {
        self.fixed(name, &value.to_string(), source);
    }

    fn flag(&mut self, name: &str, value: bool, source: &str) {
        self.fixed(name, &value.to_string(), source);
    }

    fn word(&mut self, name: &str, value: &str, source: &str) {
        self.fixed(name, &format!("\"{value}\""), source);
    }

    /// A value as the file has it.
    fn fixed(&mut self, name: &str, value: &str, source: &str) {
        let line = format!("{name} = {value}");
        let _ = writeln!(self.0, "{line:<22} # {source}");
    }

    fn note(&mut self, text: &str) {
        let _ = writeln!(self.0, "# {text}");
    }
}

/// How long each of a core's threads takes for the same work while the other one works too.
fn slowdown(found: &Found) -> Option<f64> {
    const STEPS: u64 = 200_000;
    let (a, b) = found.pair(Distance::Sibling)?;
    let work = |_| {
        threads::time(STEPS, Duration::from_millis(200), || {
            let mut x = 1u64;
            for step in 0..STEPS {
                x = black_box(x.rotate_left(5) ^ step.wrapping_mul(x | 1));
            }
            black_box(x);
        })
    };
    let alone = threads::on_each(&[a], work)[0];
    let both = threads::on_each(&[a, b], work);
    Some((both.iter().sum::<f64>() / 2.0 / alone.max(1e-9)).max(1.0))
}

/// Measures this host: twelve seconds, and up to seven more where it shows one pace only.
///
/// # Errors
/// One line, when the system grants no memory.
pub fn measure() -> Result<Calibration, String> {
    let found = shape::look();
    let first = threads::allowed()[0];
    // Everything on a thread of its own, so that the caller stays free to move.
    threads::on_each(&[first], |_| measure_here(&found))
        .pop()
        .unwrap_or_else(|| Err("nothing was measured".into()))
}

fn measure_here(found: &Found) -> Result<Calibration, String> {
    let mut page = Page(String::new());
    let cpus = found.sockets * found.cores_per_socket * found.threads_per_core;
    page.note(&format!(
        "{}, {cpus} CPUs: measured by `flagstone sim calibrate`.",
        found.model
    ));
    page.note(
        "Lower quartiles of undisturbed stretches; `solved`: least squares over loops through the",
    );
    page.note("core, each run on this host and counted on a virtual CPU.");
    let _ = writeln!(
        page.0,
        "about = \"{} CPUs, {} (measured on this host)\"",
        cpus,
        found.model.replace('"', "'")
    );
    topology(&mut page, found);
    let (own, near_line) = (probe::own_line(), probe::near_line());
    let locked = probe::atomic();
    let atomic = (locked.ns - own).max(0.1);
    let (dram, line) = probe::memory();
    let (fault, advise) = probe::pages();
    let transfer = |distance| found.pair(distance).map(|(a, b)| between::transfer(a, b));
    let near = [
        Distance::Sibling,
        Distance::Cluster,
        Distance::Socket,
        Distance::Remote,
    ]
    .map(transfer);
    let pair = found.any_pair().map(|(a, b)| Pair::of(a, b, PAIR));
    let slow_lines = [near[2], near[1], near[3]];
    let socket = slow_lines.into_iter().flatten().next();
    let estimate = "estimate: this process has one CPU";

    page.section("latency_ns");
    let at_own = page.0.len();
    let none = "none such here: as socket";
    let ball = "locked additions to lines another pinned thread wrote, less those to lines at hand";
    let said = |value: Option<f64>, otherwise| value.map_or(otherwise, |_| ball);
    page.figure(
        "sibling",
        near[0].unwrap_or(own),
        said(near[0], "no sibling threads: as l1"),
    );
    if let Some(cluster) = near[1] {
        page.figure("cluster", cluster, ball);
    }
    let near_source = if near[2].is_some() {
        ball
    } else if socket.is_some() {
        "one last-level cache: as cluster"
    } else {
        estimate
    };
    page.figure("socket", socket.unwrap_or(SOCKET_NS), near_source);
    page.figure(
        "remote",
        near[3].or(socket).unwrap_or(SOCKET_NS),
        said(near[3], if socket.is_some() { none } else { estimate }),
    );
    if let Some(pair) = pair {
        page.figure(
            "overlap",
            pair.overlap(),
            "128 lines the other CPU wrote, read and written: one of them, over a line's way",
        );
        let [one, two] = pair.in_row();
        let parts = format!("[{one:.4}, {two:.4}]");
        page.fixed(
            "in_row",
            &parts,
            "the same of free objects in a row, of one line and of two, taken in turn",
        );
        page.flag(
            "migrates",
            pair.migrates,
            "whether a line the other CPU wrote is this one's own after a load",
        );
    }
    page.figure("dram", dram, "dependent loads at random in 192 MiB");
    page.figure(
        "atomic",
        atomic,
        "fetch_add on a line that is here, less one load",
    );

    page.section("locks");
    page.word(
        "default",
        "spinning",
        "the core's locks on Linux: spin, yield, nap; nobody queues",
    );
    let at_lock = page.0.len();

    page.section("smt");
    let smt = slowdown(found);
    page.figure(
        "slowdown",
        smt.unwrap_or(1.0),
        if smt.is_some() {
            "a loop of arithmetic on both threads of a core, over one"
        } else {
            "no sibling threads"
        },
    );

    page.section("work_ns");
    let at_work = page.0.len();
    let Loops { loops, pace_power } = loops::run(LOOPS, found.memory_gib << 30)?;
    page.figure(
        "pace_power",
        pace_power.unwrap_or(1.0),
        "the power of the pace that loops through the core go with; 1 where they met one pace only",
    );
    page.figure(
        "pace",
        locked.pace,
        "a step of the pace loop, which the figures of a CPU's own work are brought to",
    );
    page.figure(
        "mispredict",
        probe::mispredicted_branch().at(locked.pace, 1.0).max(0.0),
        "twice what a branch by chance takes more than one that is nearly always the same",
    );
    page.figure("page", fault, "first write to each page of a fresh mapping");
    page.figure(
        "seize",
        probe::fence().unwrap_or(3000.0),
        "membarrier over all CPUs (3000 where the kernel has none)",
    );
    let wake = found.any_pair().map(|(a, b)| between::wake(a, b));
    page.figure(
        "wake",
        wake.unwrap_or(4000.0),
        if wake.is_some() {
            "half a round trip of a message between sleeping threads"
        } else {
            estimate
        },
    );
    page.note(&format!(
        "not used: madvise(MADV_DONTNEED) of one page takes {advise:.0} ns"
    ));

    page.section("rcu");
    page.figure("grace_ms", 4.0, "nominal: user programs have none");

    page.section("cache");
    page.count("llc_kib", found.llc_kib, "/sys: the last-level cache");
    page.count(
        "cluster_cores",
        found.cluster_cores as usize,
        "/sys: cores that share it",
    );
    page.figure("line_ns", line, "as dram, eight loads under way at once");

    // What is solved for goes where it belongs.
    let places = [at_own, at_lock, at_work];
    let usual = PRICES.map(|(_, usual)| usual);
    let draft = insert(&page.0, places, &solved_lines(usual, near_line, None));
    let machine = Machine::parse("this-machine", &draft)?;
    let equations = solve::equations(&machine, &loops);
    let prices = solve::solve(&equations, near_line);
    let draft = insert(&page.0, places, &solved_lines(prices, near_line, None));
    let mut machine = Machine::parse("this-machine", &draft)?;
    if let Some(pair) = pair {
        pair.solve(&mut machine);
    }
    let lock = pair.map(|pair| (pair, machine));
    let text = insert(
        &page.0,
        places,
        &solved_lines(prices, near_line, lock.as_ref()),
    );
    let machine = Machine::parse("this-machine", &text)?;
    Ok(Calibration {
        machine,
        text,
        equations,
        prices,
    })
}

fn topology(page: &mut Page, found: &Found) {
    page.section("topology");
    page.count("sockets", found.sockets as usize, "/sys: physical packages");
    page.count(
        "cores_per_socket",
        found.cores_per_socket as usize,
        "/sys: cores this process may use",
    );
    page.count(
        "threads_per_core",
        found.threads_per_core as usize,
        "/sys: CPUs of one core",
    );
    page.count("nodes", usize::from(found.nodes), "/sys: memory nodes");
    page.count("page_size", found.page_size, "sysconf");
    page.count("memory_gib", found.memory_gib, "/proc/meminfo: MemTotal");
    page.figure("ghz", found.ghz, "/proc/cpuinfo: cpu MHz");
}

/// Puts each of `lines` at its place, which are in ascending order.
fn insert(text: &str, places: [usize; 3], lines: &[String; 3]) -> String {
    let mut text = text.to_owned();
    for (place, lines) in places.into_iter().zip(lines).rev() {
        text.insert_str(place, lines);
    }
    text
}

/// The lines of the figures solved for: those of `latency_ns`, `locks` and `work_ns`. `lock` is
/// what two CPUs showed, and the machine that shows the same.
fn solved_lines(
    prices: [f64; PRICES.len()],
    most: f64,
    lock: Option<&(Pair, Machine)>,
) -> [String; 3] {
    let of = |price: Price| prices[price as usize];
    let mut latency = Page(String::new());
    let source = format!(
        "solved, at most the {most:.2} ns of a load from the second cache that the next one waits for"
    );
    latency.figure("l1", of(Price::Own), &source);
    let mut locks = Page(String::new());
    if let Some((pair, machine)) = lock {
        let words = pair
            .words_ns
            .map(|(pause, ns)| format!("{ns:.0} ns after {pause:.0}"));
        let source = format!(
            "solved: locked additions of two CPUs to one line: one each {}",
            words.join(", ")
        );
        let linger = machine.latency_ns.linger.unwrap_or(0.0);
        latency.figure("linger", linger, &source);
    }
    let source = lock.map_or("estimate: this process has one CPU".into(), |(pair, _)| {
        let ns = pair.lock_ns;
        format!("solved: a core lock two CPUs want all the time is taken every {ns:.0} ns")
    });
    let handoff = lock.map_or(1.0, |(_, machine)| machine.locks.handoff);
    locks.figure("handoff", handoff, &source);
    let mut work = Page(String::new());
    for (name, price) in [
        ("slot", Price::Slot),
        ("fast", Price::Fast),
        ("fast_free", Price::FastFree),
        ("slow", Price::Slow),
        ("object", Price::Object),
        ("slab", Price::Slab),
        ("slab_page", Price::SlabPage),
        ("block", Price::Block),
        ("local", Price::Local),
        ("pageset", Price::Pageset),
    ] {
        work.figure(name, of(price), "solved");
    }
    [latency.0, locks.0, work.0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_so_that_they_read_back() {
        for value in [0.0, 0.05, 0.5, 3.25, 99.9, 123_456.0] {
            let mut page = Page(String::new());
            page.figure("x", value, "test");
            let read: toml::Table = page.0.parse().unwrap();
            let read = read["x"].as_float().unwrap();
            assert!(
                (read - value).abs() <= value * 2e-3,
                "{value} became {read}"
            );
        }
    }
}
