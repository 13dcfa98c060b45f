//! `host --capture FILE.tar`: a copy of every file `host` looks at, to be read elsewhere.
//!
//! The archive keeps the kernel's paths, so unpacking it gives a tree for `--root DIR`; the file
//! itself is accepted by `--root` too. A manifest at the top says how it was made and what could
//! not be read, so that an answer from the capture names the same gaps as an answer made here.

use crate::source::{Absent, MANIFEST, Tree, sys_slab, topology};
use rayon::prelude::*;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::gather::SYSCTLS;

/// Files outside `/sys/kernel/slab` and the topology.
const FILES: [&str; 6] = [
    "proc/slabinfo",
    "proc/zoneinfo",
    "proc/buddyinfo",
    "proc/meminfo",
    "proc/cmdline",
    "proc/sys/kernel/osrelease",
];

/// What a capture holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Files written, without the manifest and links.
    pub files: usize,
    /// Paths that exist but could not be read.
    pub denied: Vec<String>,
}

/// Copies what `host` reads below `tree` into a tar archive at `to`.
///
/// `page_size` goes into the manifest. Boot parameters that do not concern slabs are left out of
/// the copied command line: it may hold secrets, and nothing here needs it.
///
/// # Errors
/// One line naming `to` and the reason; an unreadable source file is not an error but is listed.
pub fn write(tree: &Tree, to: &Path, page_size: Option<usize>) -> Result<Summary, String> {
    let fail = |error: io::Error| format!("{}: {error}", to.display());
    let file = File::create(to).map_err(fail)?;
    let mut builder = tar::Builder::new(BufWriter::new(file));
    let summary = fill(tree, &mut builder, page_size).map_err(fail)?;
    let mut file = builder.into_inner().map_err(fail)?;
    file.flush().map_err(fail)?;
    Ok(summary)
}

fn fill<W: Write>(
    tree: &Tree,
    builder: &mut tar::Builder<W>,
    page_size: Option<usize>,
) -> io::Result<Summary> {
    let mut paths: Vec<String> = FILES
        .iter()
        .chain(&SYSCTLS)
        .map(|&path| path.to_owned())
        .collect();
    paths.extend(topology::paths(tree));
    let mut links = Vec::new();
    let mut denied = Vec::new();
    match tree.list(sys_slab::DIR) {
        Ok(entries) => {
            for (name, target) in entries {
                match target {
                    Some(target) => links.push((format!("{}/{name}", sys_slab::DIR), target)),
                    None => paths.extend(
                        sys_slab::FILES
                            .iter()
                            .map(|f| format!("{}/{name}/{f}", sys_slab::DIR)),
                    ),
                }
            }
        }
        Err(Absent::Missing) => {}
        Err(_) => denied.push(sys_slab::DIR.to_owned()),
    }
    let texts: Vec<(String, Result<String, Absent>)> = paths
        .into_par_iter()
        .map(|path| {
            let text = tree.text(&path);
            (path, text)
        })
        .collect();
    let mut files = Vec::new();
    for (path, text) in texts {
        match text {
            Ok(text) => files.push((path, text)),
            Err(Absent::Missing) => {}
            Err(_) => denied.push(path),
        }
    }
    collapse_slab_directory(&mut denied);
    append(builder, MANIFEST, &manifest(page_size, &denied))?;
    for (path, text) in &files {
        let text = if path == "proc/cmdline" {
            &slab_words(text)
        } else {
            text
        };
        append(builder, path, text)?;
    }
    for (path, target) in &links {
        let mut header = header(0);
        header.set_entry_type(tar::EntryType::Symlink);
        builder.append_link(&mut header, path, target)?;
    }
    Ok(Summary {
        files: files.len(),
        denied,
    })
}

/// Thousands of denied cache files are one fact: the directory's files are for root.
fn collapse_slab_directory(denied: &mut Vec<String>) {
    let inside = |path: &String| path.starts_with(sys_slab::DIR);
    if denied.iter().any(inside) {
        denied.retain(|path| !inside(path));
        denied.push(sys_slab::DIR.to_owned());
    }
}

fn manifest(page_size: Option<usize>, denied: &[String]) -> String {
    let mut text = format!(
        "format flagstone-capture/1\nby flagstone {}\n",
        env!("CARGO_PKG_VERSION")
    );
    if let Some(bytes) = page_size {
        text.push_str(&format!("page_size {bytes}\n"));
    }
    for path in denied {
        text.push_str(&format!("denied {path}\n"));
    }
    text
}

/// The slab parameters of a command line, as they were spelt.
fn slab_words(cmdline: &str) -> String {
    let slab = |word: &&str| word.starts_with("slab_") || word.starts_with("slub_");
    let kernel = cmdline.split_whitespace().take_while(|word| *word != "--");
    kernel.filter(slab).collect::<Vec<_>>().join(" ") + "\n"
}

/// Owner, times and modes are fixed so that equal hosts give equal captures.
fn header(size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    header
}

fn append<W: Write>(builder: &mut tar::Builder<W>, path: &str, text: &str) -> io::Result<()> {
    builder.append_data(&mut header(text.len() as u64), path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slab_parameters_of_the_kernel_are_copied() {
        assert_eq!(
            slab_words("root=/dev/x token=secret slub_max_order=4 slab_nomerge -- slab_x=1\n"),
            "slub_max_order=4 slab_nomerge\n"
        );
    }

    #[test]
    fn denied_cache_files_are_one_line() {
        let mut denied = vec![
            "proc/slabinfo".to_owned(),
            "sys/kernel/slab/a/order".to_owned(),
            "sys/kernel/slab/b/order".to_owned(),
        ];
        collapse_slab_directory(&mut denied);
        assert_eq!(denied, ["proc/slabinfo", "sys/kernel/slab"]);
    }
}
