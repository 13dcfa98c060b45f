//! How long a reader stops a program: printed, not judged, since any machine that is shared stops it for longer.

use crate::ours::{Running, ask, compiled, on_library};
use std::process::Command;

/// Replaces blocks and notes the longest time between two; between two is also what the kernel does meanwhile, so
/// gaps in which another thread ran on the processor are counted apart. A line a second.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
enum { COUNT = 100000 };
static char *all[COUNT];
static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}
int main(int count, char **arguments) {
    for (int at = 0; at < COUNT; at++)
        memset(all[at] = malloc(100 + at % 3000), 1, 100);
    puts("up");
    fflush(stdout);
    FILE *out = fopen(arguments[1], "a");
    unsigned random = 1;
    struct rusage use;
    getrusage(RUSAGE_THREAD, &use);
    long taken = use.ru_nivcsw, waits = use.ru_nvcsw;
    for (;;) {
        long long begin = now_ns(), last = begin, worst[3] = {0};
        long pairs = 0;
        while (last - begin < 1000000000ll) {
            random = random * 1664525 + 1013904223;
            int at = (random >> 8) % COUNT;
            free(all[at]);
            all[at] = malloc(100 + (random >> 16) % 3000);
            all[at][0] = 1;
            pairs++;
            long long now = now_ns();
            if (now - last > 50000) {
                getrusage(RUSAGE_THREAD, &use);
                int kind = use.ru_nivcsw != taken ? 0 : use.ru_nvcsw != waits ? 1 : 2;
                taken = use.ru_nivcsw;
                waits = use.ru_nvcsw;
                if (now - last > worst[kind])
                    worst[kind] = now - last;
                now = now_ns();
            }
            last = now;
        }
        fprintf(out, "%ld pairs; longest gap: waiting %lld us, running %lld us, another on the processor %lld us\n",
                pairs, worst[1] / 1000, worst[2] / 1000, worst[0] / 1000);
        fflush(out);
    }
}"#;

#[test]
fn a_program_goes_on_while_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), PROGRAM);
    let lines = folder.path().join("lines");
    let running = Running::start(on_library(Command::new(program).arg(&lines)));
    let told = || {
        let text = std::fs::read_to_string(&lines).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for words in [&["none"][..], &["stat"], &["verify"], &["top", "--once"]] {
        let from = told().len();
        let mut readings = 0;
        // One whole second of the program's, and what of others was begun or ended meanwhile.
        while told().len() < from + 2 {
            match words {
                ["none"] => std::thread::sleep(std::time::Duration::from_millis(20)),
                _ => {
                    let (code, out, err) = ask(&[words, &[&running.pid]].concat());
                    assert_eq!(code, Some(0), "{words:?}: {out}{err}");
                    readings += 1;
                }
            }
        }
        let line = told()[from + 1].clone();
        eprintln!("{} ({readings} readings): {line}", words[0]);
        let pairs: u64 = line.split(' ').next().unwrap().parse().unwrap();
        assert!(pairs > 1000, "{words:?}: {line}");
    }
}
