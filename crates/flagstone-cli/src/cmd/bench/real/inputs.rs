//! Inputs for real programs: text from a small generator, the same each time.

use crate::cmd::bench::child::Scale;
use crate::cmd::bench::child::heap::Dice;
use core::fmt::Write;

/// A C file of ten lines for each function.
pub fn functions(scale: Scale) -> String {
    let count = scale.pick(20_000, 2_000, 50);
    let mut dice = Dice::new(61);
    let mut text = String::from("struct pair { long a, b; struct pair *next; };\n");
    for number in 0..count {
        let [a, b, c] = [(); 3].map(|()| dice.below(1000));
        let other = dice.below(number.max(1));
        let call = match number {
            0 => "p->b".to_owned(),
            _ => format!("f{other}(p, n - 1)"),
        };
        let _ = write!(
            text,
            "long f{number}(struct pair *p, int n) {{\n  long sum{number} = {a};\n  \
             for (int i = 0; i < n && p; i++, p = p->next) {{\n    \
             if (p->a % {m} == {b}) sum{number} += p->b * {c};\n    \
             else p->a ^= sum{number} + i;\n  }}\n  \
             if (n > 0 && p) sum{number} += {call};\n  return sum{number};\n}}\n\n",
            m = b + 2
        );
    }
    text
}

/// A C++ file of class templates and containers, each with types of its own.
pub fn templates(scale: Scale) -> String {
    let count = scale.pick(24, 6, 1);
    let mut dice = Dice::new(67);
    let mut text = String::from(
        "#include <algorithm>\n#include <functional>\n#include <map>\n#include <memory>\n\
         #include <string>\n#include <tuple>\n#include <vector>\n\
         template <int N, class T> struct Chain : Chain<N - 1, std::tuple<T, int>> {\n  \
         T own; int level() { return N + Chain<N - 1, std::tuple<T, int>>::level(); }\n};\n\
         template <class T> struct Chain<0, T> { int level() { return 0; } };\n",
    );
    for number in 0..count {
        let (depth, key) = (4 + dice.below(8), dice.below(100));
        let _ = write!(
            text,
            "struct Key{number} {{ int at; bool operator<(const Key{number} &o) const {{ return at < o.at; }} }};\n\
             struct Value{number} {{ std::string name; std::vector<Key{number}> keys; }};\n\
             int use{number}(int n) {{\n  \
             std::map<Key{number}, std::unique_ptr<Value{number}>> all;\n  \
             for (int i = 0; i < n; i++) all[Key{number}{{i % {m}}}] = std::make_unique<Value{number}>();\n  \
             std::vector<std::pair<int, Key{number}>> order;\n  \
             for (auto &one : all) order.emplace_back(one.second->keys.size(), one.first);\n  \
             std::sort(order.begin(), order.end());\n  \
             std::function<int(int)> more = [&](int x) {{ return x + (int)order.size(); }};\n  \
             Chain<{depth}, Value{number}> chain;\n  return more(chain.level());\n}}\n",
            m = key + 1
        );
    }
    text
}

/// Statements for a database in memory.
pub fn queries(scale: Scale) -> String {
    let rows = scale.pick(200_000, 30_000, 200);
    let count =
        format!("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})");
    format!(
        "CREATE TABLE people(id INTEGER PRIMARY KEY, name TEXT, town TEXT, born INTEGER);\n\
         CREATE TABLE orders(id INTEGER PRIMARY KEY, person INTEGER, what TEXT, price REAL);\n\
         {count} INSERT INTO people SELECT i, printf('name %05d', i * 7919 % 10007), \
         printf('town %03d', i * 31 % 499), 1900 + i * 17 % 120 FROM n;\n\
         {count} INSERT INTO orders SELECT i, 1 + i * 7907 % {rows}, hex(i * 2654435761), \
         (i * 97 % 10007) / 7.0 FROM n;\n\
         CREATE INDEX by_town ON people(town, born);\nCREATE INDEX by_person ON orders(person);\n\
         SELECT town, count(*), avg(price), group_concat(what, ',') FROM people \
         JOIN orders ON orders.person = people.id GROUP BY town ORDER BY 3 DESC LIMIT 20;\n\
         SELECT what, count(*) FROM (SELECT substr(what, 1, 3) AS what FROM orders) GROUP BY what \
         ORDER BY 2 DESC LIMIT 20;\n\
         UPDATE orders SET what = what || ' ' || id WHERE price > 700;\n\
         DELETE FROM people WHERE born % 3 = 0;\n\
         SELECT name, sum(price) OVER (PARTITION BY town ORDER BY born) FROM people \
         JOIN orders ON orders.person = people.id ORDER BY 2 DESC LIMIT 10;\n"
    )
}

/// Pages of text, curves and shades in PostScript.
pub fn pages(scale: Scale) -> String {
    let pages = scale.pick(50, 10, 1);
    let mut dice = Dice::new(71);
    let mut text = String::from("%!PS\n");
    for page in 0..pages {
        let _ = writeln!(
            text,
            "/Times-Roman findfont {} scalefont setfont",
            7 + page % 5
        );
        for line in 0..70 {
            let _ = writeln!(text, "40 {} moveto", 780 - line * 10);
            let words: Vec<String> = (0..10)
                .map(|_| format!("{:x}", dice.next() >> (16 + dice.below(40))))
                .collect();
            let _ = writeln!(text, "({}) show", words.join(" "));
        }
        for _ in 0..150 {
            let at: Vec<String> = (0..8).map(|_| dice.below(600).to_string()).collect();
            let _ = writeln!(
                text,
                "0.{} setgray newpath {} {} moveto {} curveto stroke",
                dice.below(10),
                at[0],
                at[1],
                at[2..].join(" ")
            );
        }
        text.push_str("showpage\n");
    }
    text
}

/// A history for `git fast-import`: each commit changes lines of three files.
pub fn history(scale: Scale) -> String {
    let commits = scale.pick(3000, 500, 10);
    let files = scale.pick(200, 60, 5);
    let mut dice = Dice::new(73);
    let line = |dice: &mut Dice| {
        format!(
            "  value_{:x} = compute({});",
            dice.next() >> 30,
            dice.below(9999)
        )
    };
    let mut all: Vec<Vec<String>> = (0..files)
        .map(|_| (0..120).map(|_| line(&mut dice)).collect())
        .collect();
    let mut text = String::new();
    for commit in 0..commits {
        let when = 1_600_000_000u64 + commit as u64 * 3600;
        let words = format!("change {commit}\n");
        let _ = write!(
            text,
            "commit refs/heads/main\ncommitter A U Thor <author@example.org> {when} +0000\n\
             data {}\n{words}",
            words.len()
        );
        let changed: Vec<usize> = match commit {
            0 => (0..files).collect(),
            _ => (0..3).map(|_| dice.below(files)).collect(),
        };
        for file in changed {
            for _ in 0..4 {
                let at = dice.below(all[file].len());
                all[file][at] = line(&mut dice);
            }
            let body = all[file].join("\n");
            let _ = write!(
                text,
                "M 100644 inline source/part{file:03}.txt\ndata {}\n{body}\n",
                body.len()
            );
        }
        text.push('\n');
    }
    text.push_str("done\n");
    text
}
