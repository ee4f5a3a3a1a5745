//! Coverage-guided fuzzing of the decoder and the executor of chains: see
//! [`nicol_core::chain::fuzz`] for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    nicol_core::chain::fuzz::try_requests(input);
});
