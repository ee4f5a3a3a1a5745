//! What is wrong with a scan in itself, whatever was there.

use nicol_core::history::{Key, Scan};

/// What a scan returned that it cannot have, and a key that shows it; `name` puts a key in words.
pub(crate) fn contradiction(scan: &Scan, name: impl Fn(&Key) -> String) -> Option<(&Key, String)> {
    let outside = scan.found.iter().find(|read| read.key < scan.first || read.key > scan.last);
    if let Some(read) = outside {
        let key = name(&read.key);
        return Some((&read.key, format!("a scan returned key {key}, which is outside its range")));
    }
    let out_of_order = scan.found.windows(2).find(|pair| {
        let [one, other] = [&pair[0].key, &pair[1].key];
        if scan.backward { one <= other } else { one >= other }
    });
    if let Some(pair) = out_of_order {
        return Some((&pair[1].key, "a scan returned keys twice or out of order".to_owned()));
    }
    let (limit, count) = (scan.limit?, scan.found.len());
    let extra = scan.found.get(limit as usize)?;
    Some((&extra.key, format!("a scan returned {count} records, and {limit} were asked for")))
}
