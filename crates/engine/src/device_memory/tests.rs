//! Limits and plans of devices that are not there.

#![allow(clippy::unwrap_used)]

use super::*;

const GB: u64 = 1_000_000_000;
const GIB: u64 = 1 << 30;

/// A CPU without any report of the system.
const NOTHING: DeviceMemory = DeviceMemory {
    backend: Backend::Cpu,
    total_bytes: None,
    free_bytes: None,
    working_set_bytes: None,
    host_bytes: None,
    group_bytes: None,
    allocator_bytes: 8 * GIB,
    requested_bytes: None,
    macos_major: None,
};

/// A Mac of 16 GiB, of which Metal recommends two thirds.
fn mac(macos_major: u32) -> DeviceMemory {
    DeviceMemory {
        backend: Backend::Metal,
        total_bytes: Some(16 * GIB),
        working_set_bytes: Some(16 * GIB * 2 / 3),
        macos_major: Some(macos_major),
        ..NOTHING
    }
}

/// An H200 in a host with 100 GB to spare.
fn h200() -> DeviceMemory {
    DeviceMemory {
        backend: Backend::Cuda,
        total_bytes: Some(144 * GB),
        host_bytes: Some(100 * GB),
        group_bytes: Some(50 * GB),
        ..NOTHING
    }
}

fn cpu() -> DeviceMemory {
    DeviceMemory { host_bytes: Some(24 * GB), ..NOTHING }
}

/// The default plan of a model on a device.
fn plan(device: &DeviceMemory, weights_bytes: u64, scratch_bytes: u64) -> MemoryPlan {
    let limit = device.limit();
    let headroom_bytes = limit.as_ref().map_or(0, |limit| device.headroom_bytes(limit.bytes));
    let plan = MemoryPlan { limit, weights_bytes, scratch_bytes, headroom_bytes, ..MemoryPlan::default() };
    MemoryPlan { kv_bytes: device.default_kv_bytes(plan.left_bytes()), ..plan }
}

/// What the plan takes, headroom included.
fn taken(plan: &MemoryPlan) -> u64 {
    plan.expected_peak_bytes() + plan.headroom_bytes
}

#[test]
fn nothing_is_wired_unless_it_is_asked_for() {
    let device = mac(15);
    let full = plan(&device, 5 * GB, GB);
    assert_eq!(taken(&full), 8 * GIB, "the default KV cache takes what is left of the limit");
    let off = device.allocator_limits(&full, WiredLimit::default());
    let memory_bytes = Some(8 * GIB);
    assert_eq!(off, AllocatorLimits { cache_bytes: Some(2 * GB), memory_bytes, wired_bytes: None });
    let wired = |limit| device.allocator_limits(&full, limit).wired_bytes;
    assert_eq!(wired(WiredLimit::Weights), Some(5 * GB));
    assert_eq!(wired(WiredLimit::Bytes(GB)), Some(GB));
    assert_eq!(wired(WiredLimit::Bytes(100 * GB)), memory_bytes, "no more than the plan's limit");
}

#[test]
fn a_mac_before_macos_15_has_no_wired_limit() {
    let (old, new) = (mac(14), mac(26));
    let plan = plan(&old, 5 * GB, GB);
    let limits = |device: &DeviceMemory| device.allocator_limits(&plan, WiredLimit::Weights);
    assert_eq!(limits(&old), AllocatorLimits { wired_bytes: None, ..limits(&new) });
    assert!(limits(&new).wired_bytes.is_some());
    assert_eq!(limits(&DeviceMemory { macos_major: None, ..old }).wired_bytes, None);
}

#[test]
fn a_mac_leaves_memory_to_other_programs() {
    // Gibibytes of the machine, and what a model may use of them.
    for (total, most) in [(8, 4), (16, 8), (24, 16), (64, 48), (128, 96), (512, 384)] {
        // Raised by the user with `iogpu.wired_limit_mb`.
        let device =
            DeviceMemory { total_bytes: Some(total * GIB), working_set_bytes: Some(total * GIB), ..mac(15) };
        let expected = limit(most * GIB, "the Mac's memory without the system's part");
        assert_eq!(device.limit(), Some(expected), "{total} GiB");
        let asked = DeviceMemory { requested_bytes: Some(total * GIB - GIB), ..device };
        assert_eq!(asked.limit(), Some(limit(total * GIB - GIB, "--memory-limit")), "the user may take more");
    }
    let large = DeviceMemory { total_bytes: Some(36 * GIB), working_set_bytes: Some(24 * GIB), ..mac(15) };
    assert_eq!(large.limit(), Some(limit(24 * GIB, "the GPU's recommended working set")));
    let asked = DeviceMemory { requested_bytes: Some(30 * GIB), ..large };
    assert_eq!(asked.limit(), large.limit(), "what Metal has not is not given");
}

