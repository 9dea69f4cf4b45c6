//! Convolutions over maps, `[count, height, width, channels]`.

use mlx::Array;

/// One convolution.
pub(crate) struct ConvolutionCall<'a> {
    /// `[count, height, width, channels]`
    pub(crate) x: &'a Array,
    /// `[out, rows, columns, channels / groups]`
    pub(crate) weight: &'a Array,
    pub(crate) stride: i32,
    pub(crate) groups: i32,
    /// Zeros above and below the map, and on the left and right of it.
    pub(crate) padding: [(i32, i32); 2],
}

impl ConvolutionCall<'_> {
    /// By MLX's own operation.
    pub(super) fn whole(&self) -> mlx::Result<Array> {
        let [above, left] = self.padding;
        let (x, padding) = match above.0 == above.1 && left.0 == left.1 {
            true => (self.x.clone(), [above.0, left.0]),
            false => (self.padded()?, [0, 0]),
        };
        match (x.dims()?, self.weight.dims()?, padding) {
            // MLX has kernels for lines.
            ([_, _, 1, _], [_, _, 1, _], [padding, 0]) => {
                let weight = self.weight.squeeze(&[2])?;
                x.squeeze(&[2])?.conv1d(&weight, self.stride, padding, 1, self.groups)?.expand_dims(&[2])
            }
            _ => x.conv2d(self.weight, [self.stride; 2], padding, [1, 1], self.groups),
        }
    }

    /// As a product of the places that each output reads, laid end to end. Of one group. `product`: `x · Wᵀ`.
    pub(super) fn by_products(
        &self,
        product: impl Fn(&Array, &Array) -> mlx::Result<Array>,
    ) -> mlx::Result<Array> {
        let (x, [out, rows, columns, channels]) = (self.padded()?, self.weight.dims()?);
        let [count, height, width, _] = x.dims()?;
        let [down, across] =
            [(height, rows), (width, columns)].map(|(side, kernel)| (side - kernel) / self.stride + 1);
        let place = |row: i32, column: i32| {
            let last = [row + (down - 1) * self.stride + 1, column + (across - 1) * self.stride + 1];
            let (start, stop) = ([0, row, column, 0], [count, last[0], last[1], channels]);
            x.slice_strided(&start, &stop, &[1, self.stride, self.stride, 1])
        };
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        let places = places.map(|(row, column)| place(row, column)).collect::<mlx::Result<Vec<_>>>()?;
        let places = mlx::concatenate(&places.iter().collect::<Vec<_>>(), -1)?;
        product(&places, &self.weight.reshape(&[out, rows * columns * channels])?)
    }

    fn padded(&self) -> mlx::Result<Array> {
        let [above, left] = self.padding;
        self.x.pad(&[(0, 0), above, left, (0, 0)], 0.0)
    }
}
