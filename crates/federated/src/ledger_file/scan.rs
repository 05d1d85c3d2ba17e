//! Reads the bytes of a ledger file: its entries, and whether what follows them is a torn record.

use ledger::{Chain, Entry, Head, LedgerError, MAX_LINE};

/// What a ledger file holds.
#[derive(Debug)]
pub(super) struct Scan {
    /// The head of the entries that verify.
    pub(super) head: Head,
    /// How many bytes they take.
    pub(super) bytes: usize,
    /// Where the last of them begins.
    pub(super) last: usize,
    /// How many bytes follow that are no entry.
    pub(super) torn: usize,
}

/// Checks every entry. `acknowledged` are the heads in the witness files; all must lie on the chain. Behind the longest
/// of them one record may be torn, which a whole entry that does not follow is not: no crash writes one. Anywhere else what does not verify is damage. Without any witness nothing may be torn
/// but the very first record, with which nothing was acknowledged yet.
pub(super) fn scan(bytes: &[u8], acknowledged: &[Head]) -> Result<Scan, LedgerError> {
    let promised = acknowledged.iter().map(|head| head.length).max().unwrap_or_default();
    let mut chain = Chain::default();
    let mut scan = Scan { head: Head::EMPTY, bytes: 0, last: 0, torn: 0 };
    while scan.bytes < bytes.len() {
        let rest = &bytes[scan.bytes..];
        let end = rest.iter().position(|b| *b == b'\n');
        match next(rest, end, &mut chain) {
            Ok(length) => {
                scan.last = scan.bytes;
                scan.bytes += length;
            }
            Err(damage) => {
                let index = chain.head().length;
                let is_last = end.is_none_or(|end| end + 1 == rest.len()) && rest.len() <= MAX_LINE + 1;
                let unacknowledged = if acknowledged.is_empty() { index == 0 } else { index >= promised };
                if !(is_last && unacknowledged) || is_misplaced(rest, &chain) {
                    return Err(damage);
                }
                scan.torn = rest.len();
                break;
            }
        }
    }
    acknowledged.iter().try_for_each(|head| chain.check_head(head))?;
    scan.head = chain.head();
    Ok(scan)
}

/// Takes the next line, and says how many bytes it has.
fn next(rest: &[u8], end: Option<usize>, chain: &mut Chain) -> Result<usize, LedgerError> {
    let index = chain.head().length;
    let end = end.ok_or_else(|| LedgerError::damaged(index, "the line does not end"))?;
    let entry = Entry::parse(&rest[..end]).map_err(|problem| LedgerError::damaged(index, problem))?;
    chain.accept(&entry)?;
    Ok(end + 1)
}

/// Whether what follows is an entry of this ledger that belongs elsewhere, such as a line that was doubled.
fn is_misplaced(rest: &[u8], chain: &Chain) -> bool {
    let line = rest.strip_suffix(b"\n").unwrap_or(rest);
    Entry::parse(line).is_ok_and(|entry| chain.signed(&entry) && entry.previous() != chain.head().hash)
}
