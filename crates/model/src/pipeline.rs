//! Pipeline parallelism: which layers each stage computes, dealt out by their bytes.
//!
//! Invariant: numbers only. All stages get the same answer from the same numbers.

use std::ops::Range;

/// One stage of several, each with some of the layers, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelineStage {
    index: usize,
    count: usize,
}

impl PipelineStage {
    /// Stage `index` of `count`; `None` unless it is below them.
    pub fn new(index: usize, count: usize) -> Option<Self> {
        (index < count).then_some(Self { index, count })
    }

    /// Which stage this is.
    pub(crate) fn index(self) -> usize {
        self.index
    }

    /// How many stages there are.
    pub(crate) fn count(self) -> usize {
        self.count
    }
}

/// Bytes of a network's parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PartBytes {
    /// Of each layer.
    pub(crate) layers: Vec<u64>,
    /// What the stage with the first layer has besides.
    pub(crate) first: u64,
    /// What the stage with the last layer has besides.
    pub(crate) last: u64,
}

/// The layers of each of `stages` stages, so that the largest stage is as small as it can be; the earliest cuts of several such.
/// `fits`: whether layers can be a stage. `None` if there is no way.
pub(crate) fn deal_layers(
    bytes: &PartBytes,
    stages: usize,
    fits: impl Fn(&Range<usize>) -> bool,
) -> Option<Vec<Range<usize>>> {
    let count = bytes.layers.len();
    // The least largest stage of layers up to each one, and where the last of these stages begins.
    let mut dealt: Vec<Vec<Option<(u64, usize)>>> = vec![vec![None; count + 1]; stages + 1];
    *dealt.first_mut()?.first_mut()? = Some((0, 0));
    for start in 0..count {
        let mut weight = if start == 0 { bytes.first } else { 0 };
        for (layer, own) in bytes.layers.iter().enumerate().skip(start) {
            let end = layer + 1;
            weight += own + if end == count { bytes.last } else { 0 };
            if !fits(&(start..end)) {
                continue;
            }
            for stage in 0..stages {
                let Some((before, _)) = dealt[stage][start] else { continue };
                let found = (before.max(weight), start);
                let best = &mut dealt[stage + 1][end];
                if best.is_none_or(|(largest, _)| found.0 < largest) {
                    *best = Some(found);
                }
            }
        }
    }
    let mut ranges = Vec::new();
    let mut end = count;
    for stage in (1..=stages).rev() {
        let (_, start) = dealt[stage][end]?;
        ranges.push(start..end);
        end = start;
    }
    ranges.reverse();
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dealt(layers: &[u64], (first, last): (u64, u64), stages: usize) -> Option<Vec<Range<usize>>> {
        deal_layers(&PartBytes { layers: layers.to_vec(), first, last }, stages, |_| true)
    }

    #[test]
    fn layers_are_dealt_out_by_their_bytes() {
        assert_eq!(dealt(&[1, 1, 1, 1], (0, 0), 2), Some(vec![0..2, 2..4]));
        assert_eq!(dealt(&[1, 1, 1, 5], (0, 0), 2), Some(vec![0..3, 3..4]));
        // An embedding that is as large as two layers.
        assert_eq!(dealt(&[1, 1, 1, 1], (2, 0), 2), Some(vec![0..1, 1..4]));
        assert_eq!(dealt(&[1, 1, 1, 1, 1, 1], (0, 3), 3), Some(vec![0..2, 2..5, 5..6]));
        assert_eq!(dealt(&[1, 1], (0, 0), 3), None);
    }

    #[test]
    fn layers_that_share_something_stay_together() {
        let bytes = PartBytes { layers: vec![1, 1, 1, 1], first: 0, last: 0 };
        let pairs = |range: &Range<usize>| range.start.is_multiple_of(3) && range.end >= 3;
        assert_eq!(deal_layers(&bytes, 2, pairs), Some(vec![0..3, 3..4]));
        assert_eq!(deal_layers(&bytes, 3, pairs), None);
    }

    /// The largest stage of the best of all ways, by trying them.
    fn least(layers: &[u64], stages: usize) -> u64 {
        match stages {
            0 | 1 => layers.iter().sum(),
            _ => (1..=layers.len() + 1 - stages)
                .map(|cut| layers[..cut].iter().sum::<u64>().max(least(&layers[cut..], stages - 1)))
                .min()
                .unwrap(),
        }
    }

    /// Every list of up to five layers of one to three bytes.
    fn all_layers() -> impl Iterator<Item = Vec<u64>> {
        (1..=5u32).flat_map(|count| {
            (0..3u64.pow(count)).map(move |code| (0..count).map(|at| code / 3u64.pow(at) % 3 + 1).collect())
        })
    }

    #[test]
    fn every_layer_is_in_one_stage_and_the_largest_stage_is_least() {
        for (layers, stages) in
            all_layers().flat_map(|layers| (1..=6).map(move |stages| (layers.clone(), stages)))
        {
            let found = dealt(&layers, (0, 0), stages);
            assert_eq!(found.is_some(), stages <= layers.len(), "{layers:?} in {stages}");
            let Some(ranges) = found else { continue };
            assert_eq!(ranges.len(), stages);
            let covered: Vec<usize> = ranges.iter().cloned().flatten().collect();
            assert_eq!(covered, (0..layers.len()).collect::<Vec<_>>());
            let largest = ranges.iter().map(|range| layers[range.clone()].iter().sum::<u64>()).max();
            assert_eq!(largest, Some(least(&layers, stages)), "{layers:?} in {stages}");
        }
    }
}
