//! From a processor's tensors to what an encoder takes.
//!
//! Invariant: sizes are checked; a tensor that does not hold what its grid says is an error of one line.

use omnibus_media::{Elements, Features, Tensor};

use crate::media::{EncoderPixels, PicturePixels, Spectrum, ViewPixels};

/// Colours of a picture.
const CHANNELS: usize = 3;

/// What an encoder with patches of `patch` pixels takes of a picture's features.
pub(super) fn pixels(mut features: Features, patch: usize) -> Result<EncoderPixels, String> {
    let mut take = |name: &str| features.tensors.remove(name);
    let grids = take("image_grid_thw").or(take("video_grid_thw"));
    let (shapes, sizes) = (take("spatial_shapes"), take("view_sizes"));
    let pixels = take("pixel_values").or(take("pixel_values_videos"));
    let pixels = pixels.ok_or_else(|| "the processor makes no pixels".to_owned())?;
    let Elements::F32(values) = pixels.elements else { return Err("pixels are not numbers".to_owned()) };
    let views = match (grids, shapes, sizes) {
        (Some(grids), ..) => patches(&pixels.shape, values, &rows::<3>(&grids)?),
        (None, Some(shapes), _) => padded_patches(&pixels.shape, &values, &rows::<2>(&shapes)?),
        (None, None, Some(sizes)) => padded_planes(&pixels.shape, &values, &rows::<2>(&sizes)?, patch),
        (None, None, None) => planes(&pixels.shape, values, patch),
    };
    let views = views.ok_or_else(|| format!("the processor's pixels {:?} do not fit", pixels.shape))?;
    Ok(EncoderPixels::new(PicturePixels { views, layout: features.layout }))
}

/// What an encoder takes of the features of one window of sound.
pub(super) fn spectrum(mut features: Features) -> Result<EncoderPixels, String> {
    let is_crossed = features.expansion.token.is_empty();
    let spectrum = features.tensors.remove("input_features");
    let spectrum = spectrum.ok_or_else(|| "the processor makes no spectrum".to_owned())?;
    let Elements::F32(values) = spectrum.elements else { return Err("a spectrum is not numbers".to_owned()) };
    // Gemma's processors name their mask after the spectrum, and have the frames outside.
    let (values, bands, mask) =
        match (spectrum.shape.as_slice(), features.tensors.remove("input_features_mask")) {
            ([1, _, bands], Some(mask)) => (values, *bands, mask),
            ([1, bands, frames], None) => {
                let mask = features.tensors.remove("attention_mask");
                let mask =
                    mask.ok_or_else(|| "the processor does not say which frames are sound".to_owned())?;
                (transposed(&values, *bands, *frames), *bands, mask)
            }
            (shape, _) => return Err(format!("a spectrum of the shape {shape:?}")),
        };
    let Elements::I64(mask) = mask.elements else { return Err("a mask is not whole".to_owned()) };
    let sound = mask.iter().take_while(|value| **value != 0).count();
    Ok(EncoderPixels::new(Spectrum { values, bands, sound, is_crossed }))
}

/// `[rows, columns]` → `[columns, rows]`.
fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let column = |column: usize| (0..rows).filter_map(move |row| values.get(row * columns + column));
    (0..columns).flat_map(column).copied().collect()
}

/// The rows of a tensor of sizes.
fn rows<const N: usize>(tensor: &Tensor) -> Result<Vec<[usize; N]>, String> {
    let Elements::I64(values) = &tensor.elements else { return Err("sizes are not whole".to_owned()) };
    let size = |value: &i64| usize::try_from(*value).ok();
    let row = |row: &[i64]| row.iter().map(size).collect::<Option<Vec<_>>>()?.try_into().ok();
    let rows: Option<Vec<[usize; N]>> = values.chunks(N).map(row).collect();
    rows.ok_or_else(|| "sizes are not whole".to_owned())
}

/// Patches of all pictures, end to end.
fn patches(shape: &[usize], values: Vec<f32>, grids: &[[usize; 3]]) -> Option<Vec<ViewPixels>> {
    let width = *shape.last().filter(|_| shape.len() > 1)?;
    if let [grid] = grids {
        return view(grid.iter().product(), width, values, *grid).map(|view| vec![view]);
    }
    let mut rest = values.as_slice();
    let mut views = Vec::with_capacity(grids.len());
    for grid in grids {
        let count: usize = grid.iter().product();
        let (taken, left) = rest.split_at_checked(count.checked_mul(width)?)?;
        views.push(view(count, width, taken.to_vec(), *grid)?);
        rest = left;
    }
    Some(views)
}

/// Patches of each view, padded to equally many.
fn padded_patches(shape: &[usize], values: &[f32], sizes: &[[usize; 2]]) -> Option<Vec<ViewPixels>> {
    let [_, most, width] = *shape else { return None };
    let of_view = |(values, [rows, columns]): (&[f32], &[usize; 2])| {
        let count = rows.checked_mul(*columns)?;
        let values = values.get(..count.checked_mul(width)?)?.to_vec();
        view(count, width, values, [1, *rows, *columns])
    };
    values.chunks(most.checked_mul(width)?.max(1)).zip(sizes).map(of_view).collect()
}

fn view(patches: usize, width: usize, values: Vec<f32>, grid: [usize; 3]) -> Option<ViewPixels> {
    let shape = vec![i32::try_from(patches).ok()?, i32::try_from(width).ok()?];
    (values.len() == patches.checked_mul(width)?).then_some(ViewPixels { shape, values, grid })
}

/// Pixels of views, by channel, each filled up on the right and below to the same size.
fn padded_planes(
    shape: &[usize],
    values: &[f32],
    sizes: &[[usize; 2]],
    patch: usize,
) -> Option<Vec<ViewPixels>> {
    let [.., CHANNELS, height, width] = *shape else { return None };
    let of_view = |(values, [rows, columns]): (&[f32], &[usize; 2])| {
        let of_row = |row: &[f32]| row.get(..*columns).map(<[f32]>::to_vec);
        let of_channel = |channel: &[f32]| {
            channel.chunks(width.max(1)).take(*rows).map(of_row).collect::<Option<Vec<_>>>()
        };
        let channels = values.chunks(height.checked_mul(width)?.max(1)).map(of_channel);
        let values = channels.collect::<Option<Vec<_>>>()?.concat().concat();
        planes(&[CHANNELS, *rows, *columns], values, patch)
    };
    let one = CHANNELS.checked_mul(height)?.checked_mul(width)?;
    let views = values.chunks(one.max(1)).zip(sizes).map(of_view).collect::<Option<Vec<_>>>()?;
    Some(views.concat())
}

/// Pixels of views of equal size, by channel.
fn planes(shape: &[usize], values: Vec<f32>, patch: usize) -> Option<Vec<ViewPixels>> {
    let [.., CHANNELS, height, width] = *shape else { return None };
    let one = CHANNELS.checked_mul(height)?.checked_mul(width)?;
    let count = values.len().checked_div(one)?;
    let shape = [count, CHANNELS, height, width].map(|side| i32::try_from(side).ok());
    let shape: Option<Vec<i32>> = shape.into_iter().collect();
    let grid = [count, height.checked_div(patch)?, width.checked_div(patch)?];
    (values.len() == count * one && count > 0).then_some(vec![ViewPixels { shape: shape?, values, grid }])
}
