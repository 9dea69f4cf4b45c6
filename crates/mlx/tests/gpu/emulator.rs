//! Compiles kernels for the CPU and runs them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{compiler, limits};
use mlx::gpu::{Dialect, Plan, cuda_program_text};
use mlx::{Dtype, bf16, f16};

/// An array's bytes.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub dtype: Dtype,
    pub shape: Vec<i32>,
    pub bytes: Vec<u8>,
}

impl Tensor {
    pub fn floats(dtype: Dtype, shape: &[i32], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| match dtype {
            Dtype::Bf16 => bf16::from_f32(*value).to_ne_bytes().to_vec(),
            Dtype::F16 => f16::from_f32(*value).to_ne_bytes().to_vec(),
            _ => value.to_ne_bytes().to_vec(),
        });
        Self { dtype, shape: shape.to_vec(), bytes: bytes.collect() }
    }

    pub fn ints(values: &[i32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        Self { dtype: Dtype::I32, shape: vec![values.len() as i32], bytes }
    }

    /// Memory that nothing has written.
    pub fn garbage(shape: &[i32], dtype: Dtype) -> Self {
        let len: i32 = shape.iter().product();
        Self { dtype, shape: shape.to_vec(), bytes: vec![0xff; len as usize * dtype.size_of()] }
    }

    pub fn to_f64(&self) -> Vec<f64> {
        let each = self.bytes.chunks_exact(self.dtype.size_of());
        let value = |bytes: &[u8]| match self.dtype {
            Dtype::Bf16 => bf16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
            Dtype::F16 => f16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
            Dtype::F32 => f64::from(f32::from_ne_bytes(bytes.try_into().unwrap())),
            _ => f64::from(i32::from_ne_bytes(bytes.try_into().unwrap())),
        };
        each.map(value).collect()
    }
}

/// Numbers around zero, from a seed.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    /// As a dtype holds them.
    pub fn tensor(&mut self, dtype: Dtype, shape: &[i32]) -> Tensor {
        let len: i32 = shape.iter().product();
        let values: Vec<f32> = (0..len).map(|_| self.below(4001) as f32 / 1000.0 - 2.0).collect();
        Tensor::floats(dtype, shape, &values)
    }
}

/// Float32 parts of rows, `[3, ..]`, whose sum rounds to them.
pub fn in_parts(rows: &Tensor, numbers: &mut Numbers) -> Tensor {
    let shape = [&[3], rows.shape.as_slice()].concat();
    let values: Vec<f32> = rows.to_f64().iter().map(|x| *x as f32).collect();
    let [first, second] = [0, 1].map(|_| numbers.tensor(Dtype::F32, &rows.shape).to_f64());
    let rest = values.iter().zip(&first).zip(&second).map(|((x, a), b)| x - (*a as f32 + *b as f32));
    let parts = first.iter().chain(&second).map(|x| *x as f32).chain(rest);
    Tensor::floats(Dtype::F32, &shape, &parts.collect::<Vec<_>>())
}

/// A text that is replaced in a kernel, to see that a test notices.
pub type Break = Option<(&'static str, &'static str)>;

/// Several plans of one kernel, compiled into one program.
pub struct Program {
    name: String,
    program: PathBuf,
}

impl Program {
    /// `plans`: each with the types of its inputs.
    pub fn new(name: &str, dialect: Dialect, plans: &[(Plan, Vec<Dtype>, Break)]) -> Self {
        let text = program_text(dialect, plans);
        match dialect {
            Dialect::Cuda => write_cuda_texts(name, plans),
            Dialect::Metal => {
                plans.iter().for_each(|(plan, _, _)| limits::check(plan));
                write_metal_text(name, plans);
            }
        }
        let program = compiler::program(name, dialect, &text);
        Self { name: name.to_owned(), program }
    }

    /// Runs a plan: its inputs afterwards, then its outputs. The error is what the emulator says.
    pub fn run(&self, at: usize, plan: &Plan, inputs: &[Tensor], seed: i32) -> Result<Vec<Tensor>, String> {
        let mut arrays = inputs.to_vec();
        arrays.extend(plan.outputs.iter().map(|(shape, dtype)| Tensor::garbage(shape, *dtype)));
        let [x, y, z] = plan.grid();
        let head = [arrays.len() as i32, seed, x, y, z, plan.threads];
        let mut file: Vec<u8> = head.iter().flat_map(|n| n.to_ne_bytes()).collect();
        for array in &arrays {
            file.extend((array.bytes.len() as i64).to_ne_bytes());
            let dims = array.shape.iter().copied().chain(std::iter::repeat(1)).take(8);
            file.extend(dims.flat_map(i32::to_ne_bytes));
            file.extend(&array.bytes);
        }
        let launch = format!("{}.{at}.{seed}.{:?}.launch", self.name, std::thread::current().id());
        let path = compiler::own_folder().join(launch);
        fs::write(&path, file).unwrap();
        let output = Command::new(&self.program).arg(at.to_string()).arg(&path).output().unwrap();
        if !output.status.success() {
            return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
        }
        let results = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let mut rest = results.as_slice();
        for array in &mut arrays {
            let (bytes, others) = rest.split_at(array.bytes.len());
            array.bytes = bytes.to_vec();
            rest = others;
        }
        Ok(arrays)
    }
}

