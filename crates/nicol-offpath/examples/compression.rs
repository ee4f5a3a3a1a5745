//! What LZ4 costs one core of this machine, for text, zeros and random bytes in blocks of 64 KiB:
//! the measurement behind `Cost::COMPRESSION` of `offpath::linefs`.
//!
//! ```text
//! cargo run --release -p nicol-offpath --example compression
//! ```

use std::time::Instant;

const BLOCK: usize = 64 << 10;
const BLOCKS: usize = 400;

fn main() {
    let mut state = 7_u64;
    let mut draw = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for content in ["text", "zeros", "random"] {
        let (mut packed, mut packing, mut unpacking) = (0, 0.0, 0.0);
        for _ in 0..BLOCKS {
            let mut block = vec![0_u8; BLOCK];
            match content {
                "text" => {
                    let mut text = String::with_capacity(BLOCK + 16);
                    while text.len() < BLOCK {
                        let bits = draw();
                        if bits & 7 == 0 {
                            text.push_str(&format!("{:08x} ", bits >> 32));
                        } else {
                            let words = ["replica ", "of ", "file ", "write ", "log ", "chunk "];
                            text.push_str(words[(bits >> 8) as usize % words.len()]);
                        }
                    }
                    block.copy_from_slice(&text.as_bytes()[..BLOCK]);
                }
                "random" => block.chunks_mut(8).for_each(|word| {
                    word.copy_from_slice(&draw().to_le_bytes());
                }),
                _ => {}
            }
            let began = Instant::now();
            let small = lz4_flex::block::compress(&block);
            packing += began.elapsed().as_secs_f64();
            packed += small.len();
            let began = Instant::now();
            let again = lz4_flex::block::decompress(&small, BLOCK);
            unpacking += began.elapsed().as_secs_f64();
            assert!(again.is_ok_and(|again| again == block), "a block survives");
        }
        let bytes = (BLOCKS * BLOCK) as f64;
        println!(
            "{content}: ratio {:.3}, compression {:.2} GB/s, decompression {:.2} GB/s",
            packed as f64 / bytes,
            bytes / packing / 1e9,
            bytes / unpacking / 1e9
        );
    }
}
