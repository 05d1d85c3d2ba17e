//! Tests against a slow reference: the layout bit by bit, and AES one block at a time.

use aes::{
    Aes256, Aes256Enc,
    cipher::{BlockCipherEncrypt, KeyInit},
};
use pulp::{Scalar, Simd};
use zeroize::ZeroizeOnDrop;

use super::{
    packing::{Pack, Unpack},
    *,
};
use crate::entropy::{Entropy, SimulatedEntropy};

/// The lanes of a packed vector: it is added to nothing.
fn unpacked(packed: &[u8], bits: u32) -> Vec<u32> {
    let mut lanes = vec![0; packed.len() * 8 / bits as usize];
    add_packed(&mut lanes, packed, bits).unwrap();
    reduce(&mut lanes, bits).unwrap();
    lanes
}

/// Where bit j of a lane lies: the byte, and the bit in it.
fn place(lane: usize, j: usize, bits: usize) -> (usize, usize) {
    let (block, i, l) = (lane / 1024, lane % 1024 / 32, lane % 32);
    let bit = i * bits + j;
    let word = block * 32 * bits + bit / 32 * 32 + l;
    (4 * word + bit % 32 / 8, bit % 8)
}

fn slow_unpack(packed: &[u8], bits: usize) -> Vec<u32> {
    let lane = |lane| {
        (0..bits).fold(0, |value, j| {
            let (byte, bit) = place(lane, j, bits);
            value | u32::from(packed[byte] >> bit & 1) << j
        })
    };
    (0..packed.len() * 8 / bits).map(lane).collect()
}

fn slow_pack(lanes: &[u32], bits: usize) -> Vec<u8> {
    let mut packed = vec![0; lanes.len() * bits / 8];
    for (lane, value) in lanes.iter().enumerate() {
        for j in 0..bits {
            let (byte, bit) = place(lane, j, bits);
            packed[byte] |= ((value >> j & 1) as u8) << bit;
        }
    }
    packed
}

/// The mask of blocks of a vector.
fn slow_mask(key: [u8; 32], first_block: u64, blocks: usize, bits: usize) -> Vec<u32> {
    let aes = Aes256::new(&key.into());
    let mut packed = Vec::new();
    for n in 0..(blocks * 8 * bits) as u64 {
        let mut block = [0; 16];
        block[..8].copy_from_slice(&(first_block * 8 * bits as u64 + n).to_le_bytes());
        let mut block = block.into();
        aes.encrypt_block(&mut block);
        packed.extend_from_slice(&block);
    }
    slow_unpack(&packed, bits)
}

fn mask(key: [u8; 32], first_block: u64, blocks: usize, bits: u32) -> Vec<u32> {
    let mut lanes = vec![0; blocks * BLOCK];
    apply(&mut lanes, first_block, bits, &[(MaskKey::new(key), Sign::Plus)]).unwrap();
    reduce(&mut lanes, bits).unwrap();
    lanes
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SimulatedEntropy::from_seed(seed).fill(&mut bytes).unwrap();
    bytes
}

fn key(seed: u64) -> [u8; 32] {
    bytes(seed, 32).try_into().unwrap()
}

