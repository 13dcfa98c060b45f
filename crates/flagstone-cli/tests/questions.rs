//! The newcomer's three questions, asked of programs: where did my memory go, is it fragmentation, what do I change.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "support/run.rs"]
mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{document, document_with, installed, run, text};

/// The answer in one line, and the names of the rules that propose something.
fn answer(command: &[&str]) -> (String, Vec<String>, Value) {
    let (output, document) = document(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let tries = document["try"].as_array().expect("changes");
    let rules = tries
        .iter()
        .map(|one| one["rule"].as_str().expect("a name"));
    let rules = rules.map(str::to_owned).collect();
    let text = document["answer"]["text"].as_str().expect("an answer");
    (text.to_owned(), rules, document)
}

fn compiled(folder: &Path, source: &str) -> Option<PathBuf> {
    let compiler = installed("gcc")?;
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&file, source).expect("written");
    let built = Command::new(compiler)
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &file])
        .status();
    assert!(built.expect("a compiler").success());
    Some(program)
}

#[test]
fn a_small_program_is_its_code_and_libraries_and_nothing_is_to_be_changed() {
    let (said, rules, _) = answer(&["sh", "-c", "true"]);
    assert!(
        said.contains("lay outside the heap, nearly all program and libraries"),
        "{said}"
    );
    assert!(said.contains("No setting would change much"), "{said}");
    assert!(said.contains("is its code and libraries"), "{said}");
    assert!(rules.is_empty(), "{rules:?}");
}

#[test]
fn what_a_program_maps_itself_is_named_and_who_does_can_be_found() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <string.h>\n#include <stdlib.h>\n#include <sys/mman.h>\n\
        int main(void) {\n char *p = mmap(0, 24 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
        memset(p, 1, 24 << 20);\n free(malloc(300000));\n return p[5] - 1;\n}\n";
    let Some(program) = compiled(folder.path(), source) else {
        return;
    };
    let (said, rules, _) = answer(&[program.to_str().unwrap()]);
    assert!(
        said.contains("outside the heap, nearly all anonymous mappings"),
        "{said}"
    );
    assert_eq!(rules, ["own-mappings"], "{said}");
}

#[test]
fn what_a_program_holds_leads_to_its_call_sites_unless_it_is_profiled_already() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <string.h>\n#include <stdlib.h>\nint main(void) {\n\
        for (int i = 0; i < 2000; i++) memset(malloc(16384), 1, 16384);\n return 0;\n}\n";
    let Some(program) = compiled(folder.path(), source) else {
        return;
    };
    let program = program.to_str().unwrap();
    let (said, rules, document) = answer(&[program]);
    assert_eq!(rules, ["call-sites"], "{said}");
    let because = document["try"][0]["because"].as_str().expect("a reason");
    assert!(
        because.contains("2000 blocks of 16.0 KiB on average at its end"),
        "{because}"
    );
    assert!(because.contains("if they are a pool's"), "{because}");
    let file = folder.path().join("heap.pb.gz");
    let options = ["--profile", file.to_str().unwrap()];
    let (_, profiled) = document_with(&options, &[program]);
    assert_eq!(profiled["try"].as_array().map(Vec::len), Some(0));
}

#[test]
fn deep_stacks_of_threads_are_told() {
    let folder = tempfile::tempdir().unwrap();
    // The last thread that is ready ends the process, while the others still stand on their stacks.
    let source = "#include <pthread.h>\n#include <stdlib.h>\n#include <string.h>\n\
        static pthread_barrier_t all;\nstatic void *deep(void *unused) {\n volatile char room[1 << 20];\n\
        memset((char *)room, 1, sizeof room);\n pthread_barrier_wait(&all);\n free(malloc(300000));\n\
        pthread_barrier_wait(&all);\n return (void *)(long)room[7];\n}\nint main(void) {\n pthread_t id[24];\n\
        pthread_barrier_init(&all, 0, 25);\n\
        for (int i = 0; i < 24; i++) pthread_create(&id[i], 0, deep, 0);\n pthread_barrier_wait(&all);\n\
        for (int i = 0; i < 40; i++) free(malloc(1 << 20));\n exit(0);\n}\n";
    let Some(program) = compiled(folder.path(), source) else {
        return;
    };
    let (said, rules, _) = answer(&[program.to_str().unwrap()]);
    assert!(
        said.contains("outside the heap, nearly all stacks"),
        "{said}"
    );
    assert!(rules.contains(&"stacks".to_owned()), "{rules:?}: {said}");
}

#[test]
fn pools_of_perl_and_tcl_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("pool.tcl");
    let text = "for {set i 0} {$i < 60000} {incr i} { dict set d key$i \"value number $i\" }\n";
    std::fs::write(&script, text).expect("written");
    let script = script.to_str().unwrap();
    let perl = "my %h; $h{\"key$_\"} = \"value $_\" for 1..90000;";
    for (words, rule) in [
        (vec!["tclsh", script], "tcl-pools"),
        (vec!["perl", "-e", perl], "perl-arenas"),
    ] {
        if installed(words[0]).is_none() {
            continue;
        }
        let (said, rules, _) = answer(&words);
        assert!(rules.contains(&rule.to_owned()), "{rules:?}: {said}");
    }
}

#[test]
fn a_static_program_of_go_is_refused_with_what_bounds_its_heap() {
    let go = ["/usr/local/go/bin/go", "/usr/bin/go", "/usr/lib/go/bin/go"];
    let Some(go) = go.into_iter().find(|go| Path::new(go).exists()) else {
        eprintln!("skipped: go is not installed");
        return;
    };
    let output = run(&["--", go, "version"]);
    let said = text(&output.stderr);
    // Some distributions link theirs dynamically; then it runs.
    let is_refused = said.contains("statically linked by Go") && said.contains("GOMEMLIMIT");
    assert!(
        (output.status.code() == Some(2)) == is_refused,
        "{:?}: {said}",
        output.status
    );
}
