//! A Rust file as the checks see it: code without comments and literals, and the comments.
//!
//! ```text
//!   text   let a = "unsafe"; // unsafe     code   let a = "      ";
//! ```
//!
//! Code keeps its length and its line breaks, so a place in one is the same place in the other.
//! Not a parser: it knows comments, literals and matching brackets, which is enough for the rules.

use std::collections::BTreeSet;
use std::ops::Range;

/// A comment and the line it starts on (from 1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comment {
    /// Line, from 1.
    pub line: usize,
    /// With its slashes.
    pub text: String,
}

/// A Rust file.
#[derive(Debug)]
pub struct Source {
    /// From the workspace's folder, with `/`.
    pub path: String,
    /// As it is on disk.
    pub text: String,
    /// Comments and contents of literals are spaces.
    pub code: String,
    /// Every comment, in order.
    pub comments: Vec<Comment>,
}

impl Source {
    /// Takes a file apart.
    pub fn new(path: &str, text: &str) -> Self {
        let mut split = Split {
            bytes: text.as_bytes(),
            code: text.as_bytes().to_vec(),
            comments: Vec::new(),
            at: 0,
        };
        split.run(text);
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code: String::from_utf8(split.code).expect("only whole literals are blanked"),
            comments: split.comments,
        }
    }

    /// The code without items that exist in tests only.
    pub fn code_without_tests(&self) -> String {
        let mut code = self.code.clone().into_bytes();
        for item in self.test_items() {
            blank(&mut code[item]);
        }
        String::from_utf8(code).expect("whole items are blanked")
    }

    /// Lines, from 0, of items that exist in tests only.
    pub fn test_lines(&self) -> BTreeSet<usize> {
        let lines = |item: Range<usize>| self.line_of(item.start) - 1..self.line_of(item.end - 1);
        self.test_items().flat_map(lines).collect()
    }

    fn test_items(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.code.match_indices("#[cfg(").filter_map(|(start, _)| {
            let rest = &self.code[start + "#[cfg(".len()..];
            let test = rest.starts_with("test") || rest.starts_with("all(test");
            test.then(|| start..item_end(&self.code, start))
        })
    }

    /// Whether the file belongs to a test or a bench, by its name or its folder.
    pub fn is_test(&self) -> bool {
        let (folder, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        let stem = name.trim_end_matches(".rs");
        let by_name = ["_tests", "_loom", "_vectors"];
        stem == "tests"
            || by_name.iter().any(|ending| stem.ends_with(ending))
            || self.path.starts_with("tests/")
            || folder.contains("/tests")
            || folder.contains("/benches")
    }

    /// Line of a place in the text, from 1.
    pub fn line_of(&self, at: usize) -> usize {
        line_of(&self.text, at)
    }
}

/// Line of a place, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
}

/// Places of `word` in `code` where it stands alone.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let bytes = code.as_bytes();
    code.match_indices(word).filter_map(move |(at, _)| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        (!part(before) && !part(bytes.get(at + word.len()))).then_some(at)
    })
}

/// Where the item whose attributes start at `start` ends.
fn item_end(code: &str, start: usize) -> usize {
    let bytes = code.as_bytes();
    let (mut round, mut curly) = (0_i32, 0_i32);
    for (at, byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round -= 1,
            b'{' => curly += 1,
            b'}' => {
                curly -= 1;
                // An item's body, or the end of what surrounds it (a field or a variant).
                if curly == 0 && round == 0 {
                    return at + 1;
                }
                if curly < 0 {
                    return at;
                }
            }
            b';' if round == 0 && curly == 0 => return at + 1,
            _ => {}
        }
    }
    bytes.len()
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

/// One pass over a file.
struct Split<'a> {
    bytes: &'a [u8],
    code: Vec<u8>,
    comments: Vec<Comment>,
    at: usize,
}

