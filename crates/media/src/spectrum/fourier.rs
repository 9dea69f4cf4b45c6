//! The spectrum of one frame of samples.

use std::sync::Arc;

use realfft::{RealFftPlanner, RealToComplex};

/// A Fourier transform of real samples.
pub(super) struct Fourier {
    transform: Arc<dyn RealToComplex<f64>>,
    input: Vec<f64>,
    output: Vec<realfft::num_complex::Complex<f64>>,
    scratch: Vec<realfft::num_complex::Complex<f64>>,
}

impl Fourier {
    pub fn new(length: usize) -> Fourier {
        let transform = RealFftPlanner::new().plan_fft_forward(length);
        let (input, output, scratch) =
            (transform.make_input_vec(), transform.make_output_vec(), transform.make_scratch_vec());
        Fourier { transform, input, output, scratch }
    }

    /// Real and imaginary parts of the bins from 0 to half of the rate. A frame that is too short is padded with 0.
    pub fn bins(&mut self, frame: impl IntoIterator<Item = f64>) -> impl Iterator<Item = (f64, f64)> {
        self.input.fill(0.0);
        for (to, sample) in self.input.iter_mut().zip(frame) {
            *to = sample;
        }
        let done = self.transform.process_with_scratch(&mut self.input, &mut self.output, &mut self.scratch);
        assert!(done.is_ok(), "the buffers have the lengths of the transform");
        self.output.iter().map(|bin| (bin.re, bin.im))
    }
}
