//! Computations for a GPU that is not there: arrays of every operation are built, and nothing is computed, so that what a GPU
//! would launch can be listed on any machine.
//!
//! Invariant: only the calling thread plans, and only inside [`on_planned_gpu`] or [`on_planned_mac`]. No array that was built there is evaluated.

use std::cell::Cell;

/// What is planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlannedGpu {
    /// An NVIDIA GPU of compute capability 9.0.
    Nvidia,
    /// A Mac's GPU.
    Mac,
}

thread_local! {
    static PLANNED: Cell<Option<PlannedGpu>> = const { Cell::new(None) };
}

/// Builds something as for an NVIDIA GPU of compute capability 9.0. Evaluations inside it do nothing.
pub fn on_planned_gpu<T>(build: impl FnOnce() -> T) -> T {
    on_planned(PlannedGpu::Nvidia, build)
}

/// Builds something as for a Mac's GPU. Evaluations inside it do nothing.
pub fn on_planned_mac<T>(build: impl FnOnce() -> T) -> T {
    on_planned(PlannedGpu::Mac, build)
}

fn on_planned<T>(gpu: PlannedGpu, build: impl FnOnce() -> T) -> T {
    /// Ends the planning, also where the construction panics.
    struct Planning(Option<PlannedGpu>);
    impl Drop for Planning {
        fn drop(&mut self) {
            PLANNED.set(self.0);
        }
    }
    let _planning = Planning(PLANNED.replace(Some(gpu)));
    build()
}

/// Whether the calling thread plans.
pub(crate) fn is_planned() -> bool {
    planned_gpu().is_some()
}

/// What the calling thread plans for; `None` where it computes.
pub(crate) fn planned_gpu() -> Option<PlannedGpu> {
    PLANNED.get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activation::Activation;
    use crate::array::Array;
    use crate::device;
    use crate::dtype::Dtype;
    use crate::gpu::{GateLayout, Gated, MatrixUnit, Operand, OtherArrays, StepArrays, StepTrace};

    #[test]
    fn a_launch_is_listed_on_a_machine_without_a_gpu() {
        let before = device::backend();
        let launches = on_planned_gpu(|| {
            assert_eq!(device::backend(), device::Backend::Cuda);
            assert_eq!(MatrixUnit::of_device(), MatrixUnit::Warpgroup);
            let x = Array::ones(&[3, 128], Dtype::Bf16).unwrap();
            let (gate, layout, operand) = (Activation::Silu, GateLayout::Joined, Operand::Whole);
            let kernel = Gated { dtype: Dtype::Bf16, rows: 3, width: 64, gate, layout, operand };
            let y = kernel.plan().unwrap().call(&[&x, &x]).unwrap().remove(0);
            let y = y.square().unwrap();
            y.eval().unwrap();
            let arrays =
                StepArrays { inputs: &[&x], constants: &[], borrowed: &[], others: OtherArrays::Refused };
            let trace = StepTrace::new(&[&y], &arrays).unwrap();
            assert_eq!(trace.graphs(), 1);
            trace.launches()
        });
        assert_eq!(device::backend(), before);
        let [gated, square] = launches.as_slice() else { panic!("{launches:?}") };
        assert_eq!((gated.name.as_str(), square.name.as_str()), ("gated", "Square"));
        assert_eq!(gated.grid.map(|grid| grid.groups[1]), Some(3));
        assert_eq!((gated.bytes, square.bytes), (3 * 128 * 2 + 3 * 64 * 2, 2 * 3 * 64 * 2));
        assert_eq!(square.grid, None);
    }

    #[test]
    fn a_mac_has_no_kernels_for_tensor_cores() {
        on_planned_mac(|| {
            assert_eq!(device::backend(), device::Backend::Metal);
            assert_eq!(MatrixUnit::of_device(), MatrixUnit::SimdGroup);
        });
        assert_ne!(device::backend(), device::Backend::Metal);
    }
}