impl Split<'_> {
    fn run(&mut self, text: &str) {
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            let in_word = self.at > 0 && {
                let before = self.bytes[self.at - 1];
                before.is_ascii_alphanumeric() || before == b'_'
            };
            let end = match rest {
                [b'/', b'/', ..] => self.comment(text, line_length(rest)),
                [b'/', b'*', ..] => self.comment(text, block_length(rest)),
                [b'"', ..] => self.literal(1, string_length(&rest[1..])),
                [b'r', b'"' | b'#', ..] if !in_word => self.raw(rest),
                [b'b' | b'c', b'r', b'"' | b'#', ..] if !in_word => {
                    self.at += 1;
                    self.raw(&self.bytes[self.at..])
                }
                [b'\'', ..] => match char_length(rest) {
                    Some(length) => self.literal(1, length),
                    None => self.at + 1,
                },
                _ => self.at + 1,
            };
            self.at = end;
        }
    }

    fn comment(&mut self, text: &str, length: usize) -> usize {
        let end = self.at + length;
        self.comments.push(Comment {
            line: line_of(text, self.at),
            text: text[self.at..end].to_owned(),
        });
        blank(&mut self.code[self.at..end]);
        end
    }

    /// Blanks `length` bytes after `skip` bytes of opening; one more closes.
    fn literal(&mut self, skip: usize, length: usize) -> usize {
        let start = self.at + skip;
        let end = (start + length).min(self.bytes.len());
        blank(&mut self.code[start..end]);
        (end + 1).min(self.bytes.len())
    }

    fn raw(&mut self, rest: &[u8]) -> usize {
        let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
        if rest.get(1 + hashes) != Some(&b'"') {
            return self.at + 1;
        }
        let open = 2 + hashes;
        let close: Vec<u8> = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
        let body = &rest[open..];
        let length = body
            .windows(close.len())
            .position(|window| window == close)
            .unwrap_or(body.len());
        self.literal(open, length) + hashes
    }
}

fn line_length(rest: &[u8]) -> usize {
    rest.iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(rest.len())
}

fn block_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a string's body up to its closing quote.
fn string_length(body: &[u8]) -> usize {
    let mut at = 0;
    while at < body.len() {
        match body[at] {
            b'\\' => at += 2,
            b'"' => return at,
            _ => at += 1,
        }
    }
    body.len()
}

/// Length of a character's body; `None` for a lifetime.
fn char_length(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        let close = rest[3..].iter().position(|byte| *byte == b'\'')?;
        return Some(close + 2);
    }
    // A character is at most four bytes; a lifetime has no quote behind its first letter.
    let text = std::str::from_utf8(&rest[1..rest.len().min(9)]).unwrap_or_else(|error| {
        std::str::from_utf8(&rest[1..1 + error.valid_up_to()]).unwrap_or("")
    });
    let first = text.chars().next()?.len_utf8();
    (rest.get(1 + first) == Some(&b'\'')).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        let source = Source::new("a.rs", text);
        assert_eq!(source.code.len(), text.len(), "places stay the same");
        source.code
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        assert_eq!(code("a // unsafe\nb"), "a          \nb");
        assert_eq!(code("/* x /* y */ z */b"), "                 b");
        assert_eq!(code(r#"f("un\"safe", 'u')"#), r#"f("        ", ' ')"#);
        assert_eq!(code("r#\"a\"b\"# c"), "r#\"   \"# c");
        assert_eq!(code("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
        assert_eq!(code(r"['\'', 'b']"), r"['  ', ' ']");
        assert_eq!(code("b\"//\" + c"), "b\"  \" + c");
    }

    #[test]
    fn comments_are_kept_with_their_lines() {
        let source = Source::new("a.rs", "//! top\nfn a() {} // end\n");
        let lines: Vec<_> = source.comments.iter().map(|c| (c.line, &*c.text)).collect();
        assert_eq!(lines, [(1, "//! top"), (2, "// end")]);
    }

    #[test]
    fn items_of_tests_are_taken_out_and_nothing_else() {
        let text = "use a;\n#[cfg(test)]\nmod t { use b; }\n#[cfg(all(test, not(loom)))]\n\
                    #[path = \"x.rs\"]\nmod u;\n#[cfg(loom)]\nuse c;\n";
        let code = Source::new("a.rs", text).code_without_tests();
        let words: Vec<_> = code.split_whitespace().collect();
        assert_eq!(words, ["use", "a;", "#[cfg(loom)]", "use", "c;"]);
    }

    #[test]
    fn a_word_is_found_only_where_it_stands_alone() {
        let found: Vec<_> = words("unsafe unsafe_code (unsafe)", "unsafe").collect();
        assert_eq!(found, [0, 20]);
    }
}
