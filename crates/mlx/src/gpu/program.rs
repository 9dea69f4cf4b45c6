//! CUDA kernels that we compile ourselves: in a tenth of a second instead of MLX's one to three, kept on disk for the next
//! process, and launched without their text, which MLX would copy and hash each time.
//!
//! MLX's own way of compiling is the fallback: a first small program shows whether this one works. Programs are loaded from a
//! folder that no other user can write to, or not at all.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use mlx_sys as sys;

use super::plan::Plan;
use super::program_folder;
use super::source::{Dialect, NextKernel, UPLOAD};
use crate::array::{Array, list, unlist};
use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::planned::{PlannedGpu, is_planned, planned_gpu};

/// Whether programs are used: not yet known, yes, or no.
static USED: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// Programs made in this process.
static COMPILED: AtomicU64 = AtomicU64::new(0);

/// Kernels that this process has compiled, or loaded from the compiler's cache. Those that MLX compiles are not counted.
pub fn compiled_kernels() -> u64 {
    COMPILED.load(Ordering::Relaxed)
}

/// A compiled program.
#[derive(Clone)]
struct Program {
    name: String,
    /// Inputs whose shape it reads.
    shapes: Vec<usize>,
}

/// A kernel with its constants, and the types of its arrays.
type Key = (&'static str, Vec<i32>);

/// A program, and its text.
struct Uncompiled {
    program: Program,
    text: String,
}

thread_local! {
    /// While graphs are built ahead: the programs that they need.
    static AHEAD: RefCell<Option<BTreeMap<Key, Uncompiled>>> = const { RefCell::new(None) };
    /// `None` for those that do not compile.
    static PROGRAMS: RefCell<BTreeMap<Key, Option<Program>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Lazy outputs of a plan; `None` where MLX must compile it.
pub(super) fn call(plan: &Plan, inputs: &[&Array]) -> Result<Option<Vec<Array>>> {
    if is_planned() {
        let program = Program { name: format!("omnibus_{}_planned", plan.kernel.name), shapes: Vec::new() };
        return launch(plan, &program, inputs).map(Some);
    }
    if !is_used() {
        return Ok(None);
    }
    let dtypes = inputs.iter().map(|input| input.dtype()).collect::<Result<Vec<Dtype>>>()?;
    match program(plan, &dtypes) {
        Some(program) => launch(plan, &program, inputs).map(Some),
        None => Ok(None),
    }
}

pub(super) fn is_used() -> bool {
    if is_planned() {
        return true;
    }
    match USED.load(Ordering::Relaxed) {
        YES => true,
        NO => false,
        _ => {
            let works = program_folder::is_trusted() && probe().unwrap_or(false);
            if !works {
                // What failed must not reach the next evaluation.
                let _failures = crate::eval::recover();
            }
            USED.store(if works { YES } else { NO }, Ordering::Relaxed);
            works
        }
    }
}

/// Compiles, launches and reads a small program.
fn probe() -> Result<bool> {
    let numbers: Vec<i32> = (0..512).collect();
    let host = Array::from_slice(&numbers, &[512])?;
    let plan = Plan {
        kernel: &UPLOAD,
        constants: Vec::new(),
        groups: [2, 1, 1],
        threads: 256,
        outputs: vec![(vec![512], Dtype::I32)],
    };
    let Some(program) = program(&plan, &[Dtype::I32]) else { return Ok(false) };
    let copied = launch(&plan, &program, &[&host])?.pop().ok_or_else(|| Error::new("a copy"))?;
    Ok(copied.to_vec::<i32>()? == numbers)
}

fn program(plan: &Plan, inputs: &[Dtype]) -> Option<Program> {
    let outputs = plan.outputs.iter().map(|(_, dtype)| *dtype as i32);
    let types = inputs.iter().map(|dtype| *dtype as i32).chain(outputs);
    let key: Key = (plan.kernel.name, plan.numbers().chain(types).chain([plan.threads]).collect());
    if let Some(known) = PROGRAMS.with_borrow(|programs| programs.get(&key).cloned()) {
        return known;
    }
    if let Some(noted) = noted(&key, || uncompiled(plan, inputs)) {
        return noted;
    }
    let compiled = uncompiled(plan, inputs).and_then(|program| {
        sys::cuda_program(&program.program.name, &program.text).ok()?;
        COMPILED.fetch_add(1, Ordering::Relaxed);
        Some(program.program)
    });
    PROGRAMS.with_borrow_mut(|programs| programs.insert(key, compiled.clone()));
    compiled
}

fn uncompiled(plan: &Plan, inputs: &[Dtype]) -> Option<Uncompiled> {
    let architecture = sys::cuda_architecture().ok()?;
    let mut hasher = DefaultHasher::new();
    (text(plan, "kernel", inputs), architecture, crate::device::version()).hash(&mut hasher);
    let name = format!("omnibus_{}_{:016x}", plan.kernel.name, hasher.finish());
    let text = text(plan, &name, inputs);
    Some(Uncompiled { program: Program { name, shapes: shapes_read(plan) }, text })
}

/// The program, which is compiled later, while graphs are built ahead; else `None`.
fn noted(key: &Key, made: impl FnOnce() -> Option<Uncompiled>) -> Option<Option<Program>> {
    AHEAD.with_borrow_mut(|ahead| {
        let ahead = ahead.as_mut()?;
        if let Some(known) = ahead.get(key) {
            return Some(Some(known.program.clone()));
        }
        let made = made();
        let program = made.as_ref().map(|made| made.program.clone());
        ahead.extend(made.map(|made| (key.clone(), made)));
        Some(program)
    })
}

/// Compiles the programs that graphs need on all cores: how many. The graphs that `build` makes must not be evaluated, and no
/// array of theirs may outlive it. Programs that do not compile are tried again when they are used. Does nothing, and builds
/// nothing, where programs are not used.
pub fn compile_ahead(build: impl FnOnce() -> Result<()>) -> Result<usize> {
    if Dialect::of(crate::device::backend()) != Some(Dialect::Cuda) || !is_used() {
        return Ok(0);
    }
    /// Ends the notes, also where a graph's construction panics.
    struct Noting;
    impl Drop for Noting {
        fn drop(&mut self) {
            AHEAD.set(None);
        }
    }
    AHEAD.set(Some(BTreeMap::new()));
    let noting = Noting;
    let built = build();
    let mut programs: Vec<Uncompiled> = AHEAD.take().unwrap_or_default().into_values().collect();
    drop(noting);
    // The longest first, which would else be waited for at the end.
    programs.sort_by_key(|program| program.text.len());
    let count = programs.len();
    on_all_cores(programs, |program| _ = sys::cuda_program(&program.program.name, &program.text));
    built.map(|()| count)
}

/// Most threads that compile: each takes a hundred megabytes.
const THREADS_MAX: usize = 16;

/// Does work from the end of a list on.
fn on_all_cores<T: Send>(work: Vec<T>, each: impl Fn(T) + Sync) {
    let work = Mutex::new(work);
    let next = || work.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let worker = || {
        while let Some(one) = next() {
            each(one);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX) {
            scope.spawn(worker);
        }
    });
}

/// Inputs whose shape the kernel reads.
fn shapes_read(plan: &Plan) -> Vec<usize> {
    let body = plan.kernel.source(Dialect::Cuda).body;
    let reads = |name: &str| body.contains(&format!("{name}_shape"));
    let inputs = plan.kernel.inputs.iter().enumerate();
    inputs.filter(|(_, name)| reads(name)).map(|(at, _)| at).collect()
}

/// In a graph the kernel after this one may begin now; elsewhere it does nothing.
const LAUNCH_NEXT: &str =
    "#if __CUDA_ARCH__ >= 900\nasm volatile(\"griddepcontrol.launch_dependents;\");\n#endif\n";
/// Waits for the kernel before, which a kernel may do later by itself.
const WAIT: &str = "GK_WAIT();\n";

/// Whether programs wait for the kernel before them by themselves.
pub(super) fn waits_itself() -> bool {
    if is_planned() {
        return true;
    }
    let architecture = sys::cuda_architecture().unwrap_or_default();
    let digits: String = architecture.chars().filter(char::is_ascii_digit).collect();
    digits.parse::<u32>().is_ok_and(|architecture| architecture >= 90)
}

/// Whether four simd groups multiply matrices together, as compute capability 9.0 alone does.
pub(super) fn has_warpgroups() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    match planned_gpu() {
        Some(gpu) => gpu == PlannedGpu::Nvidia,
        None => {
            *KNOWN.get_or_init(|| sys::cuda_architecture().is_ok_and(|architecture| architecture == "sm_90a"))
        }
    }
}

