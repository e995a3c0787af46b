//! Copies of many shapes and layouts against the plain loop, for every element size.

use super::*;
use crate::native::memory::dense_strides;

/// Source bytes, all different from their neighbours.
fn source(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 131 + i / 251) as u8).collect()
}

/// The plain loop over every index.
fn naive(element: usize, dims: &[usize], to: (&mut [u8], &[isize], isize), from: (&[u8], &[isize], isize)) {
    let total: usize = dims.iter().product();
    for flat in 0..total {
        let (mut rest, mut at_to, mut at_from) = (flat, to.2, from.2);
        for d in (0..dims.len()).rev() {
            let index = (rest % dims[d]) as isize;
            rest /= dims[d];
            at_to += index * to.1[d];
            at_from += index * from.1[d];
        }
        let (at_to, at_from) = (at_to as usize * element, at_from as usize * element);
        to.0[at_to..at_to + element].copy_from_slice(&from.0[at_from..at_from + element]);
    }
}

/// Compares with the plain loop for a source of these strides and first element, both ways.
fn check(dims: &[usize], strides: &[isize], first: isize) {
    let reach = |pick: fn(isize) -> bool| -> isize {
        let ends = dims.iter().zip(strides).map(|(&size, &stride)| (size as isize - 1).max(0) * stride);
        ends.filter(|&end| pick(end)).sum()
    };
    assert!(first + reach(|end| end < 0) >= 0);
    let elements = (first + reach(|end| end > 0) + 1) as usize;
    let total: usize = dims.iter().product();
    let dense = &dense_strides(dims)[..dims.len()];
    for element in [1, 2, 4, 8, 16] {
        let from = source(elements.max(total) * element);
        let (mut expected, mut got) = (vec![0; total * element], vec![0; total * element]);
        naive(element, dims, (&mut expected, dense, 0), (&from, strides, first));
        let address = from.as_ptr() as usize + first as usize * element;
        // SAFETY: the buffers hold every element reached.
        unsafe { copy(element, dims, Memory::new(got.as_mut_ptr() as usize, dense), Memory::new(address, strides)) };
        assert_eq!(expected, got, "reading {dims:?} {strides:?} of {element} bytes");
        if strides.contains(&0) {
            continue;
        }
        let (mut expected, mut got) = (vec![7; elements * element], vec![7; elements * element]);
        naive(element, dims, (&mut expected, strides, first), (&from, dense, 0));
        let address = got.as_mut_ptr() as usize + first as usize * element;
        // SAFETY: as above.
        unsafe { copy(element, dims, Memory::new(address, strides), Memory::new(from.as_ptr() as usize, dense)) };
        assert_eq!(expected, got, "writing {dims:?} {strides:?} of {element} bytes");
    }
}

#[test]
fn equals_the_plain_loop() {
    check(&[], &[], 0);
    check(&[0, 3], &[3, 1], 0);
    check(&[7], &[1], 3);
    check(&[7], &[-1], 6);
    check(&[7], &[2], 0);
    check(&[5, 3], &[0, 1], 0);
    check(&[5, 3], &[1, 0], 0);
    check(&[2, 3, 4], &[12, 4, 1], 0);
    check(&[2, 3, 4], &[24, -8, 2], 16);
    check(&[3, 5, 2], &[1, 6, 3], 0);
    check(&[2, 3, 2, 3, 2], &[1, 2, 6, 12, 36], 0);
    check(&[4, 1, 6], &[6, 99, 1], 0);
    check(&[3, 40, 5], &[240, 6, 1], 0);
}

#[test]
fn transposes_of_odd_sizes() {
    for (rows, columns) in
        [(1, 9), (4, 4), (5, 17), (16, 16), (33, 31), (64, 65), (67, 130), (130, 3), (2, 9), (2, 130), (3, 67)]
    {
        check(&[columns, rows], &[1, columns as isize], 0);
        check(&[3, columns, rows], &[(rows * columns) as isize, 1, columns as isize], 0);
        check(&[columns, rows], &[1, columns as isize + 5], 2);
    }
    // Rows of the result whose places in the cache are few.
    check(&[37, 2048], &[1, 37], 0);
    check(&[150, 1023], &[1, 1024], 0);
    check(&[150, 1023], &[1024, 1], 0);
}

#[test]
fn large_copies_use_threads() {
    check(&[1 << 20], &[1], 1);
    check(&[600, 700], &[1, 600], 0);
    check(&[3, 300, 200], &[60000, 1, 300], 0);
    check(&[2, 2, 2, 30000], &[1, 2, 4, 8], 0);
    check(&[500, 1000], &[1200, 1], 0);
}

#[test]
fn fills() {
    let mut to = vec![0_u32; 1000];
    let value = 0xdead_beef_u32;
    // SAFETY: 10 x 50 elements with these strides lie inside the buffer.
    unsafe { fill(4, &[10, 50], Memory::new(to.as_mut_ptr() as usize, &[100, 2]), &raw const value as usize) };
    assert!(to.iter().enumerate().all(|(i, &x)| x == if i % 2 == 0 { value } else { 0 }));
    // Longer than what is repeated, with a rest, and a neighbour that stays.
    let mut to = vec![0_u32; 5001];
    // SAFETY: 5000 elements lie inside the buffer.
    unsafe { fill(4, &[5000], Memory::new(to.as_mut_ptr() as usize, &[1]), &raw const value as usize) };
    assert!(to[..5000].iter().all(|&x| x == value) && to[5000] == 0);
}