/// A folder for another compiler's texts.
fn texts_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// For a compiler with address spaces: `cargo xtask metal-kernels` compiles these texts.
fn write_metal_text(name: &str, plans: &[(Plan, Vec<Dtype>, Break)]) {
    let sound: Vec<_> = plans.iter().filter(|(_, _, broken)| broken.is_none()).collect();
    let Some((Plan { kernel, .. }, ..)) = sound.first() else { return };
    let mut text = kernel.source(Dialect::Metal).header;
    for (at, (plan, types, _)) in sound.iter().enumerate() {
        let body = plan.kernel.source(Dialect::Metal).body;
        text += &function_text(at, Dialect::Metal, plan, types, &body).0;
    }
    fs::write(texts_folder("metal").join(format!("{}.{name}.cpp", kernel.name)), text).unwrap();
}

/// For NVIDIA's compiler: `cargo xtask cuda-kernels` compiles these texts.
fn write_cuda_texts(name: &str, plans: &[(Plan, Vec<Dtype>, Break)]) {
    let folder = texts_folder("cuda");
    for (at, (plan, types, _)) in plans.iter().enumerate().filter(|(_, (_, _, broken))| broken.is_none()) {
        let text = cuda_program_text(plan, "kernel", types);
        fs::write(folder.join(format!("{}.{name}.{at}.cu", plan.kernel.name)), text).unwrap();
    }
}

fn program_text(dialect: Dialect, plans: &[(Plan, Vec<Dtype>, Break)]) -> String {
    let mut text = plans[0].0.kernel.source(dialect).header;
    let mut cases = String::new();
    for (at, (plan, inputs, broken)) in plans.iter().enumerate() {
        let mut body = plan.kernel.source(dialect).body;
        if let Some((old, new)) = broken {
            // The text has no indentation.
            let [old, new] =
                [old, new].map(|text| text.lines().map(str::trim_start).collect::<Vec<_>>().join("\n"));
            assert!(body.contains(&old), "{} has no `{old}`", plan.kernel.name);
            body = body.replace(&old, &new);
        }
        let (function, call) = function_text(at, dialect, plan, inputs, &body);
        text += &function;
        writeln!(cases, "case {at}: emu::run(l.grid, l.threads, l.seed, [&] {{ {call}; }}); break;").unwrap();
    }
    text + "int main(int, char** argv) {\n  emu::Launch l;\n  l.load(argv[2]);\n  ++emu_launch;\n"
        + &format!("  switch (atoi(argv[1])) {{\n{cases}  }}\n  l.store(argv[2]);\n}}\n")
}

/// The function that MLX would write around a body, and the call of it.
fn function_text(at: usize, dialect: Dialect, plan: &Plan, inputs: &[Dtype], body: &str) -> (String, String) {
    let kernel = plan.kernel;
    assert_eq!(inputs.len(), kernel.inputs.len(), "{}: one type for each input", kernel.name);
    let [space, of_shapes] = match dialect {
        Dialect::Cuda => [""; 2],
        Dialect::Metal => ["device ", "constant "],
    };
    let of = |dtype| dialect.type_name(dtype);
    let (mut parameters, mut arguments) = (Vec::new(), Vec::new());
    for (i, (name, dtype)) in kernel.inputs.iter().zip(inputs).enumerate() {
        let dtype = of(*dtype);
        parameters.push(format!("const {space}{dtype}* {name}"));
        arguments.push(format!("(const {dtype}*)l.arrays[{i}]"));
        if body.contains(&format!("{name}_shape")) {
            parameters.push(format!("const {of_shapes}int* {name}_shape"));
            arguments.push(format!("l.shapes[{i}].data()"));
        }
    }
    for (i, (name, (_, dtype))) in kernel.outputs.iter().zip(&plan.outputs).enumerate() {
        let dtype = of(*dtype);
        parameters.push(format!("{space}{dtype}* {name}"));
        arguments.push(format!("({dtype}*)l.arrays[{}]", inputs.len() + i));
    }
    let (parameters, arguments) = (parameters.join(", "), arguments.join(", "));
    let constants = plan.declarations(dialect);
    let function = format!("static void k{at}({parameters}) {{\n{constants}{body}\n}}\n");
    (function, format!("k{at}({arguments})"))
}

/// Relative error of a result, infinite if it is not finite.
pub fn error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    if !found.iter().all(|x| x.is_finite()) {
        return f64::INFINITY;
    }
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| a - b));
    difference / norm(&mut expected.iter().copied()).max(1e-30)
}

/// What rounding to a type may cost.
pub fn tolerance(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Bf16 => 1e-2,
        Dtype::F16 => 2e-3,
        _ => 3e-5,
    }
}