/// Axes of a shape that is passed.
const AXES: usize = 4;

fn launch(plan: &Plan, program: &Program, inputs: &[&Array]) -> Result<Vec<Array>> {
    let mut scalars = Vec::new();
    for at in &program.shapes {
        let shape = inputs.get(*at).map_or(&[][..], |input| input.shape());
        scalars.extend(shape.iter().copied().chain(std::iter::repeat(1)).take(AXES));
    }
    let shapes: Vec<i32> = plan.outputs.iter().flat_map(|(shape, _)| shape.iter().copied()).collect();
    let ranks: Vec<i32> = plan.outputs.iter().map(|(shape, _)| shape.len() as i32).collect();
    let dtypes: Vec<_> = plan.outputs.iter().map(|(_, dtype)| dtype.code()).collect();
    let (grid, threads) = (plan.grid(), [plan.threads, 1, 1]);
    let launch = sys::Launch { grid, threads, shared_bytes: plan.shared_bytes(), has_init: false, init: 0.0 };
    let arrays = list(inputs.iter().copied())?;
    let made = match is_planned() {
        true => sys::planned_program_call(&program.name, &arrays, &shapes, &ranks, &dtypes, &launch),
        false => sys::cuda_program_call(&program.name, &arrays, &shapes, &ranks, &dtypes, &scalars, &launch),
    };
    let made = made.map_err(|e| Error::op("cuda_program", inputs.iter().copied(), e.what()))?;
    Ok(unlist(&made))
}

