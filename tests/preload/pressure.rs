//! Memory pressure is answered by giving back, where that is asked for.

use flagstone_tests::{
    LIMIT, compile, finish, is_flagstone, library, need, other_library, skip, succeed, without,
};

const SCRATCH: &str = env!("CARGO_TARGET_TMPDIR");

/// The kernel's files, in a mount namespace with another one over each of them that is there.
const OVER: &str = r#"
for place in /proc/pressure/memory /sys/fs/cgroup/unified/memory.pressure /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/memory.pressure
do [ ! -e "$place" ] || mount --bind "$1" "$place" || exit 77; done
LD_PRELOAD=$3 FLAGSTONE_PRESSURE=1 FLAGSTONE_RETAIN_BYTES_MIN=1G exec "$2" "$1"
"#;

/// A tree of control groups of version 2 over the machine's own, and a process that is in its group `app/worker`: of
/// that group there are no files to see, of the one above there are.
const GROUP: &str = r#"
mount --bind "$1/groups" /sys/fs/cgroup && mount --bind "$1/own" /proc/$$/cgroup || exit 77
mount --bind "$1/quiet" /proc/pressure/memory || exit 77
LD_PRELOAD=$3 FLAGSTONE_PRESSURE=1 FLAGSTONE_RETAIN_BYTES_MIN=1G exec "$2" "$1/groups/app/memory.events" events
"#;

/// What the kernel says where no task waits.
const QUIET: &str = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";

/// A way to start a shell in a mount namespace of its own, with `/proc/pressure/memory` in it.
fn apart() -> Option<std::path::PathBuf> {
    let unshare = need("unshare", "util-linux")?;
    let words = ["-m", "sh", "-c", "[ -e /proc/pressure/memory ]"];
    let may = finish(without(&unshare).args(words), LIMIT)
        .status
        .success();
    if !may {
        skip("no mount namespace of its own, or no /proc/pressure/memory");
    }
    may.then_some(unshare)
}

#[test]
fn what_is_free_goes_back_when_the_group_is_above_memory_high_and_not_before() {
    if !is_flagstone() {
        other_library();
        return;
    }
    let Some(unshare) = apart() else { return };
    let program = compile(SCRATCH, "preload/pressure.c");
    let folder = tempfile::tempdir().unwrap();
    let group = folder.path().join("groups/app");
    std::fs::create_dir_all(group.join("worker")).unwrap();
    let text = "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n";
    std::fs::write(group.join("memory.events"), text).unwrap();
    std::fs::write(group.join("memory.pressure"), QUIET).unwrap();
    std::fs::write(folder.path().join("own"), "0::/app/worker\n").unwrap();
    std::fs::write(folder.path().join("quiet"), QUIET).unwrap();
    let mut command = without(&unshare);
    command.args(["-m", "sh", "-c", GROUP, "sh"]);
    command.arg(folder.path()).arg(program).arg(library());
    let finished = succeed(&mut command, LIMIT);
    assert_eq!(finished.stdout, "given back\n");
}

#[test]
fn what_is_free_goes_back_when_tasks_wait_for_memory_and_not_before() {
    if !is_flagstone() {
        other_library();
        return;
    }
    let Some(unshare) = apart() else { return };
    let program = compile(SCRATCH, "preload/pressure.c");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pressure");
    std::fs::write(&file, QUIET).unwrap();
    let mut command = without(&unshare);
    command.args(["-m", "sh", "-c", OVER, "sh"]);
    command.arg(&file).arg(program).arg(library());
    let finished = succeed(&mut command, LIMIT);
    assert_eq!(finished.stdout, "given back\n");
}
