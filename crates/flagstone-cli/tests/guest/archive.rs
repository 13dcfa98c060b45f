//! A first file system for a kernel: an archive of the kind `newc`, which the kernel unpacks at its start.

use std::io::{self, Write};
use std::path::Path;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CONSOLE: u32 = 0o020_600;

/// An archive that is being written.
pub struct Archive<W: Write> {
    out: W,
    entries: u32,
}

impl<W: Write> Archive<W> {
    /// With the directories that the guest's `init` mounts on, and a console for what it says.
    pub fn new(out: W) -> io::Result<Self> {
        let mut archive = Self { out, entries: 0 };
        for name in ["bin", "dev", "proc", "sys", "tmp"] {
            archive.directory(name)?;
        }
        archive.entry("dev/console", CONSOLE, b"", (5, 1))?;
        Ok(archive)
    }

    pub fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, DIRECTORY, b"", (0, 0))
    }

    pub fn program(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.entry(name, PROGRAM, bytes, (0, 0))
    }

    /// A file of this machine under the path that it has here, with the directories above it.
    pub fn file_of_this_machine(&mut self, path: &Path) -> io::Result<()> {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for directory in above {
            let name = directory.to_string_lossy();
            if name.len() > 1 {
                self.directory(name.trim_start_matches('/'))?;
            }
        }
        let name = path.to_string_lossy();
        self.program(name.trim_start_matches('/'), &std::fs::read(path)?)
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8], device: (u32, u32)) -> io::Result<()> {
        self.entries += 1;
        let length = |bytes: usize| u32::try_from(bytes).expect("a file of less than 4 GiB");
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            length(data.len()),
            0,
            0,
            device.0,
            device.1,
            length(name.len() + 1),
            0,
        ];
        self.out.write_all(b"070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(b"\0")?;
        self.fill(110 + name.len() + 1)?;
        self.out.write_all(data)?;
        self.fill(data.len())
    }

    /// Up to the next multiple of four.
    fn fill(&mut self, written: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..(4 - written % 4) % 4])
    }

    pub fn end(mut self) -> io::Result<()> {
        self.entry("TRAILER!!!", 0, b"", (0, 0))?;
        self.out.flush()
    }
}
