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

#[test]
fn what_is_free_goes_back_when_tasks_wait_for_memory_and_not_before() {
    if !is_flagstone() {
        other_library();
        return;
    }
    let Some(unshare) = need("unshare", "util-linux") else {
        return;
    };
    let words = ["-m", "sh", "-c", "[ -e /proc/pressure/memory ]"];
    if !finish(without(&unshare).args(words), LIMIT)
        .status
        .success()
    {
        skip("no mount namespace of its own, or no /proc/pressure/memory");
        return;
    }
    let program = compile(SCRATCH, "preload/pressure.c");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pressure");
    let quiet = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
    std::fs::write(&file, quiet).unwrap();
    let mut command = without(&unshare);
    command.args(["-m", "sh", "-c", OVER, "sh"]);
    command.arg(&file).arg(program).arg(library());
    let finished = succeed(&mut command, LIMIT);
    assert_eq!(finished.stdout, "given back\n");
}