/// The text of a plan's program, with one function of this name. Behind inputs and outputs its arguments are the shapes
/// that it reads. `inputs`: their types.
pub fn text(plan: &Plan, function: &str, inputs: &[Dtype]) -> String {
    let source = plan.kernel.source(Dialect::Cuda);
    let (mut parameters, mut shapes) = (Vec::new(), String::new());
    for (name, dtype) in plan.kernel.inputs.iter().zip(inputs) {
        parameters.push(format!("const {}* {name}", Dialect::Cuda.type_name(*dtype)));
    }
    for (name, (_, dtype)) in plan.kernel.outputs.iter().zip(&plan.outputs) {
        parameters.push(format!("{}* {name}", Dialect::Cuda.type_name(*dtype)));
    }
    for at in shapes_read(plan) {
        let Some(name) = plan.kernel.inputs.get(at) else { continue };
        let axes: Vec<String> = (0..AXES).map(|axis| format!("{name}_s{axis}")).collect();
        parameters.extend(axes.iter().map(|axis| format!("int {axis}")));
        shapes += &format!("const int {name}_shape[{AXES}] = {{{}}};\n", axes.join(", "));
    }
    let constants = plan.declarations(Dialect::Cuda);
    let (header, body, threads) = (source.header, source.body, plan.threads);
    let parameters = parameters.join(", ");
    let bounds = match (plan.resident(), plan.shared_bytes()) {
        (Some(groups), _) => format!("{threads}, {groups}"),
        // Registers change hands only in a group that has a multiprocessor to itself.
        (None, 1..) => format!("{threads}, 1"),
        (None, _) => threads.to_string(),
    };
    let next = match plan.kernel.next {
        NextKernel::BeginsEarly => LAUNCH_NEXT,
        NextKernel::BeginsBehind => "",
    };
    let wait = if body.contains(WAIT.trim_end()) { "" } else { WAIT };
    format!(
        "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\ntypedef int int32_t;\ntypedef unsigned int uint32_t;\ntypedef unsigned char uint8_t;\n{header}\
         extern \"C\" __global__ void __launch_bounds__({bounds}) {function}({parameters}) {{\n\
         {next}{wait}{constants}{shapes}{body}}}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_program_is_noted_once_while_graphs_are_built_ahead() {
        let key = ("kernel", vec![1]);
        let made = || {
            let program = Program { name: "program".to_owned(), shapes: vec![0] };
            Some(Uncompiled { program, text: "text".to_owned() })
        };
        assert!(noted(&key, || panic!("nothing is built ahead")).is_none());
        AHEAD.set(Some(BTreeMap::new()));
        let names: Vec<_> = (0..2).map(|_| noted(&key, made).flatten().map(|program| program.name)).collect();
        let noted = AHEAD.take().unwrap();
        assert_eq!(names, [Some("program".to_owned()), Some("program".to_owned())]);
        assert_eq!(noted.into_values().map(|made| made.text).collect::<Vec<_>>(), ["text"]);
    }

    #[test]
    fn all_work_is_done_once() {
        let done: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        on_all_cores((0..100).collect(), |at: usize| _ = done[at].fetch_add(1, Ordering::Relaxed));
        assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }
}
