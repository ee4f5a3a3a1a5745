//! Numbers as plots write them, and where a logarithmic axis has them.

/// A number with three digits, thousands as k and M.
pub(super) fn tick(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let value = if value.abs() < 1e3 { three_digits(value) } else { value };
    format!("{}{unit}", (value * 1_000.0).round() / 1_000.0)
}

/// A size in bytes, which doubles from tick to tick.
pub(super) fn binary_tick(bytes: f64) -> String {
    let (value, unit) = match bytes.abs() {
        size if size >= 1_048_576.0 => (bytes / 1_048_576.0, " Mi"),
        size if size >= 1_024.0 => (bytes / 1_024.0, " Ki"),
        _ => (bytes, ""),
    };
    format!("{}{unit}", (value * 100.0).round() / 100.0)
}

/// A number above a bar: three digits, or more where they are whole.
pub(super) fn value(number: f64) -> String {
    let decimals = match number.abs() {
        size if size >= 1e4 => return tick(three_digits(number)),
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{number:.decimals$}")
}

fn three_digits(number: f64) -> f64 {
    if number == 0.0 {
        return number;
    }
    let unit = 10f64.powf(number.abs().log10().floor() - 2.0);
    (number / unit).round() * unit
}

/// Round numbers on a logarithmic axis from `low` to `top`: 1, 2, 5 and their tenfolds, and others
/// between them where these are few.
pub(super) fn log_ticks(low: f64, top: f64) -> Vec<f64> {
    const FEW: usize = 4;
    let decades = low.log10().floor() as i32..=top.log10().ceil() as i32;
    let among = |digits: &[f64]| -> Vec<f64> {
        let all = decades.clone().flat_map(|power| digits.iter().map(move |at| (at, power)));
        let all = all.map(|(digit, power)| digit * 10f64.powi(power));
        all.filter(|tick| (low..=top).contains(tick)).collect()
    };
    let ticks = among(&[1.0, 2.0, 5.0]);
    if ticks.len() >= FEW { ticks } else { among(&[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_of_a_bar_has_three_digits() {
        for (number, shown) in [
            (2_243_817.0, "2.24M"),
            (291_480.0, "291k"),
            (9_500.0, "9500"),
            (15.43, "15.4"),
            (4.017, "4.02"),
            (0.0, "0.00"),
        ] {
            assert_eq!(value(number), shown);
        }
    }

    #[test]
    fn ticks_have_three_digits_and_sizes_their_units() {
        for (number, shown) in
            [(471_859.0, "472k"), (12_500.0, "12.5k"), (9_500.0, "9500"), (0.25, "0.25")]
        {
            assert_eq!(tick(number), shown);
        }
        let sizes = [(64.0, "64"), (32_768.0, "32 Ki"), (8_388_608.0, "8 Mi"), (1_536.0, "1.5 Ki")];
        for (bytes, shown) in sizes {
            assert_eq!(binary_tick(bytes), shown);
        }
    }

    #[test]
    fn a_logarithmic_axis_has_round_numbers() {
        assert_eq!(log_ticks(170e3, 5.1e6), [200e3, 500e3, 1e6, 2e6, 5e6]);
        assert_eq!(log_ticks(5.2, 41.0), [7.0, 10.0, 15.0, 20.0, 30.0, 40.0]);
    }
}
