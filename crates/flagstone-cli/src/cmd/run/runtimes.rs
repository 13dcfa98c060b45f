//! Runtimes with a heap of their own, and what to try for each.
//!
//! ```text
//!   keeps   mappings   what it maps itself: outside the heap
//!           blocks     pools in blocks of one size, which malloc gives: held, whatever is free inside
//! ```

use super::reports::{Cache, Kind};

/// Where a runtime keeps its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// In memory that it maps itself: anonymous mappings in the ledger.
    Mappings,
    /// In blocks of this many bytes, or a little more, from malloc.
    Blocks(u64),
}

/// A runtime with a heap of its own.
#[derive(Debug)]
pub struct Runtime {
    /// Stable name of the rule.
    pub rule: &'static str,
    /// How names of its programs begin.
    pub programs: &'static [&'static str],
    pub keeps: Keeps,
    /// Set already if this variable is.
    pub variable: Option<&'static str>,
    /// What to set it to, where that is all of the change.
    pub value: Option<&'static str>,
    /// What to type, what it is for, what it brings and costs.
    pub change: &'static str,
    pub what: &'static str,
    pub gain: &'static str,
    pub cost: &'static str,
}

/// What gives back the pools of a runtime that keeps them to its end.
const APART: &str = "in the program: what needs much memory once, in a process of its own";
const APART_COST: &str = "a process more, and its results through a pipe or a file";

/// Those that are known.
pub const RUNTIMES: [Runtime; 9] = [
    Runtime {
        rule: "python-malloc",
        programs: &["python", "pypy", "gunicorn", "uwsgi", "celery", "uvicorn"],
        keeps: Keeps::Mappings,
        variable: Some("PYTHONMALLOC"),
        value: Some("malloc"),
        change: "PYTHONMALLOC=malloc",
        what: "Python keeps small objects in arenas that it maps itself",
        gain: "move into the ledger, and freed objects are given back",
        cost: "each small object is a call of malloc: some per cent more time",
    },
    Runtime {
        rule: "php-malloc",
        programs: &["php"],
        keeps: Keeps::Mappings,
        variable: Some("USE_ZEND_ALLOC"),
        value: Some("0"),
        change: "USE_ZEND_ALLOC=0",
        what: "PHP keeps its values in chunks that it maps itself",
        gain: "move into the ledger, and freed values are given back",
        cost: "PHP no longer drops a request's memory at once: more time; memory_limit is not kept",
    },
    Runtime {
        rule: "node-heap",
        programs: &["node", "nodejs"],
        keeps: Keeps::Mappings,
        variable: Some("NODE_OPTIONS"),
        value: None,
        change: "node --max-old-space-size=MIB",
        what: "V8 keeps JavaScript objects in a heap that it maps itself",
        gain: "come under a bound; process.memoryUsage() tells their parts",
        cost: "more garbage collections; the program ends if the bound is too low",
    },
    Runtime {
        rule: "ruby-heap",
        programs: &["ruby", "irb", "rails", "puma", "unicorn", "sidekiq"],
        keeps: Keeps::Mappings,
        variable: Some("RUBY_GC_HEAP_GROWTH_FACTOR"),
        value: Some("1.1"),
        change: "RUBY_GC_HEAP_GROWTH_FACTOR=1.1",
        what: "Ruby keeps its objects in pages of slots that it maps itself",
        gain: "grow by a tenth at a time instead of four fifths; ObjectSpace.memsize_of_all tells what lives there",
        cost: "more garbage collections: more processor time",
    },
    Runtime {
        rule: "java-heap",
        programs: &["java"],
        keeps: Keeps::Mappings,
        variable: Some("JAVA_TOOL_OPTIONS"),
        value: None,
        change: "java -Xmx… -XX:NativeMemoryTracking=summary",
        what: "the JVM keeps objects, code and metadata in mappings of its own",
        gain: "come under -Xmx; jcmd PID VM.native_memory tells their parts",
        cost: "more garbage collections; tracking costs 5 to 10 % of time",
    },
    Runtime {
        rule: "dotnet-heap",
        programs: &["dotnet"],
        keeps: Keeps::Mappings,
        variable: Some("DOTNET_GCConserveMemory"),
        value: Some("9"),
        change: "DOTNET_GCConserveMemory=9",
        what: ".NET keeps its objects in a heap that it maps itself",
        gain: "are compacted sooner; DOTNET_GCHeapHardLimit bounds them",
        cost: "more and longer garbage collections",
    },
    Runtime {
        rule: "perl-arenas",
        programs: &["perl"],
        keeps: Keeps::Blocks(4 << 10),
        variable: None,
        value: None,
        change: APART,
        what: "Perl keeps its values in arenas of 4 KiB, and gives none back before its end",
        gain: "go back when that process ends",
        cost: APART_COST,
    },
    Runtime {
        rule: "tcl-pools",
        programs: &["tclsh", "wish", "expect"],
        keeps: Keeps::Blocks(16 << 10),
        variable: None,
        value: None,
        change: APART,
        what: "Tcl keeps its values in pools of 16 KiB, and gives none back before its end",
        gain: "go back when that process ends",
        cost: APART_COST,
    },
    Runtime {
        rule: "go-heap",
        programs: &[GO],
        keeps: Keeps::Mappings,
        variable: Some("GOMEMLIMIT"),
        value: None,
        change: "GOMEMLIMIT=…MiB",
        what: "Go keeps its objects in a heap that it maps itself; malloc serves its C parts alone",
        gain: "come under a bound; runtime/pprof tells who holds them",
        cost: "more garbage collections where the bound is near",
    },
];

/// Stands for any program that the Go linker made, whatever its name.
const GO: &str = "a Go program";

/// That of a program, by its name; `is_go` says that it was written in Go.
pub fn runtime_of(program: &str, is_go: bool) -> Option<&'static Runtime> {
    let program = if is_go { GO } else { program };
    let is_of = |runtime: &&Runtime| {
        runtime
            .programs
            .iter()
            .any(|name| program.starts_with(name))
    };
    RUNTIMES.iter().find(is_of)
}

impl Runtime {
    /// Bytes of its own heap, and where they are, in words.
    pub fn bytes(&self, kinds: &[Kind], caches: &[Cache]) -> (u64, String) {
        match self.keeps {
            Keeps::Mappings => {
                let bytes = Kind::bytes_of(kinds, Kind::ANONYMOUS);
                (bytes, "of anonymous mappings".to_owned())
            }
            Keeps::Blocks(least) => {
                let is_pool = |cache: &&Cache| {
                    !cache.internal && (least..=least + least / 4).contains(&cache.object_size)
                };
                let pools = || caches.iter().filter(is_pool);
                let held = |cache: &Cache| cache.active * cache.object_size;
                let most = pools().max_by_key(|cache| held(cache));
                let name = most.map_or("no cache", |cache| cache.name.as_str());
                (pools().map(held).sum(), format!("in {name}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_by_their_names_and_go_by_what_it_is() {
        let rule = |program, is_go| runtime_of(program, is_go).map(|runtime| runtime.rule);
        assert_eq!(rule("python3.11", false), Some("python-malloc"));
        assert_eq!(rule("tclsh8.6", false), Some("tcl-pools"));
        assert_eq!(rule("server", false), None);
        assert_eq!(rule("server", true), Some("go-heap"));
    }
}
