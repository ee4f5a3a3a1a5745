//! Coordinates, their geohashes and their distances, as Redis computes them.

use crate::transactions::work::Stop;

/// Bits of each of the two coordinates in a hash.
const BITS: u32 = 26;
/// Cells of each coordinate.
const CELLS: f64 = (1_u64 << BITS) as f64;
/// The most of a latitude that can be indexed, in degrees: that of a square map (EPSG:900913).
const LATITUDE_MAX: f64 = 85.051_128_78;
const LONGITUDE_MAX: f64 = 180.0;
/// The latitudes of a geohash as others write it.
const POLE: f64 = 90.0;
/// The radius of the earth that Redis computes with.
const EARTH_METERS: f64 = 6_372_797.560_856;

/// A place on earth, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    pub longitude: f64,
    pub latitude: f64,
}

impl Place {
    /// Whether it can be indexed.
    pub fn is_valid(self) -> bool {
        self.longitude.abs() <= LONGITUDE_MAX && self.latitude.abs() <= LATITUDE_MAX
    }

    /// Its hash of 52 bits: those of the latitude and of the longitude by turns.
    pub fn hash(self) -> u64 {
        self.hash_up_to(LATITUDE_MAX)
    }

    fn hash_up_to(self, latitude_max: f64) -> u64 {
        let cell = |at: f64, max: f64| ((at + max) / (2.0 * max) * CELLS) as u32;
        spread(cell(self.latitude, latitude_max)) | spread(cell(self.longitude, LONGITUDE_MAX)) << 1
    }

    /// The centre of the cell of a score.
    pub fn of(score: f64) -> Self {
        // A score that is no geohash is taken as Redis on x86 takes it.
        let hash = if score < 0.0 { score as i64 as u64 } else { score as u64 };
        let centre = |cell: u32, max: f64| {
            let edge = |cell: f64| -max + cell / CELLS * (2.0 * max);
            ((edge(cell.into()) + edge(f64::from(cell) + 1.0)) / 2.0).clamp(-max, max)
        };
        Self {
            longitude: centre(gather(hash >> 1), LONGITUDE_MAX),
            latitude: centre(gather(hash), LATITUDE_MAX),
        }
    }

    /// The 11 letters of a geohash as others write it, the last one always 0.
    pub fn letters(self) -> String {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let hash = self.hash_up_to(POLE);
        let letter = |place: u32| match (2 * BITS).checked_sub(5 * (place + 1)) {
            Some(shift) => char::from(LETTERS[(hash >> shift & 31) as usize]),
            None => '0',
        };
        (0..11).map(letter).collect()
    }

    /// Meters between two places, along a great circle.
    pub fn distance(self, other: Self) -> f64 {
        let half = |one: f64, other: f64| ((other.to_radians() - one.to_radians()) / 2.0).sin();
        let across = half(self.longitude, other.longitude);
        if across == 0.0 {
            return self.north(other);
        }
        let along = half(self.latitude, other.latitude);
        let cosines = self.latitude.to_radians().cos() * other.latitude.to_radians().cos();
        2.0 * EARTH_METERS * (along * along + cosines * across * across).sqrt().asin()
    }

    /// Meters between two latitudes.
    pub fn north(self, other: Self) -> f64 {
        EARTH_METERS * (other.latitude.to_radians() - self.latitude.to_radians()).abs()
    }
}

/// Puts a zero before each bit.
fn spread(cell: u32) -> u64 {
    (0..u32::BITS).fold(0, |all, bit| all | u64::from(cell >> bit & 1) << (2 * bit))
}

/// The reverse of [`spread`]; what is at odd places is left out.
fn gather(hash: u64) -> u32 {
    (0..u32::BITS).fold(0, |all, bit| all | ((hash >> (2 * bit) & 1) as u32) << bit)
}

/// Reads a unit: its meters.
pub fn unit(text: &[u8]) -> Result<f64, Stop> {
    match text.to_ascii_lowercase().as_slice() {
        b"m" => Ok(1.0),
        b"km" => Ok(1_000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1_609.34),
        _ => Err(Stop::Error(b"ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// A coordinate as Redis prints it: 17 places without zeros at the end.
pub fn coordinate(degrees: f64) -> String {
    format!("{degrees:.17}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A distance as Redis prints it.
pub fn distance(length: f64) -> String {
    format!("{length:.4}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_from_their_hashes() {
        let palermo = Place { longitude: 13.361389, latitude: 38.115556 };
        let catania = Place { longitude: 15.087269, latitude: 37.502669 };
        // The values of Redis' documentation.
        assert_eq!(palermo.hash(), 3_479_099_956_230_698);
        assert_eq!(palermo.letters(), "sqc8b49rny0");
        let (one, other) = (Place::of(palermo.hash() as f64), Place::of(catania.hash() as f64));
        assert_eq!(distance(one.distance(other)), "166274.1516");
        assert!((one.longitude - palermo.longitude).abs() < 1e-5);
        assert_eq!(gather(spread(0xdead_beef)), 0xdead_beef);
        assert!(!Place { longitude: 181.0, latitude: 0.0 }.is_valid());
    }
}
