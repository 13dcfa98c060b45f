//! Ledgers of loaded services close.

use crate::ours::{
    BUSY, PATIENCE, Running, ask, closes, compiled, here, json, on_library, said, until,
};
use std::net::TcpListener;
use std::process::{Command, Stdio};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

#[test]
fn the_ledger_of_a_loaded_redis_closes() {
    if !here("redis-server", "redis")
        || !here("redis-cli", "redis")
        || !here("redis-benchmark", "redis")
    {
        return;
    }
    let port = free_port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let mut server = Command::new("redis-server");
    server
        .args(["--port", &port, "--save", "", "--dir"])
        .arg(folder.path());
    let redis = Running::start(on_library(&mut server));
    let cli = |words: &[&str]| said(Command::new("redis-cli").args(["-p", &port]).args(words)).1;
    until("redis answers", || cli(&["ping"]).starts_with("PONG"));
    let filled = cli(&["debug", "populate", "200000", "key", "200"]);
    let filled = filled.contains("OK") || {
        // Debugging commands may be off.
        let script =
            "for i=1,200000 do redis.call('set','key:'..i,string.rep('x',200)) end return 'OK'";
        cli(&["eval", script, "0"]).contains("OK")
    };
    assert!(filled);
    let reading = closes(&redis.pid);
    assert!(reading["rss_bytes"].as_u64().unwrap() > 50 << 20, "loaded");
    let mut load = Command::new("redis-benchmark");
    load.args([
        "-p",
        &port,
        "-n",
        "1000000",
        "-r",
        "100000",
        "-q",
        "-t",
        "set,lpush,lpop",
    ]);
    let mut load = load.stdout(Stdio::null()).spawn().unwrap();
    for _ in 0..5 {
        closes(&redis.pid);
    }
    let (code, out, err) = ask(&["verify", &redis.pid]);
    assert_eq!(code, Some(0), "{out}{err}");
    let trim = json(&[
        "trim",
        "--wait",
        &PATIENCE.as_secs().to_string(),
        &redis.pid,
        "--json",
    ]);
    assert_eq!(trim["done"], true, "{trim}");
    let _ = load.kill();
    let _ = load.wait();
    assert!(cli(&["ping"]).starts_with("PONG"), "it goes on");
}

#[test]
fn the_ledger_of_a_python_service_closes_while_it_works() {
    if !here("python3", "a Python service") {
        return;
    }
    let program = "
import threading, random
held = {}
def work(seed):
    r = random.Random(seed)
    while True:
        for _ in range(2000):
            held[seed, r.randrange(100000)] = 'x' * r.randrange(1000)
        r.random()
for seed in range(2):
    threading.Thread(target=work, args=(seed,), daemon=True).start()
while len(held) < 50000: pass
print('up', flush=True)
threading.Event().wait()";
    let python = Running::python(program);
    for _ in 0..5 {
        closes(&python.pid);
    }
}

#[test]
fn a_heap_whose_pages_move_without_pause_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let busy = compiled(folder.path(), SWAPS);
    let busy = Running::start(on_library(&mut Command::new(busy)));
    for _ in 0..20 {
        closes(&busy.pid);
    }
}

/// Two threads that replace blocks of several pages, flat out.
const SWAPS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void *swaps(void *seed) {
    enum { HELD = 400 };
    static __thread char *held[HELD];
    for (unsigned state = (unsigned)(unsigned long)seed;;) {
        state = state * 1664525u + 1013904223u;
        unsigned at = (state >> 8) % HELD;
        free(held[at]);
        held[at] = malloc(5000 + (state >> 12) % 60000);
        held[at][0] = 1;
    }
    return 0;
}
int main(void) {
    pthread_t thread;
    for (unsigned long seed = 1; seed < 3; seed++) pthread_create(&thread, 0, swaps, (void *)seed);
    puts("up"); fflush(stdout);
    pause();
}
"#;

#[test]
fn the_ledger_of_a_jvm_closes() {
    if !here("javac", "a JVM") || !here("java", "a JVM") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = "
import java.util.*;
public class Load {
    public static void main(String[] words) throws Exception {
        List<byte[]> held = new ArrayList<>();
        for (int i = 0; i < 40000; i++) held.add(new byte[1000]);
        List<java.nio.ByteBuffer> direct = new ArrayList<>();
        for (int i = 0; i < 2000; i++) direct.add(java.nio.ByteBuffer.allocateDirect(10000));
        System.out.println(\"up\");
        for (;;) { held.set((int) (Math.random() * 40000), new byte[1000]); Thread.yield(); }
    }
}";
    std::fs::write(folder.path().join("Load.java"), source).unwrap();
    let compiled = Command::new("javac")
        .arg("Load.java")
        .current_dir(folder.path())
        .status();
    assert!(compiled.unwrap().success());
    let mut java = Command::new("java");
    java.args(["-Xmx128m", "-XX:+UseSerialGC", "-cp"])
        .arg(folder.path())
        .arg("Load");
    let java = Running::start(on_library(&mut java));
    for _ in 0..3 {
        closes(&java.pid);
    }
}

#[test]
fn a_list_shows_a_process_and_its_screen_its_caches() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), BUSY);
    let busy = Running::start(on_library(&mut Command::new(program)));
    let list = json(&["ps", "--json"]);
    let pid: u64 = busy.pid.parse().unwrap();
    let rows = list["processes"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["pid"] == pid)
        .unwrap_or_else(|| panic!("{list}"));
    assert!(row["live_bytes"].as_u64().unwrap() < row["heap_bytes"].as_u64().unwrap());
    let (code, out, err) = ask(&["ps"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.lines().any(|line| line.starts_with(&busy.pid)), "{out}");
    let (code, out, err) = ask(&["top", "--once", &busy.pid]);
    assert_eq!(code, Some(0), "{err}");
    assert!(
        out.contains("malloc-960") && out.lines().all(|line| line.chars().count() <= 80),
        "{out}"
    );
    let (code, out, _) = ask(&["top", "--once"]);
    assert_eq!(code, Some(0));
    assert!(out.contains(&busy.pid), "{out}");
    let (code, out, err) = ask(&["top", &busy.pid]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "no terminal");
    assert!(err.contains("--once"), "{err}");
}

#[test]
fn stat_says_whether_it_is_fragmentation_and_what_a_runtime_maps_itself() {
    if !here("python3", "what is said of a runtime") {
        return;
    }
    let program = "import time\nheld = [[number] * 3 for number in range(300000)]\nprint('up', flush=True)\ntime.sleep(1000)";
    let python = Running::python(program);
    let (code, out, err) = ask(&["stat", &python.pid]);
    assert_eq!(code, Some(0), "{err}");
    let words: Vec<&str> = out.split_whitespace().collect();
    let out = words.join(" ");
    assert!(out.contains("Little is fragmentation ("), "{out}");
    assert!(
        out.contains("of anonymous mappings; try PYTHONMALLOC=malloc at its start."),
        "{out}"
    );
}
