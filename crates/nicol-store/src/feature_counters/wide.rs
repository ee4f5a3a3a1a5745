//! The steps of [`FeatureCounters`] with AVX2: two vectors hold all workers.

use std::arch::x86_64::{
    __m256i, _mm_extract_epi16, _mm_min_epu16, _mm_minpos_epu16, _mm256_adds_epu16,
    _mm256_and_si256, _mm256_andnot_si256, _mm256_castsi256_si128, _mm256_cmpeq_epi16,
    _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_min_epu16, _mm256_movemask_epi8,
    _mm256_or_si256, _mm256_packs_epi16, _mm256_permute4x64_epi64, _mm256_set1_epi16,
    _mm256_setzero_si256, _mm256_storeu_si256, _mm256_xor_si256,
};

use super::{Best, FeatureCounters, LANES, Lanes, Touches};

#[target_feature(enable = "avx2")]
fn load(lanes: &Lanes) -> [__m256i; 2] {
    let (low, high) = lanes.split_at(LANES / 2);
    // SAFETY: each half has 16 values of two bytes; the load needs no alignment.
    unsafe { [_mm256_loadu_si256(low.as_ptr().cast()), _mm256_loadu_si256(high.as_ptr().cast())] }
}

#[target_feature(enable = "avx2")]
fn sums(counters: &FeatureCounters, request: Touches<'_>) -> [__m256i; 2] {
    let zero = _mm256_setzero_si256();
    let (mut low, mut high) = (zero, zero);
    counters.each_row(request, |row, against, weight| {
        let weight = _mm256_set1_epi16(weight.cast_signed());
        let (row, against) = (load(row), load(against));
        let absent =
            |half: usize| _mm256_cmpeq_epi16(_mm256_and_si256(row[half], against[half]), zero);
        let (first, second) = (absent(0), absent(1));
        low = _mm256_adds_epu16(low, _mm256_andnot_si256(first, weight));
        high = _mm256_adds_epu16(high, _mm256_andnot_si256(second, weight));
    });
    [low, high]
}

/// [`FeatureCounters::ranks`].
#[target_feature(enable = "avx2")]
pub(super) fn ranks(counters: &FeatureCounters, request: Touches<'_>) -> Lanes {
    let mut ranks = Lanes::default();
    store(&mut ranks, sums(counters, request));
    ranks
}

#[target_feature(enable = "avx2")]
fn store(lanes: &mut Lanes, [low, high]: [__m256i; 2]) {
    let (first, second) = lanes.split_at_mut(LANES / 2);
    // SAFETY: each half has 16 values of two bytes; the store needs no alignment.
    unsafe {
        _mm256_storeu_si256(first.as_mut_ptr().cast(), low);
        _mm256_storeu_si256(second.as_mut_ptr().cast(), high);
    }
}

/// The least of 32 unsigned values.
#[target_feature(enable = "avx2")]
fn least(low: __m256i, high: __m256i) -> u16 {
    let both = _mm256_min_epu16(low, high);
    let eight = _mm_min_epu16(_mm256_castsi256_si128(both), _mm256_extracti128_si256::<1>(both));
    _mm_extract_epi16::<0>(_mm_minpos_epu16(eight)) as u16
}

/// A bit for each of 32 values of which all bits are set, none for those of which none is.
#[target_feature(enable = "avx2")]
fn bits(low: __m256i, high: __m256i) -> u32 {
    // Packing works within halves; the permutation brings them into their order.
    let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(low, high));
    _mm256_movemask_epi8(packed).cast_unsigned()
}

/// [`FeatureCounters::best`].
#[target_feature(enable = "avx2")]
pub(super) fn best(
    counters: &FeatureCounters,
    request: Touches<'_>,
    queued: &Lanes,
    longest: u16,
) -> Best {
    let [low, high] = sums(counters, request);
    let (one, all) = (_mm256_set1_epi16(1), _mm256_set1_epi16(-1));
    let ([first, second], longest) = (load(queued), _mm256_set1_epi16(longest.cast_signed()));
    let open =
        [first, second].map(|queued| _mm256_cmpeq_epi16(_mm256_min_epu16(queued, longest), queued));
    let low = _mm256_and_si256(_mm256_adds_epu16(low, one), open[0]);
    let high = _mm256_and_si256(_mm256_adds_epu16(high, one), open[1]);
    // The highest is the least of the complements.
    let highest = !least(_mm256_xor_si256(low, all), _mm256_xor_si256(high, all));
    if highest == 0 {
        return Best::default();
    }
    let wanted = _mm256_set1_epi16(highest.cast_signed());
    let (low, high) = (_mm256_cmpeq_epi16(low, wanted), _mm256_cmpeq_epi16(high, wanted));
    let tied = bits(low, high);
    let first = _mm256_or_si256(first, _mm256_andnot_si256(low, all));
    let second = _mm256_or_si256(second, _mm256_andnot_si256(high, all));
    let wanted = _mm256_set1_epi16(least(first, second).cast_signed());
    let shortest = bits(_mm256_cmpeq_epi16(first, wanted), _mm256_cmpeq_epi16(second, wanted));
    Best { rank: highest - 1, tied, shortest: shortest & tied }
}
