//! The cxx bridge between kernels and the primitive that runs them.

use super::Kernel;

pub use ffi::kernel_arrays;

/// Runs a kernel; called on the stream's worker. Addresses come from arrays that MLX keeps alive.
fn kernel_run(kernel: &Kernel, inputs: &[usize], outputs: &[usize]) {
    let inputs: Vec<_> = inputs.iter().map(|p| *p as *const u8).collect();
    let outputs: Vec<_> = outputs.iter().map(|p| *p as *mut u8).collect();
    // SAFETY: the crate `mlx` checked the shapes when it built the node, and the primitive made all inputs dense.
    unsafe { kernel.run(&inputs, &outputs) }
}

fn kernel_name(kernel: &Kernel) -> &'static str {
    kernel.name()
}

fn kernel_same(a: &Kernel, b: &Kernel) -> bool {
    a == b
}

/// Makes a strided input dense. `shape` and `strides` (in elements) have one entry per axis.
fn copy_dense(from: usize, to: usize, shape: &[i32], strides: &[i64], bytes: usize) {
    let Some((&inner, outer)) = shape.split_last() else {
        // SAFETY: a scalar is one element.
        return unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
    };
    let (inner, step) = (inner as usize, strides[outer.len()]);
    let lines: usize = outer.iter().map(|n| *n as usize).product();
    for line in 0..lines {
        let (mut rest, mut at) = (line as i64, 0i64);
        for (n, stride) in outer.iter().zip(strides).rev() {
            at += rest % *n as i64 * stride;
            rest /= *n as i64;
        }
        for i in 0..inner {
            // SAFETY: shape and strides are the array's own, so all elements are inside its buffer.
            unsafe {
                let source = (from as *const u8).offset((at + i as i64 * step) as isize * bytes as isize);
                std::ptr::copy_nonoverlapping(source, (to as *mut u8).add((line * inner + i) * bytes), bytes);
            }
        }
    }
}

#[allow(missing_docs)]
#[cxx::bridge(namespace = "mlx_shim")]
mod ffi {
    extern "Rust" {
        type Kernel;
        fn kernel_run(kernel: &Kernel, inputs: &[usize], outputs: &[usize]);
        fn kernel_name(kernel: &Kernel) -> &'static str;
        fn kernel_same(a: &Kernel, b: &Kernel) -> bool;
        fn copy_dense(from: usize, to: usize, shape: &[i32], strides: &[i64], bytes: usize);
    }

    unsafe extern "C++" {
        include!("mlx-sys/shim/kernels.h");

        #[namespace = "mlx::core"]
        #[cxx_name = "array"]
        type Array = crate::Array;

        /// The outputs of a kernel, lazy, on the CPU stream of the calling thread. `shapes` holds
        /// the outputs' shapes end to end, `ranks` their lengths, `dtypes` MLX's codes. With `shares[i]` not
        /// negative, output `i` is that input's own buffer, changed in place.
        fn kernel_arrays(
            kernel: Box<Kernel>,
            inputs: &CxxVector<Array>,
            shapes: &[i32],
            ranks: &[i32],
            dtypes: &[u8],
            shares: &[i32],
        ) -> Result<UniquePtr<CxxVector<Array>>>;
    }
}
