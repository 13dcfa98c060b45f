//! Text that may be packed by gzip or zstd, read line by line.

use crate::Error;
use crate::input::Source;
use std::io::{self, BufRead, BufReader, Read, SeekFrom};

/// Most bytes of a line; what a longer one has beyond is another line, and no event.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// zstd's window at most: 128 MiB, which is also what its own command unpacks unasked.
const WINDOW_LOG_MAX: u32 = 27;

fn open<'a>(source: &'a mut dyn Source) -> Result<Box<dyn Read + 'a>, Error> {
    source.seek(SeekFrom::Start(0))?;
    let mut magic = [0; 4];
    let mut have = 0;
    while have < magic.len() {
        match source.read(&mut magic[have..])? {
            0 => break,
            more => have += more,
        }
    }
    source.seek(SeekFrom::Start(0))?;
    Ok(match magic {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(source)),
        [0x28, 0xb5, 0x2f, 0xfd] => {
            let mut unpacked = zstd::stream::Decoder::new(source)?;
            unpacked.window_log_max(WINDOW_LOG_MAX)?;
            Box::new(unpacked)
        }
        _ => Box::new(source),
    })
}

/// The first bytes, unpacked; fewer where the rest is damaged.
pub fn head(source: &mut dyn Source, to: &mut Vec<u8>, most: usize) -> Result<(), Error> {
    // What cannot be unpacked is told by the reader that tries all of it.
    let _ = open(source)?.take(most as u64).read_to_end(to);
    Ok(())
}

/// Hands every line to `visit`, without its end. A packed file that is cut off is read as far as it
/// goes: `true` says that it was.
pub fn lines(
    source: &mut dyn Source,
    mut visit: impl FnMut(&[u8]) -> Result<(), Error>,
) -> Result<bool, Error> {
    let mut reader = BufReader::with_capacity(64 << 10, open(source)?);
    let mut bytes = Vec::new();
    let mut read = 0_u64;
    loop {
        bytes.clear();
        match (&mut reader)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut bytes)
        {
            Ok(0) => return Ok(false),
            Ok(more) => read += more as u64,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
            Err(error) => {
                return Err(Error::Foreign(format!(
                    "cannot be unpacked behind {read} bytes of text: {error}"
                )));
            }
        }
        let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        visit(line)?;
    }
}
