//! Compilers and interpreters: the same input gives the same output as without the library.

use flagstone_tests::{LIMIT, need, preloaded, same_output_as_without, succeed, without};
use std::fmt::Write;
use std::path::Path;

/// Some thousands of functions, as generated code has.
fn large_c() -> String {
    let mut text = String::from("#include <stdint.h>\n");
    for number in 0..2500u32 {
        write!(
            text,
            "uint32_t f{number}(uint32_t a, uint32_t b) {{\n  uint32_t t[8] = {{{number}u, a, b}};\n  \
             for (int i = 3; i < 8; i++) t[i] = t[i-1] * {}u + (t[i-2] ^ (t[i-3] >> {}));\n  \
             switch (a % 5) {{ case 0: return t[7]; case 1: return t[6] + b; case 3: return t[5] * a; }}\n  \
             return t[4];\n}}\n",
            number * 2 + 1,
            number % 13 + 1
        )
        .expect("a string grows");
    }
    text
}

/// Templates over many types with the standard containers.
fn large_cpp() -> String {
    let mut text = String::from(
        "#include <algorithm>\n#include <functional>\n#include <map>\n#include <memory>\n#include <regex>\n#include <string>\n\
         #include <unordered_map>\n#include <variant>\n#include <vector>\n\
         template <int N> struct T { int v[N % 7 + 1]; bool operator<(const T &o) const { return v[0] < o.v[0]; } };\n",
    );
    for number in 0..60 {
        write!(
            text,
            "int g{number}(int a) {{\n  std::map<T<{number}>, std::vector<std::string>> m;\n  \
             m[T<{number}>{{{{a}}}}].push_back(std::to_string(a));\n  std::vector<T<{number}>> v(a);\n  \
             std::sort(v.begin(), v.end());\n  std::variant<int, T<{number}>> x = a;\n  \
             return int(m.size() + v.size()) + std::get<int>(x);\n}}\n"
        )
        .expect("a string grows");
    }
    text
}

/// Compiles with and without the library; the assembly must be the same.
fn compiles_alike(compiler: &Path, source: &str, ending: &str) {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let file = scratch.path().join(format!("large.{ending}"));
    std::fs::write(&file, source).expect("the source");
    let assembly = |mut command: std::process::Command, name: &str| {
        let out = scratch.path().join(name);
        command
            .current_dir(scratch.path())
            .args(["-O1", "-w", "-S", "-o"])
            .arg(&out)
            .arg(&file);
        succeed(&mut command, LIMIT);
        std::fs::read(out).expect("the assembly")
    };
    let plain = assembly(without(compiler), "plain.s");
    let ours = assembly(preloaded(compiler), "ours.s");
    assert!(plain.len() > 100_000);
    assert!(
        plain == ours,
        "the compiler made other code with the library"
    );
}

#[test]
fn gcc_compiles_a_large_file_to_the_same_code() {
    let Some(compiler) = need("gcc", "gcc") else {
        return;
    };
    compiles_alike(&compiler, &large_c(), "c");
}

#[test]
fn gpp_compiles_many_templates_to_the_same_code() {
    let Some(compiler) = need("g++", "g++") else {
        return;
    };
    compiles_alike(&compiler, &large_cpp(), "cpp");
}

#[test]
fn perl_gives_the_same_answers() {
    let Some(perl) = need("perl", "perl") else {
        return;
    };
    let program = r#"
        my (%count, @lines);
        for my $i (1 .. 200000) { my $w = "w" . ($i * 7919 % 4999); $count{$w}{$i % 17}++; push @lines, "$w:$i" if $i % 3 }
        my $text = join "\n", sort @lines;
        my $hits = () = $text =~ /w(\d+)5:(\d*7)\b/g;
        my @top = sort { keys %{$count{$b}} <=> keys %{$count{$a}} || $a cmp $b } keys %count;
        $text =~ s/(\d)\1/<$1>/g;
        print "$hits @top[0..9] ", length($text), "\n";"#;
    same_output_as_without(
        &perl,
        |command| {
            command.env("PERL_HASH_SEED", "0").args(["-e", program]);
        },
        LIMIT,
    );
}

#[test]
fn node_gives_the_same_answers() {
    let Some(node) = need("node", "nodejs") else {
        return;
    };
    let program = r#"
        const { Worker, isMainThread, parentPort } = require('worker_threads');
        const work = n => { const m = new Map(); for (let i = 0; i < n; i++) m.set('k' + i * 7919 % 50021, [i, String(i).repeat(i % 5)]);
            const b = Buffer.alloc(1 << 20, 'xyz'); return JSON.stringify([...m.values()]).length + b[12345] + require('zlib').deflateSync(b).length; };
        if (isMainThread) { const n = 3; let sum = work(100000), left = n;
            for (let i = 0; i < n; i++) new Worker(__filename).on('message', v => { sum += v; if (--left == 0) console.log(sum); }); }
        else parentPort.postMessage(work(50000));"#;
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let file = scratch.path().join("program.js");
    std::fs::write(&file, program).expect("the program");
    same_output_as_without(
        &node,
        |command| {
            command.arg(&file);
        },
        LIMIT,
    );
}

#[test]
fn a_java_program_gives_the_same_answers() {
    let Some(java) = need("java", "default-jdk-headless") else {
        return;
    };
    let Some(_compiler) = need("javac", "default-jdk-headless") else {
        return;
    };
    let program = r#"
        import java.nio.*; import java.util.*; import java.util.concurrent.*; import java.util.zip.*;
        public class Program {
            static long work(int seed) throws Exception {
                Map<String, List<Integer>> map = new HashMap<>();
                for (int i = 0; i < 100000; i++) map.computeIfAbsent("k" + (i * 31 + seed) % 5003, k -> new ArrayList<>()).add(i);
                long sum = 0;
                for (int round = 0; round < 50; round++) {
                    ByteBuffer direct = ByteBuffer.allocateDirect(100000 + round);
                    direct.putLong(100, seed); sum += direct.getLong(100);
                    Deflater deflater = new Deflater(); deflater.setInput(new byte[50000]); deflater.finish();
                    sum += deflater.deflate(new byte[1000]); deflater.end();
                }
                for (List<Integer> list : map.values()) sum += list.size();
                return sum;
            }
            public static void main(String[] a) throws Exception {
                ExecutorService pool = Executors.newFixedThreadPool(6); List<Future<Long>> all = new ArrayList<>();
                for (int i = 0; i < 12; i++) { int seed = i; all.add(pool.submit(() -> work(seed))); }
                long sum = 0; for (Future<Long> one : all) sum += one.get();
                pool.shutdown(); System.out.println(sum);
            }
        }"#;
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let file = scratch.path().join("Program.java");
    std::fs::write(&file, program).expect("the program");
    same_output_as_without(
        &java,
        |command| {
            command.arg("-Xmx256m").arg(&file);
        },
        LIMIT,
    );
}
