//! Sizes and times as descriptions write them.

/// A size such as "64B", "256KiB", "16MiB", or KB, MB and GB.
pub(super) fn size(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 7] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
    UNITS.iter().find_map(|(unit, scale)| {
        text.strip_suffix(unit)?.trim().parse::<u64>().ok()?.checked_mul(*scale)
    })
}

/// A time such as "200ns", "1.5us", in nanoseconds.
pub(super) fn time(text: &str) -> Option<f64> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6)];
    units.iter().find_map(|(unit, scale)| {
        Some(text.strip_suffix(unit)?.trim().parse::<f64>().ok()? * scale)
    })
}

/// A share below 1 in percent, with as many digits as tell it from all.
pub(super) fn percent_below(share: f64) -> String {
    let mut written = (0..12).map(|digits| format!("{:.digits$}", share * 1e2));
    let told = |one: &String| one.parse::<f64>().is_ok_and(|one| one < 100.0);
    written.find(told).unwrap_or_else(|| "less than 100".to_owned())
}
