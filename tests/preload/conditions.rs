//! The same programs where something is missing: address space, CPUs, restartable sequences,
//! memory of a container, a real CPU.

use crate::SCRATCH;
use flagstone_tests::{
    LIMIT, compile, compile_with, is_flagstone, need, other_library, preloaded, skip, succeed,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

fn threads() -> PathBuf {
    compile_with(SCRATCH, "preload/threads.cpp", &["-pthread", "-O2"])
}

/// `ulimit` is a word of the shell, and the shell itself runs under it too.
fn under_ulimit(kib: usize, program: &Path, arguments: &str) -> Command {
    let mut command = preloaded("sh");
    command.arg("-c").arg(format!(
        "ulimit -v {kib}; exec {} {arguments}",
        program.display()
    ));
    command
}

#[test]
fn under_ulimit_v_small_blocks_are_refused_at_the_limit_and_come_back() {
    let program = compile(SCRATCH, "preload/limits.c");
    for kib in [200_000, 400_000, 1_000_000] {
        let finished = succeed(&mut under_ulimit(kib, &program, "1000 2000000"), LIMIT);
        assert_eq!(
            finished.stdout, "refused or full: refused\n",
            "ulimit -v {kib}"
        );
    }
}

#[test]
fn under_ulimit_v_large_blocks_are_refused_at_the_limit_and_come_back() {
    let program = compile(SCRATCH, "preload/limits.c");
    let finished = succeed(&mut under_ulimit(400_000, &program, "3000000 1000"), LIMIT);
    assert_eq!(finished.stdout, "refused or full: refused\n");
}

#[test]
fn a_limit_of_address_space_that_a_program_lowers_itself_holds_for_small_blocks() {
    let program = compile(SCRATCH, "preload/limit_lowered.c");
    let finished = succeed(&mut preloaded(program), LIMIT);
    assert_eq!(finished.stdout, "ok\n");
}

#[test]
fn under_a_limit_that_a_program_lowers_itself_there_is_room_for_its_own_mappings() {
    let program = compile(SCRATCH, "preload/limit_lowered_maps.c");
    let finished = succeed(&mut preloaded(program), LIMIT);
    assert_eq!(finished.stdout, "ok\n");
}

#[test]
fn under_ulimit_v_what_was_freed_in_small_blocks_serves_one_large_one() {
    let program = compile(SCRATCH, "preload/limit_swing.c");
    let finished = succeed(&mut under_ulimit(200_000, &program, "200000"), LIMIT);
    assert_eq!(finished.stdout, "ok\n");
}

#[test]
fn large_blocks_that_nobody_touches_cost_next_to_nothing() {
    let program = compile(SCRATCH, "preload/untouched.c");
    let finished = succeed(&mut preloaded(program), LIMIT);
    assert_eq!(finished.stdout, "ok\n");
}

#[test]
fn threads_run_under_ulimit_v() {
    succeed(&mut under_ulimit(500_000, &threads(), ""), LIMIT);
}

#[test]
fn threads_run_on_one_cpu() {
    let Some(taskset) = need("taskset", "util-linux") else {
        return;
    };
    succeed(preloaded(taskset).args(["-c", "0"]).arg(threads()), LIMIT);
}

#[test]
fn threads_forks_and_signals_run_without_restartable_sequences() {
    let off = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    succeed(preloaded(threads()).env(off.0, off.1), LIMIT);
    let forks = compile(SCRATCH, "preload/fork_from_threads.c");
    succeed(preloaded(forks).arg("200").env(off.0, off.1), LIMIT);
    let limits = compile(SCRATCH, "preload/limits.c");
    succeed(
        preloaded(limits).args(["5000", "20000"]).env(off.0, off.1),
        LIMIT,
    );
}

/// Valgrind runs every instruction itself and knows no restartable sequences. Memcheck would put
/// its own allocator in place of ours, so the tool without checks is the one that tests us; then
/// memcheck, once as it is and once told to leave the allocator alone.
#[test]
fn a_program_runs_under_valgrind() {
    let Some(valgrind) = need("valgrind", "valgrind") else {
        return;
    };
    let lifecycle = compile(SCRATCH, "preload/lifecycle.c");
    let plugin = compile_with(SCRATCH, "preload/plugin.c", &["-shared", "-fPIC"]);
    let tools: [&[&str]; 3] = [
        &["-q", "--tool=none"],
        &["-q", "--error-exitcode=9"],
        &["-q", "--soname-synonyms=somalloc=nouserintercepts"],
    ];
    for tool in tools {
        let mut command = preloaded(&valgrind);
        let finished = succeed(command.args(tool).arg(&lifecycle).arg(&plugin), LIMIT);
        assert_eq!(finished.stdout, "done\n", "{tool:?}");
    }
}

/// A control group of 64 MiB without swap: the program must live within it by giving back.
#[test]
fn a_program_that_frees_what_it_uses_lives_in_a_64_mib_container() {
    let Some(group) = Container::of_64_mib() else {
        skip("no control group with a memory limit can be made here; it takes root");
        return;
    };
    let program = compile(SCRATCH, "preload/limits.c");
    // 40 MiB live at a time, three times over, in three shapes.
    for arguments in ["1000 40000", "100000 400", "3000000 13"] {
        let finished = succeed(&mut group.inside(&program, arguments), LIMIT);
        assert_eq!(finished.stdout, "refused or full: full\n", "{arguments}");
    }
}

#[test]
fn freed_huge_blocks_are_not_kept_beyond_what_a_64_mib_container_allows() {
    let Some(group) = Container::of_64_mib() else {
        skip("no control group with a memory limit can be made here; it takes root");
        return;
    };
    let program = compile(SCRATCH, "preload/huge_then_small.c");
    let finished = succeed(&mut group.inside(&program, ""), LIMIT);
    assert_eq!(finished.stdout, "done\n");
}

/// What the allocator keeps for itself is bounded by the container, not by the machine: under an
/// eighth of it after peaks of two thirds of it.
#[test]
fn an_idle_program_in_a_64_mib_container_keeps_a_few_mib() {
    if !is_flagstone() {
        return other_library();
    }
    let Some(group) = Container::of_64_mib() else {
        skip("no control group with a memory limit can be made here; it takes root");
        return;
    };
    let program = compile(SCRATCH, "preload/kept.c");
    for threads in [1, 4] {
        let arguments = format!("{threads} 40000000 1500");
        let finished = succeed(&mut group.inside(&program, &arguments), LIMIT);
        let kept: i64 = finished.stdout.trim().parse().expect("KiB");
        assert!(
            kept <= 8 << 10,
            "{threads} threads left {kept} KiB resident"
        );
    }
}

struct Container(PathBuf);

impl Container {
    /// In the unified hierarchy, or in the memory controller of the old one.
    fn of_64_mib() -> Option<Container> {
        const LIMIT: &str = "67108864";
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("flagstone-test-{}-{number}", std::process::id());
        let places = [
            ("/sys/fs/cgroup", "memory.max"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ];
        for (root, limit) in places {
            let group = Container(Path::new(root).join(&name));
            if std::fs::create_dir(&group.0).is_err() {
                continue;
            }
            if !group.0.join(limit).exists() || std::fs::write(group.0.join(limit), LIMIT).is_err()
            {
                continue;
            }
            // Without swap accounting there are no such files, and nothing to forbid.
            let _ = std::fs::write(group.0.join("memory.swap.max"), "0");
            let _ = std::fs::write(group.0.join("memory.swappiness"), "0");
            return Some(group);
        }
        None
    }
}

impl Container {
    /// A program in here, on the library.
    fn inside(&self, program: &Path, arguments: &str) -> Command {
        let mut command = preloaded("sh");
        let join = format!(
            "echo $$ > {}/cgroup.procs && exec {} {arguments}",
            self.0.display(),
            program.display()
        );
        command.arg("-c").arg(join);
        command
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
