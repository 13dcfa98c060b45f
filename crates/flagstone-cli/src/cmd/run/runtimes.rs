//! Runtimes whose objects do not come from malloc, and what to try for each.

/// A runtime with a heap of its own, which the ledger sees as anonymous mappings.
pub struct Runtime {
    /// Stable name of the rule.
    pub rule: &'static str,
    /// How names of its programs begin.
    pub programs: &'static [&'static str],
    /// Set already if this variable is.
    pub variable: &'static str,
    /// What to set it to, where that is all of the change.
    pub value: Option<&'static str>,
    /// What to type, what it is for, what it brings and costs.
    pub change: &'static str,
    pub what: &'static str,
    pub gain: &'static str,
    pub cost: &'static str,
}

/// Those that are known.
pub const RUNTIMES: [Runtime; 5] = [
    Runtime {
        rule: "python-malloc",
        programs: &["python", "pypy", "gunicorn", "uwsgi", "celery", "uvicorn"],
        variable: "PYTHONMALLOC",
        value: Some("malloc"),
        change: "PYTHONMALLOC=malloc",
        what: "Python keeps small objects in arenas that it maps itself",
        gain: "move into the ledger, and freed objects are given back",
        cost: "each small object is a call of malloc: some per cent more time",
    },
    Runtime {
        rule: "php-malloc",
        programs: &["php"],
        variable: "USE_ZEND_ALLOC",
        value: Some("0"),
        change: "USE_ZEND_ALLOC=0",
        what: "PHP keeps its values in chunks that it maps itself",
        gain: "move into the ledger, and freed values are given back",
        cost: "PHP no longer drops a request's memory at once: more time; memory_limit is not kept",
    },
    Runtime {
        rule: "node-heap",
        programs: &["node", "nodejs"],
        variable: "NODE_OPTIONS",
        value: None,
        change: "node --max-old-space-size=MIB",
        what: "V8 keeps JavaScript objects in a heap that it maps itself",
        gain: "come under a bound; process.memoryUsage() tells their parts",
        cost: "more garbage collections; the program ends if the bound is too low",
    },
    Runtime {
        rule: "ruby-heap",
        programs: &["ruby", "irb", "rails", "puma", "unicorn", "sidekiq"],
        variable: "RUBY_GC_HEAP_GROWTH_FACTOR",
        value: Some("1.1"),
        change: "RUBY_GC_HEAP_GROWTH_FACTOR=1.1",
        what: "Ruby keeps its objects in pages of slots that it maps itself",
        gain: "grow by a tenth at a time instead of four fifths; ObjectSpace.memsize_of_all tells what lives there",
        cost: "more garbage collections: more processor time",
    },
    Runtime {
        rule: "java-heap",
        programs: &["java"],
        variable: "JAVA_TOOL_OPTIONS",
        value: None,
        change: "java -Xmx… -XX:NativeMemoryTracking=summary",
        what: "the JVM keeps objects, code and metadata in mappings of its own",
        gain: "come under -Xmx; jcmd PID VM.native_memory tells their parts",
        cost: "more garbage collections; tracking costs 5 to 10 % of time",
    },
];

/// That of a program, by the program's name.
pub fn runtime_of(program: &str) -> Option<&'static Runtime> {
    let is_of = |runtime: &&Runtime| {
        runtime
            .programs
            .iter()
            .any(|name| program.starts_with(name))
    };
    RUNTIMES.iter().find(is_of)
}
