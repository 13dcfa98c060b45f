//! `FLAGSTONE_<OPTION>` and `FLAGSTONE_CONF`: good ones are taken, bad ones named.

use crate::SCRATCH;
use flagstone_tests::{
    Finished, LIMIT, compile, is_flagstone, library, other_library, preloaded, skip, succeed,
    without,
};

/// `echo hello` with variables; `None` where another library is under test.
fn hello(variables: &[(&str, &str)]) -> Option<Finished> {
    if !is_flagstone() {
        other_library();
        return None;
    }
    let mut command = preloaded("/bin/echo");
    command.arg("hello").envs(variables.iter().copied());
    let finished = succeed(&mut command, LIMIT);
    assert_eq!(finished.stdout, "hello\n");
    Some(finished)
}

#[test]
fn an_unknown_option_or_bad_value_is_one_line_and_the_default() {
    for (name, value, expected) in [
        (
            "FLAGSTONE_NONSENSE",
            "1",
            "FLAGSTONE_NONSENSE: unknown setting",
        ),
        (
            "FLAGSTONE_SHEAF_CAPACTY",
            "8",
            "did you mean 'sheaf_capacity'?",
        ),
        ("FLAGSTONE_LIMTI", "64M", "did you mean 'limit'?"),
        (
            "FLAGSTONE_CONF",
            "min_partail:1",
            "did you mean 'min_partial'?",
        ),
        ("FLAGSTONE_SHEAF_CAPACITY", "many", "must be a whole number"),
        (
            "FLAGSTONE_POLICY",
            "linux-6.5",
            "`flagstone run --policy linux-6.5 -- CMD` loads libflagstone-kernels.so",
        ),
        ("FLAGSTONE_CONF", "sheaf_capacity", "expected name:value"),
        ("FLAGSTONE_CONF", "frob:1", "unknown setting 'frob'"),
        ("FLAGSTONE_VERBOSE", "yes", "must be 0 or 1"),
        ("FLAGSTONE_LIMIT", "101%", "FLAGSTONE_LIMIT '101%'"),
        ("FLAGSTONE_LIMIT", "4k", "1M and more bytes"),
        ("FLAGSTONE_PRESSURE", "often", "must be 0 or 1"),
        ("FLAGSTONE_HUGE_PAGES", "all", "must be 0 or 1"),
    ] {
        let Some(finished) = hello(&[(name, value)]) else {
            return;
        };
        let line = finished.stderr;
        assert!(
            line.contains(expected) && line.lines().count() == 1,
            "{name}={value}: {line}"
        );
    }
}

#[test]
fn good_options_are_taken_without_a_word() {
    let variables = [
        ("FLAGSTONE_POLICY", "flagstone"),
        ("FLAGSTONE_CONF", "sheaf_capacity:16,min_partial:3"),
        ("FLAGSTONE_RETAIN_BYTES_MIN", "4M"),
        ("FLAGSTONE_LIMIT", "50%"),
        ("FLAGSTONE_PRESSURE", "1"),
        ("FLAGSTONE_HUGE_PAGES", "1"),
    ];
    let Some(finished) = hello(&variables) else {
        return;
    };
    assert_eq!(finished.stderr, "");
}

/// Tests are run with these variables, and look at what programs say.
#[test]
fn variables_of_tests_are_no_settings() {
    let variables = [
        ("FLAGSTONE_TESTS_KERNEL", "/boot/vmlinuz"),
        ("FLAGSTONE_TESTS_STRICT", "1"),
        ("FLAGSTONE_SEEDS", "9"),
    ];
    let Some(finished) = hello(&variables) else {
        return;
    };
    assert_eq!(finished.stderr, "");
}

#[test]
fn huge_blocks_have_names_where_that_is_asked_for_and_no_filter_forbids_it() {
    if !is_flagstone() {
        return other_library();
    }
    let program = compile(SCRATCH, "preload/names.c");
    let said = |value: &str, confined: &str| {
        let mut command = preloaded(&program);
        let command = command.arg(confined).env("FLAGSTONE_NAMES", value);
        succeed(command, LIMIT).stdout
    };
    let unnamed = "no name\n".repeat(3);
    assert_eq!(said("0", ""), unnamed);
    let confined = said("1", "confined");
    assert!(
        confined == unnamed || confined == "no filters here\n",
        "{confined}"
    );
    let maps = succeed(preloaded("cat").arg("/proc/self/maps"), LIMIT).stdout;
    if !maps.contains("[anon:flagstone heap]") {
        return skip("the kernel keeps no names of mappings (CONFIG_ANON_VMA_NAME)");
    }
    assert_eq!(said("1", ""), "[anon:flagstone huge block]\n".repeat(3));
}

#[test]
fn one_call_names_a_huge_block_and_none_is_made_where_nobody_asks() {
    if !is_flagstone() {
        return other_library();
    }
    let program = compile(SCRATCH, "preload/names.c");
    let tracer = compile(SCRATCH, "preload/naming_calls.c");
    let called = |value: &str| {
        // `env` starts what is traced, so that the tracer is on the C library's allocator.
        let mut command = without(&tracer);
        let preload = format!("LD_PRELOAD={}", library().display());
        let names = format!("FLAGSTONE_NAMES={value}");
        let command = command.args(["env", &preload, &names]).arg(&program);
        succeed(command, LIMIT).stdout
    };
    let with = called("1");
    if with.contains("no tracing here") {
        return skip("no process may be traced here");
    }
    let huge = |said: &str| said.matches("flagstone huge block\n").count();
    // Three are mapped: the one that grows keeps its name, and is too long to be kept once it is free.
    assert_eq!(huge(&with), 3, "{with}");
    let plain = called("0");
    assert!(plain.contains("flagstone heap\n"), "{plain}");
    assert_eq!(huge(&plain), 0, "{plain}");
}

#[test]
fn small_programs_stay_on_plain_pages_and_much_memory_asks_for_huge_ones_where_the_option_says_so()
{
    if !is_flagstone() {
        return other_library();
    }
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return skip("the kernel has no transparent huge pages");
    }
    let program = compile(SCRATCH, "preload/huge_pages.c");
    // Under a limit all is plain: what nobody touched of a huge page is resident and not counted.
    for (option, value, expected) in [
        ("FLAGSTONE_HUGE_PAGES", "0", "plain any any\n"),
        ("FLAGSTONE_HUGE_PAGES", "1", "huge huge huge\n"),
        ("FLAGSTONE_LIMIT", "1G", "plain plain plain\n"),
    ] {
        let mut command = preloaded(&program);
        let finished = succeed(command.env(option, value), LIMIT);
        assert_eq!(finished.stdout, expected, "{option}={value}");
    }
}
