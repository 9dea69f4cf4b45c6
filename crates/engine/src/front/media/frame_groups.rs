//! Videos in groups of steps in time, each encoded and cached on its own: a longer cut of the same clip reuses the groups that
//! both begin with.
//!
//! Invariant: only for encoders whose features of a step depend on that step alone, as those of patches in a grid do.

use omnibus_media::{ContentKey, Layout};

use super::PreparedContent;
use crate::media::{EncoderContent, EncoderPixels, PicturePixels, ViewPixels};

/// Steps of a group. More would save little for each, fewer would cut short clips into many.
const STEPS: usize = 4;

/// The contents of a video with so many features in all; one where it cannot be cut. `key`: of the whole.
pub(super) fn contents(
    key: ContentKey,
    processor: ContentKey,
    features: usize,
    pixels: EncoderPixels,
) -> Vec<PreparedContent> {
    match groups(&pixels, processor, features) {
        Some(groups) => groups,
        None => vec![PreparedContent { key, features, pixels }],
    }
}

fn groups(pixels: &EncoderPixels, processor: ContentKey, features: usize) -> Option<Vec<PreparedContent>> {
    let EncoderContent::Picture(PicturePixels { views, layout: Layout::Views }) = pixels.content() else {
        return None;
    };
    let [ViewPixels { shape, values, grid: [steps, rows, columns] }] = views.as_slice() else { return None };
    let &[_, width] = shape.as_slice() else { return None };
    let of_step = rows.checked_mul(*columns)?.checked_mul(usize::try_from(width).ok()?)?;
    let is_whole = values.len() == of_step.checked_mul(*steps)? && features.is_multiple_of(*steps);
    if *steps <= STEPS || of_step == 0 || !is_whole {
        return None;
    }
    let group = |values: &[f32]| {
        let grid = [values.len() / of_step, *rows, *columns];
        let shape = vec![i32::try_from(grid[0] * rows * columns).ok()?, width];
        let view = ViewPixels { shape, values: values.to_vec(), grid };
        Some(PreparedContent {
            key: ContentKey::of_patches(values, grid).with(processor),
            features: features / steps * grid[0],
            pixels: EncoderPixels::new(vec![view]),
        })
    };
    values.chunks(of_step * STEPS).map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn video(steps: usize, layout: Layout) -> EncoderPixels {
        let values = (0..steps * 12).map(|value| value as f32).collect();
        let view = ViewPixels { shape: vec![steps as i32 * 6, 2], values, grid: [steps, 2, 3] };
        EncoderPixels::new(PicturePixels { views: vec![view], layout })
    }

    fn of(steps: usize) -> Vec<PreparedContent> {
        let key = ContentKey::of_bytes(b"video");
        contents(key, ContentKey::of_bytes(b"processor"), 2 * steps, video(steps, Layout::Views))
    }

    #[test]
    fn a_longer_cut_begins_with_the_same_groups() {
        let (short, long) = (of(8), of(10));
        let features: Vec<usize> = long.iter().map(|group| group.features).collect();
        assert_eq!(features, [8, 8, 4]);
        let keys = |groups: &[PreparedContent]| groups.iter().map(|group| group.key).collect::<Vec<_>>();
        assert_eq!(keys(&short), keys(&long)[..2]);
        assert_ne!(keys(&long)[0], keys(&long)[1]);
        // Equal pixels in another grid are another content.
        assert_ne!(
            ContentKey::of_patches(&[1.0, 2.0], [2, 1, 1]),
            ContentKey::of_patches(&[1.0, 2.0], [1, 2, 1])
        );
    }

    #[test]
    fn short_videos_and_other_layouts_stay_whole() {
        assert_eq!(of(4).len(), 1);
        let frames = video(8, Layout::Frames([1, 1]));
        let key = ContentKey::of_bytes(b"video");
        assert_eq!(contents(key, key, 16, frames).len(), 1);
        let empty = ViewPixels { shape: vec![0, 2], values: Vec::new(), grid: [8, 0, 3] };
        assert_eq!(contents(key, key, 0, EncoderPixels::new(vec![empty])).len(), 1);
    }
}
