//! Caddy's sort, for comparisons that are no order.
//!
//! Some things that Caddy sorts cannot all be compared: routes without a path, policies whose names have nothing to do with
//! each other. What becomes of them then depends on which pairs are looked at, so the pairs here are those of Caddy's stable
//! sort: runs of twenty by insertion, then pairs of runs by symmetric merging (Kim and Kutzner, "Stable Minimum Storage
//! Merging by Symmetric Comparisons", 2004). A sort of the standard library might panic.

/// How many elements insertion alone sorts.
const RUN: usize = 20;

/// Stable where `less` is an order.
pub(crate) fn sort<T>(items: &mut [T], less: impl Fn(&T, &T) -> bool) {
    items.chunks_mut(RUN).for_each(|run| insert(run, &less));
    let mut run = RUN;
    while run < items.len() {
        for pair in items.chunks_mut(2 * run).filter(|pair| pair.len() > run) {
            merge(pair, run, &less);
        }
        run *= 2;
    }
}

fn insert<T>(items: &mut [T], less: &impl Fn(&T, &T) -> bool) {
    for end in 1..items.len() {
        let mut index = end;
        while index > 0 && less(&items[index], &items[index - 1]) {
            items.swap(index, index - 1);
            index -= 1;
        }
    }
}

/// Merges the elements before `middle` with those from there on. Neither part is empty; the depth is that of halving.
fn merge<T>(items: &mut [T], middle: usize, less: &impl Fn(&T, &T) -> bool) {
    let count = items.len();
    if middle == 1 {
        let behind = first(1, count, |index| !less(&items[index], &items[0]));
        items[..behind].rotate_left(1);
        return;
    }
    if count - middle == 1 {
        let before = first(0, middle, |index| less(&items[middle], &items[index]));
        items[before..].rotate_right(1);
        return;
    }
    // What lies symmetrically around the half is compared: from `start` on the left part goes behind, and as much of the
    // right part goes in front.
    let half = count / 2;
    let around = half + middle;
    let (low, high) = if middle > half { (around - count, half) } else { (0, middle) };
    let start = first(low, high, |index| less(&items[around - 1 - index], &items[index]));
    let end = around - start;
    if start < middle && middle < end {
        items[start..end].rotate_left(middle - start);
    }
    let (left, right) = items.split_at_mut(half);
    if 0 < start && start < half {
        merge(left, start, less);
    }
    if half < end && end < count {
        merge(right, end - half, less);
    }
}

/// The first index from `low` on, below `high`, for which something holds that then holds for all further ones; else `high`.
fn first(mut low: usize, mut high: usize, holds: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = low.midpoint(high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // Of an order it makes what the standard library makes of it.
        #[test]
        fn sorts_stably(keys in proptest::collection::vec(0_u8..9, 0..200)) {
            let mut ours = Vec::from_iter(keys.iter().copied().enumerate());
            let mut theirs = ours.clone();
            sort(&mut ours, |a, b| a.1 < b.1);
            theirs.sort_by_key(|(_, key)| *key);
            prop_assert_eq!(ours, theirs);
        }

        // Of what is none it makes something with the same elements.
        #[test]
        fn survives_what_is_no_order(keys in proptest::collection::vec(any::<u8>(), 0..200), seed: u8) {
            let mut sorted = keys.clone();
            sort(&mut sorted, |a, b| a.wrapping_mul(*b).wrapping_add(seed) % 3 == 0);
            let counted = |mut list: Vec<u8>| {
                list.sort_unstable();
                list
            };
            prop_assert_eq!(counted(sorted), counted(keys));
        }
    }
}