#[test]
fn a_cuda_gpu_keeps_its_headroom_free() {
    let device = h200();
    let plan = plan(&device, 16 * GB, 2 * GB);
    assert_eq!(plan.limit, Some(limit(144 * GB, "the GPU's memory")), "the host's group does not count");
    assert_eq!(taken(&plan), 144 * GB);
    assert!(plan.headroom_bytes > 11 * GB, "{plan}");
    let memory_bytes = Some(plan.expected_peak_bytes());
    assert_eq!(
        device.allocator_limits(&plan, WiredLimit::Off),
        AllocatorLimits { cache_bytes: Some(4 * GB), memory_bytes, wired_bytes: None }
    );
    let small = MemoryPlan { kv_bytes: GB, ..plan.clone() };
    assert_eq!(
        device.allocator_limits(&small, WiredLimit::Off).memory_bytes,
        memory_bytes,
        "what is free may be used"
    );
    assert_eq!(device.swap_bytes(plan.left_bytes()), Some(100 * GB), "the host's memory is another one");
}

#[test]
fn a_large_gpu_keeps_room_to_launch_ahead() {
    assert_eq!(h200().scratch_bytes(2 * GB), 6 * GB);
    assert_eq!(h200().scratch_bytes(8 * GB), 144 * GB / 10, "no more than a tenth");
    let small = DeviceMemory { requested_bytes: Some(10 * GB), ..h200() };
    assert_eq!(small.scratch_bytes(2 * GB), 2 * GB, "a small one computes as it can");
    assert_eq!((cpu().scratch_bytes(GB), mac(15).scratch_bytes(GB)), (GB, GB));
}

#[test]
fn a_cpu_keeps_mlxs_limits() {
    let device = cpu();
    let plan = plan(&device, 3 * GB, GB);
    assert_eq!(plan.limit, Some(limit(24 * GB, "available memory")));
    assert_eq!((plan.headroom_bytes, plan.kv_bytes), (12 * GB / 10, CPU_BYTES_MAX));
    assert_eq!(device.allocator_limits(&plan, WiredLimit::Off), AllocatorLimits::default());
    assert_eq!(device.swap_bytes(plan.left_bytes()), plan.left_bytes());
}

#[test]
fn the_least_limit_counts() {
    let grouped = DeviceMemory { group_bytes: Some(4 * GB), ..cpu() };
    assert_eq!(grouped.limit(), Some(limit(4 * GB, "the control group's memory limit")));
    assert_eq!(NOTHING.limit(), Some(limit(8 * GIB, "MLX's share of the machine's memory")));
    let requested = |bytes, device| DeviceMemory { requested_bytes: Some(bytes), ..device };
    assert_eq!(requested(GB, grouped).limit(), Some(limit(GB, "--memory-limit")));
    assert_eq!(requested(5 * GB, grouped).limit(), grouped.limit());
    let unknown = DeviceMemory { backend: Backend::Cuda, ..NOTHING };
    assert_eq!((unknown.limit(), unknown.default_kv_bytes(None)), (None, UNKNOWN_BYTES));
    assert_eq!(requested(GB, unknown).limit(), Some(limit(GB, "--memory-limit")));
}

#[test]
fn a_large_gpu_under_a_small_limit_plans_as_a_small_one() {
    let working_set = mac(15).limit().unwrap().bytes;
    let device = DeviceMemory { requested_bytes: Some(working_set), ..h200() };
    // Qwen3-4B in 4 bits fits a Mac of 16 GB. Llama-3.1-8B in bf16 does not: nothing is left for the KV cache.
    let plans = |weights| (plan(&device, weights, GB), plan(&mac(15), weights, GB));
    let (here, there) = plans(23 * GB / 10);
    assert_eq!((taken(&here), here.kv_bytes), (working_set, there.kv_bytes));
    assert_eq!(
        device.allocator_limits(&here, WiredLimit::Off).memory_bytes,
        Some(working_set - here.headroom_bytes)
    );
    let (here, there) = plans(16 * GB);
    assert_eq!((here.kv_bytes, there.kv_bytes), (0, 0));
}

#[test]
fn the_version_of_macos_is_the_products() {
    let list = "<dict>\n<key>ProductBuildVersion</key>\n<string>24G90</string>\n\
                <key>ProductVersion</key>\n\t<string>15.6.1</string>\n</dict>";
    assert_eq!(major_of(list), Some(15));
    assert_eq!(major_of("<key>ProductVersion</key><string>26</string>"), Some(26));
    assert_eq!(major_of("<key>ProductVersion</key>"), None);
}

#[test]
fn what_other_processes_use_of_a_gpu_is_not_planned() {
    let shared = DeviceMemory { free_bytes: Some(40 * GB), ..h200() };
    assert_eq!(shared.limit(), Some(limit(40 * GB, "the GPU's free memory")));
    assert_eq!(taken(&plan(&shared, 16 * GB, GB)), 40 * GB);
    let asked = DeviceMemory { requested_bytes: Some(60 * GB), ..shared };
    assert_eq!(asked.limit().map(|limit| limit.bytes), Some(40 * GB));
}
