//! Caddy's sort, for comparisons that are not an order.
//!
//! Caddy sorts some lists with a comparison that is not transitive: routes without a path, policies with unrelated
//! names. The result then depends on which pairs are compared, so this sort compares the pairs of Go's stable sort:
//! insertion sort on runs of 20, then symmetric merging of runs (Kim and Kutzner, "Stable Minimum Storage Merging by
//! Symmetric Comparisons", 2004). The standard library's sort could panic on such a comparison.

/// Length of the runs that insertion sort handles.
const RUN: usize = 20;

/// Sorts in place; stable if `less` is an order. O(n log² n) comparisons.
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

/// Merges the two sorted parts before and from `middle`. Neither is empty. Recursion depth is O(log n).
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
    // Compare pairs that lie symmetrically around the half: the elements of the left part from `start` on move after
    // an equal number of elements of the right part.
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

/// Binary search: the first index in `low..high` for which `holds` is true, or else `high`. `holds` must be monotonic.
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
        // On a proper order it agrees with the standard library's sort.
        #[test]
        fn sorts_stably(keys in proptest::collection::vec(0_u8..9, 0..200)) {
            let mut ours = Vec::from_iter(keys.iter().copied().enumerate());
            let mut theirs = ours.clone();
            sort(&mut ours, |a, b| a.1 < b.1);
            theirs.sort_by_key(|(_, key)| *key);
            prop_assert_eq!(ours, theirs);
        }

        // On any other comparison it still returns a permutation.
        #[test]
        fn inconsistent_orders_terminate(keys in proptest::collection::vec(any::<u8>(), 0..200), seed: u8) {
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