/// Lanes with all 32 bits in use.
fn garbage(seed: u64, blocks: usize) -> Vec<u32> {
    bytes(seed, 4 * blocks * BLOCK).as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn reduced(lanes: &[u32], bits: u32) -> Vec<u32> {
    lanes.iter().map(|lane| (u64::from(*lane) % (1 << bits)) as u32).collect()
}

/// As many streams as fill a tile and begin another, with both signs.
fn streams(count: u64) -> Vec<(MaskKey, Sign)> {
    (0..count).map(|i| (MaskKey::new(key(i)), if i % 3 == 0 { Sign::Minus } else { Sign::Plus })).collect()
}

#[test]
fn a_shape_has_whole_blocks_and_the_fewest_that_hold_the_canary() {
    for bits in 1..=32 {
        for dimension in (1..=3 * BLOCK).chain([MAX_DIMENSION]) {
            let shape = Shape::new(dimension, bits).unwrap();
            let canary = (shape.padded() - dimension) * bits as usize;
            assert!(shape.padded().is_multiple_of(BLOCK) && canary >= 64, "{shape:?}");
            assert!(canary < 64 + BLOCK * bits as usize, "{shape:?}");
            assert_eq!(shape.packed_len() as u64 * 8, shape.padded() as u64 * u64::from(bits), "{shape:?}");
            assert_eq!((shape.dimension(), shape.bits()), (dimension, bits));
        }
    }
    for (dimension, padded) in [(1020, 1024), (1021, 2048), (1024, 2048)] {
        assert_eq!(Shape::new(dimension, 16).unwrap().padded(), padded);
    }
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    for got in [0, MAX_DIMENSION + 1, usize::MAX] {
        assert_eq!(Shape::new(got, 20), Err(MaskError::Dimension { got }));
    }
    for got in [0, 33, u32::MAX] {
        let refused = Err(MaskError::Bits { got });
        assert_eq!(Shape::new(1, got).map(|_| ()), refused);
        assert_eq!(pack(&[], got, &mut Vec::new()), refused);
        assert_eq!(add_packed(&mut [], &[], got), refused);
        assert_eq!(reduce(&mut [], got), refused);
        assert_eq!(apply(&mut [], 0, got, &[]), refused);
    }
}

#[test]
fn packing_is_the_layout_of_the_documentation_for_every_width() {
    for bits in 1..=32 {
        let lanes = garbage(u64::from(bits), 3);
        let mut packed = vec![7];
        pack(&lanes, bits, &mut packed).unwrap();
        assert_eq!(packed[0], 7, "appends");
        assert_eq!(packed[1..], slow_pack(&lanes, bits as usize), "{bits} bits");

        assert_eq!(unpacked(&packed[1..], bits), reduced(&lanes, bits), "{bits} bits");

        let mut sum = garbage(99, 3);
        add_packed(&mut sum, &packed[1..], bits).unwrap();
        let wanted: Vec<u32> = garbage(99, 3).iter().zip(&lanes).map(|(a, b)| a.wrapping_add(*b)).collect();
        reduce(&mut sum, bits).unwrap();
        assert_eq!(sum, reduced(&wanted, bits), "{bits} bits");
    }
}

#[test]
fn every_buffer_is_the_packing_of_what_it_unpacks_to() {
    for bits in 1..=32 {
        let packed = bytes(u64::from(bits), 2 * 128 * bits as usize);
        let lanes = unpacked(&packed, bits);
        assert_eq!(lanes, slow_unpack(&packed, bits as usize));
        let mut again = Vec::new();
        pack(&lanes, bits, &mut again).unwrap();
        assert_eq!(again, packed);
    }
}

/// A value that leaks into its neighbours shows against zeros and against ones.
#[test]
fn the_largest_value_survives_in_every_lane_alone() {
    for bits in 1..=32 {
        let max = u32::MAX >> (32 - bits);
        for lane in 0..BLOCK {
            for (rest, value) in [(0, max), (max, 0)] {
                let mut lanes = vec![rest; BLOCK];
                lanes[lane] = value;
                let mut packed = Vec::new();
                pack(&lanes, bits, &mut packed).unwrap();
                assert_eq!(unpacked(&packed, bits), lanes, "lane {lane}, {bits} bits");
            }
        }
    }
}

/// Both directions on an instruction set that the caller chose.
fn agrees_on(simd: impl Simd) {
    for bits in 1..=32 {
        let lanes = garbage(u64::from(bits), 2);
        let mut packed = vec![0; 2 * 128 * bits as usize];
        Simd::vectorize(simd, Pack { lanes: &lanes, packed: &mut packed, bits: bits as usize });
        assert_eq!(packed, slow_pack(&lanes, bits as usize), "{bits} bits");
        let mut back = vec![0; 2 * BLOCK];
        let op = |lane: &mut u32, value| *lane = value;
        Simd::vectorize(simd, Unpack { lanes: &mut back, packed: &packed, bits: bits as usize, op });
        assert_eq!(reduced(&back, bits), reduced(&lanes, bits), "{bits} bits");
    }
}

#[test]
fn the_largest_is_found_wherever_it_is() {
    assert_eq!(largest(&[]), 0);
    for at in 0..200 {
        let mut numbers = vec![7; 200];
        numbers[at] = u32::MAX - 1;
        assert_eq!(largest(&numbers), u32::MAX - 1, "at {at}");
    }
}

#[test]
fn plain_instructions_give_the_layout() {
    agrees_on(Scalar);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn vectors_of_256_and_512_bits_give_the_layout() {
    if let Some(simd) = pulp::x86::V3::try_new() {
        agrees_on(simd);
    }
    if let Some(simd) = pulp::x86::V4::try_new() {
        agrees_on(simd);
    }
}

#[test]
fn lanes_that_are_not_whole_blocks_are_refused() {
    for got in [1, BLOCK - 1, BLOCK + 1] {
        let mut lanes = vec![5; got];
        let refused = Err(MaskError::PartialBlock { got });
        let mut packed = Vec::new();
        assert_eq!(pack(&lanes, 8, &mut packed), refused);
        assert!(packed.is_empty());
        assert_eq!(add_packed(&mut lanes, &vec![0; got], 8), refused);
        assert_eq!(apply(&mut lanes, 0, 8, &streams(1)), refused);
        assert_eq!(lanes, vec![5; got]);
    }
}

#[test]
fn truncated_and_overlong_buffers_are_refused() {
    for bits in 1..=32 {
        let wanted = 2 * 128 * bits as usize;
        for got in [0, 1, wanted / 2, wanted - 1, wanted + 1, wanted + 128, 2 * wanted] {
            let mut lanes = vec![5; 2 * BLOCK];
            let refused = Err(MaskError::PackedLength { wanted, got });
            assert_eq!(add_packed(&mut lanes, &vec![1; got], bits), refused);
            assert_eq!(lanes, vec![5; 2 * BLOCK]);
        }
    }
}

/// AES-256 with a zero key encrypts zero to a published value (NIST, AESAVS): at 32 bits, the first four lanes.
#[test]
fn the_first_lanes_are_the_published_encryption_of_zero() {
    let published = 0xdc95_c078_a240_8989_ad48_a214_9284_2087_u128.to_be_bytes();
    let bytes: Vec<u8> = mask([0; 32], 0, 1, 32)[..4].iter().flat_map(|lane| lane.to_le_bytes()).collect();
    assert_eq!(bytes, published);
}

/// Key 00 01 02 .. 1f; made by another program from another implementation of AES.
#[test]
fn masks_have_their_golden_values() {
    const LANES: [usize; 8] = [0, 1, 31, 32, 33, 1023, 1024, 2047];
    let key = std::array::from_fn(|i| i as u8);
    for (bits, golden) in [
        (1, [0x0, 0x0, 0x1, 0x1, 0x1, 0x1, 0x0, 0x1]),
        (7, [0x72, 0x2a, 0xb, 0x21, 0x12, 0x56, 0x4e, 0x7b]),
        (19, [0x90f2, 0x7492a, 0x2cf0b, 0x496c0, 0x47a13, 0x78c70, 0x33994, 0x538f1]),
        (20, [0x90f2, 0xf492a, 0xacf0b, 0x64b60, 0xa3d09, 0x3199a, 0x7e0e9, 0x4ae4e]),
        (23, [0x90f2, 0x1f492a, 0x5acf0b, 0xc96c, 0x7347a1, 0x4b5e79, 0x207e0, 0x51f8a2]),
        (32, [0xb600_90f2, 0xd09f_492a, 0xb8da_cf0b, 0x7194_0064, 0x764f_39a3, 0xd62b_32f7, 0x2c59_d905, 0x10f3_bac6]),
    ] {
        let mask = mask(key, 0, 2, bits);
        assert_eq!(LANES.map(|lane| mask[lane]), golden, "{bits} bits");
        assert_eq!(mask, slow_mask(key, 0, 2, bits as usize), "{bits} bits");
    }
}

#[test]
fn masks_are_the_references_for_every_width_and_begin_anywhere() {
    for bits in 1..=32 {
        for (first_block, blocks) in [(0, 1), (1, 2), (12_345, 9), (1 << 40, 17)] {
            let wanted = slow_mask(key(3), first_block, blocks, bits as usize);
            assert_eq!(mask(key(3), first_block, blocks, bits), wanted, "{bits} bits from block {first_block}");
        }
    }
}

#[test]
fn many_masks_are_the_sum_of_each() {
    for bits in [1, 13, 20, 32] {
        let start = garbage(1, 9);
        let (mut at_once, mut wanted) = (start.clone(), start);
        apply(&mut at_once, 5, bits, &streams(131)).unwrap();
        for i in 0..131 {
            for (lane, mask) in wanted.iter_mut().zip(slow_mask(key(i), 5, 9, bits as usize)) {
                *lane = if i % 3 == 0 { lane.wrapping_sub(mask) } else { lane.wrapping_add(mask) };
            }
        }
        reduce(&mut at_once, bits).unwrap();
        assert_eq!(at_once, reduced(&wanted, bits));
    }
}

#[test]
fn slices_are_the_whole_whatever_their_length() {
    for bits in [1, 19, 31, 32] {
        let streams = streams(5);
        let mut whole = garbage(4, 37);
        let mut packed = Vec::new();
        let start = whole.clone();
        apply(&mut whole, 2, bits, &streams).unwrap();
        pack(&whole, bits, &mut packed).unwrap();
        for blocks in [1, 3, 8, 11, 37] {
            let (mut sliced, mut streamed) = (start.clone(), Vec::new());
            for (i, slice) in sliced.chunks_mut(blocks * BLOCK).enumerate() {
                apply(slice, 2 + (i * blocks) as u64, bits, &streams).unwrap();
                pack(slice, bits, &mut streamed).unwrap();
            }
            assert_eq!(streamed, packed, "slices of {blocks} blocks");

            let (mut in_parts, mut at_once) = (start.clone(), start.clone());
            let parts = packed.chunks(blocks * 128 * bits as usize);
            for (slice, part) in in_parts.chunks_mut(blocks * BLOCK).zip(parts) {
                add_packed(slice, part, bits).unwrap();
            }
            add_packed(&mut at_once, &packed, bits).unwrap();
            assert_eq!(in_parts, at_once);
        }
    }
}

#[test]
fn opposite_signs_cancel_to_the_bit() {
    for bits in 1..=32 {
        let start = reduced(&garbage(6, 10), bits);
        let mut lanes = start.clone();
        apply(&mut lanes, 0, bits, &[(MaskKey::new(key(1)), Sign::Plus)]).unwrap();
        assert_ne!(reduced(&lanes, bits), start);
        apply(&mut lanes, 0, bits, &[(MaskKey::new(key(2)), Sign::Minus), (MaskKey::new(key(1)), Sign::Minus)])
            .unwrap();
        assert_ne!(reduced(&lanes, bits), start);
        apply(&mut lanes, 0, bits, &[(MaskKey::new(key(2)), Sign::Plus)]).unwrap();
        assert_eq!(reduced(&lanes, bits), start);
    }
}

/// As between clients: masked inputs are packed and sent, and the server adds them.
#[test]
fn masks_cancel_through_packed_inputs() {
    for bits in 1..=32 {
        let mut sum = vec![0; 3 * BLOCK];
        let inputs = [reduced(&garbage(1, 3), bits), reduced(&garbage(2, 3), bits)];
        for (input, sign) in inputs.iter().zip([Sign::Plus, Sign::Minus]) {
            let (mut lanes, mut packed) = (input.clone(), Vec::new());
            apply(&mut lanes, 0, bits, &[(MaskKey::new(key(9)), sign)]).unwrap();
            pack(&lanes, bits, &mut packed).unwrap();
            add_packed(&mut sum, &packed, bits).unwrap();
        }
        let plain: Vec<u32> = inputs[0].iter().zip(&inputs[1]).map(|(a, b)| a.wrapping_add(*b)).collect();
        assert_eq!(reduced(&sum, bits), reduced(&plain, bits), "{bits} bits");
    }
}

#[test]
fn no_masks_change_nothing_and_no_lanes_are_no_error() {
    let mut lanes = garbage(8, 2);
    apply(&mut lanes, 0, 20, &[]).unwrap();
    assert_eq!(lanes, garbage(8, 2));
    apply(&mut [], 0, 20, &streams(3)).unwrap();
    add_packed(&mut [], &[], 20).unwrap();
}

#[test]
fn the_same_key_gives_the_same_mask_and_another_another() {
    assert_eq!(mask(key(1), 0, 2, 20), mask(key(1), 0, 2, 20));
    assert_ne!(mask(key(1), 0, 1, 20), mask(key(2), 0, 1, 20));
    assert_ne!(mask(key(1), 0, 1, 20), mask(key(1), 1, 1, 20));
}

#[test]
fn the_counter_never_starts_over() {
    // At one bit a block takes 8 of the 2^64 encryptions; the last block of all is not used.
    let last = (1_u64 << 61) - 2;
    let mut lanes = vec![0; BLOCK];
    apply(&mut lanes, last, 1, &streams(1)).unwrap();
    for (first_block, blocks, bits) in [(last + 1, 1, 1), (last, 2, 1), (1 << 56, 1, 32), (u64::MAX, 1, 20)] {
        let mut lanes = vec![5; blocks * BLOCK];
        assert_eq!(apply(&mut lanes, first_block, bits, &streams(1)), Err(MaskError::Position { first_block }));
        assert_eq!(lanes, vec![5; blocks * BLOCK]);
    }
}

/// Pearson's statistic is within five standard deviations of its mean, and no value is special, the largest included.
#[test]
fn small_residues_are_uniform() {
    for bits in 1..=8 {
        let values = 1 << bits;
        let mask = mask(key(u64::from(bits)), 0, 256, bits);
        let mut counts = vec![0_u32; values];
        mask.iter().for_each(|value| counts[*value as usize] += 1);
        let expected = mask.len() as f64 / values as f64;
        let statistic: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        let freedom = (values - 1) as f64;
        assert!((statistic - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(), "{bits} bits: {statistic}");
        for (value, count) in counts.iter().enumerate() {
            let off = (f64::from(*count) - expected).abs();
            assert!(off < 5.0 * expected.sqrt(), "{value} of {bits} bits: {count} times, not {expected}");
        }
    }
}

/// All 256 bits of the key matter, each for the whole mask.
#[test]
fn one_bit_of_the_key_changes_half_of_the_mask() {
    let (bits, key) = (20, key(5));
    let before = mask(key, 0, 1, bits);
    let sigma = (f64::from(bits) * BLOCK as f64).sqrt() / 2.0;
    for bit in 0..256 {
        let mut other = key;
        other[bit / 8] ^= 1 << (bit % 8);
        let after = mask(other, 0, 1, bits);
        let changed: u32 = before.iter().zip(&after).map(|(a, b)| (a ^ b).count_ones()).sum();
        let half = f64::from(bits) * BLOCK as f64 / 2.0;
        assert!((f64::from(changed) - half).abs() < 6.0 * sigma, "bit {bit} of the key changes {changed} bits");
    }
}

#[test]
fn keys_are_zeroized_and_not_shown() {
    fn zeroized<T: ZeroizeOnDrop>() {}
    zeroized::<MaskKey>();
    zeroized::<Aes256Enc>();
    assert_eq!(format!("{:?}", MaskKey::new([77; 32])), "MaskKey");
}
