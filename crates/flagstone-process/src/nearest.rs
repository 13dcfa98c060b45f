//! "Did you mean": the known name nearest to a misspelt one, without allocation.

/// Longest name that is compared, in bytes.
const NAME: usize = 40;
/// So many letters may be wrong, missing or too many.
const SLIPS: usize = 2;

/// The known name with the fewest slips, if there is one within [`SLIPS`] and most of its letters are right.
pub fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let named = known.map(|name| (distance(given.as_bytes(), name.as_bytes()), name));
    named
        .filter(|&(slips, name)| slips <= SLIPS && 2 * slips < name.len())
        .min_by_key(|&(slips, _)| slips)
        .map(|(_, name)| name)
}

/// Letters to change, add or leave out to make one name of the other; `usize::MAX` for longer ones.
fn distance(given: &[u8], name: &[u8]) -> usize {
    if given.len() > NAME || name.len() > NAME {
        return usize::MAX;
    }
    // Distances of the letters given so far to each beginning of the name.
    let mut row = [0; NAME + 1];
    for (at, place) in row.iter_mut().enumerate() {
        *place = at;
    }
    for (at, letter) in given.iter().enumerate() {
        let mut before = row[0];
        row[0] = at + 1;
        for (place, other) in name.iter().enumerate() {
            let changed = before + usize::from(letter != other);
            before = row[place + 1];
            row[place + 1] = changed.min(before + 1).min(row[place] + 1);
        }
    }
    row[name.len()]
}
