//! Properties of resize and smart resize that hold for all sizes.

use omnibus_media::{Filter, Image, PassOrder, Size, SmartResize, resize, smart_resize};
use proptest::prelude::*;

use crate::support::image;

/// Resize of one channel of one axis in floating point: what the integers approximate.
fn plain_axis(row: &[f64], to: usize, radius: f64, weight: impl Fn(f64) -> f64) -> Vec<f64> {
    let scale = row.len() as f64 / to as f64;
    let stretch = scale.max(1.0);
    let value = |index: usize| {
        let centre = (index as f64 + 0.5) * scale;
        let reach = |at: usize| (at as f64 + 0.5 - centre).abs() <= radius * stretch;
        let weights: Vec<(f64, f64)> = (0..row.len())
            .filter(|at| reach(*at))
            .map(|at| (weight((at as f64 - centre + 0.5) / stretch), row[at]))
            .collect();
        let total: f64 = weights.iter().map(|(weight, _)| weight).sum();
        (weights.iter().map(|(weight, value)| weight * value).sum::<f64>() / total).clamp(0.0, 255.0)
    };
    (0..to).map(value).collect()
}

fn cubic(x: f64) -> f64 {
    let x = x.abs();
    match x {
        _ if x < 1.0 => 1.5 * x.powi(3) - 2.5 * x.powi(2) + 1.0,
        _ if x < 2.0 => -0.5 * x.powi(3) + 2.5 * x.powi(2) - 4.0 * x + 2.0,
        _ => 0.0,
    }
}

fn filters() -> impl Strategy<Value = Filter> {
    (0u64..6).prop_map(|number| Filter::from_pillow(number).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_within_a_level_of_floating_point(width in 1u32..90, to in 1u32..90, seed in 0u32..50) {
        let source = image(width, 1, seed);
        let made = resize(&source, to, 1, Filter::Bicubic, PassOrder::Pillow13).unwrap();
        for channel in 0..3 {
            let row: Vec<f64> = source.pixels().iter().skip(channel).step_by(3).map(|p| f64::from(*p)).collect();
            let plain = plain_axis(&row, to as usize, 2.0, cubic);
            let levels = made.pixels().iter().skip(channel).step_by(3);
            for (level, plain) in levels.zip(plain) {
                prop_assert!((f64::from(*level) - plain).abs() <= 0.51, "{level} is not {plain}");
            }
        }
    }

    #[test]
    fn one_colour_stays_that_colour(
        width in 1u32..40, height in 1u32..40, to in (1u32..60, 1u32..60), level: u8, filter in filters(),
    ) {
        let source = Image::new(width, height, vec![level; (3 * width * height) as usize]).unwrap();
        let made = resize(&source, to.0, to.1, filter, PassOrder::Pillow13).unwrap();
        prop_assert_eq!((made.width(), made.height()), to);
        prop_assert!(made.pixels().iter().all(|other| *other == level));
    }

    #[test]
    fn the_same_size_is_the_same_picture(width in 1u32..40, height in 1u32..40, filter in filters()) {
        let source = image(width, height, 3);
        let made = resize(&source, width, height, filter, PassOrder::Pillow13).unwrap();
        prop_assert_eq!(made.pixels(), source.pixels());
    }

    #[test]
    fn a_turned_picture_gives_the_turned_result(width in 1u32..40, height in 1u32..40, to in (1u32..50, 1u32..50)) {
        let source = image(width, height, 5);
        let made = resize(&source, to.0, to.1, Filter::Lanczos, PassOrder::RowsFirst).unwrap();
        let back = resize(&half_turn(&source), to.0, to.1, Filter::Lanczos, PassOrder::RowsFirst).unwrap();
        // Truncated taps may differ by one at the far end of a window, where weights are next to nothing.
        let most = made.pixels().iter().zip(half_turn(&back).pixels()).map(|(a, b)| a.abs_diff(*b)).max();
        prop_assert!(most <= Some(1), "{most:?}");
    }

    #[test]
    fn smart_resize_keeps_its_promises(
        height in 1u32..5000, width in 1u32..5000, factor in prop::sample::select(vec![14u32, 28, 32, 48]),
        least in 1u32..200, times in 2u32..100,
    ) {
        let unit = f64::from(factor * factor);
        let (min_pixels, max_pixels) = (unit * f64::from(least), unit * f64::from(least * times));
        let bounds = SmartResize { factor, min_pixels, max_pixels, frames: 1.0, rounded_frames: 1.0 };
        let made = smart_resize(Size { height, width }, &bounds);
        let aspect = f64::from(height.max(width)) / f64::from(height.min(width));
        prop_assert_eq!(made.is_err(), aspect > 200.0);
        prop_assume!(made.is_ok());
        let made = made.unwrap();
        prop_assert_eq!((made.height % factor, made.width % factor), (0, 0));
        prop_assert!(made.height > 0 && made.width > 0);
        let pixels = f64::from(made.height) * f64::from(made.width);
        // A side that is raised to one unit may exceed the most.
        let raised = made.height == factor || made.width == factor;
        prop_assert!(pixels <= max_pixels || raised, "{pixels} of {max_pixels}");
        prop_assert!(pixels >= min_pixels, "{pixels} of {min_pixels}");
    }
}

fn half_turn(image: &Image) -> Image {
    let pixels = image.pixels().chunks_exact(3).rev().flatten().copied().collect();
    Image::new(image.width(), image.height(), pixels).unwrap()
}
