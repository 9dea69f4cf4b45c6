//! Where a long sound is cut for a model that gives no times: where it is quiet.

/// Length of what is compared, in seconds.
const FRAME_S: f64 = 0.05;
/// How much of a window's end is searched, as a part of it.
const SEARCHED: usize = 5;

/// Samples of the first window of a sound: all of it, or up to the quietest place in the last fifth of `most`.
pub(super) fn first_window(samples: &[f32], most: usize, rate: u32) -> usize {
    if samples.len() <= most {
        return samples.len();
    }
    let frame = ((f64::from(rate) * FRAME_S) as usize).max(1);
    let from = most - most / SEARCHED;
    let frames = samples.get(from..most).unwrap_or_default().chunks_exact(frame);
    let energy = |frame: &[f32]| frame.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>();
    let quietest = frames.map(energy).enumerate().min_by(|(_, one), (_, other)| one.total_cmp(other));
    quietest.map_or(most, |(at, _)| from + at * frame + frame / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sound_is_cut_where_it_is_quiet() {
        let mut samples = vec![0.5; 4_000];
        samples[1_850..1_950].fill(0.01);
        let cut = first_window(&samples, 2_000, 1_000);
        assert!((1_850..1_950).contains(&cut), "{cut}");
        assert_eq!(first_window(&samples[..2_000], 2_000, 1_000), 2_000);
    }
}
