//! What a threadgroup of Metal has room for: every plan that Metal may get keeps to it, whatever the shapes.
//!
//! Threadgroup memory is what a text declares with `GK_SHARED`; sizes are evaluated with the plan's constants.

use mlx::fast::TemplateValue;
use mlx::gpu::{
    AddNorm, Choose, ChooseEdited, Correction, Dialect, ExpertFactors, ExpertGroups, FewRows, HeadShape,
    JoinedTerm, LayerNorm, MatrixUnit, NormColumns, Operand, PagedAttention, Plan, PoolFormat, Projected,
    RmsNorm, Rotary, RotaryAxes, RotaryNorm, Route, RouteWeights, SinkLogits, WeightFormat,
};
use mlx::{Dtype, RotaryPairing, RouteScores};

use crate::emulator::Numbers;

/// Threads of a group: half of what Apple's GPUs take, which is left where a thread needs many registers.
const THREADS_MAX: i32 = 512;
/// Bytes of threadgroup memory of a group.
const BYTES_MAX: i64 = 32 << 10;
/// Lanes of a simd group.
const LANES: i32 = 32;

/// Asserts that a group of the plan can run on Apple's GPUs.
pub fn check(plan: &Plan) {
    let name = plan.kernel.name;
    assert!(plan.threads > 0 && plan.threads <= THREADS_MAX, "{name}: {} threads", plan.threads);
    assert_eq!(plan.threads % LANES, 0, "{name}: {} threads are no whole simd groups", plan.threads);
    let bytes = threadgroup_bytes(plan);
    assert!(bytes <= BYTES_MAX, "{name}: {bytes} bytes of threadgroup memory with {:?}", plan.constants);
    assert!(plan.groups.iter().all(|groups| *groups > 0), "{name}: {:?} groups", plan.groups);
}

/// Bytes of all arrays that the text declares.
fn threadgroup_bytes(plan: &Plan) -> i64 {
    let body = plan.kernel.source(Dialect::Metal).body;
    let names = Names { plan, body: &body };
    let declared = body.split("GK_SHARED(").skip(1).map(|rest| {
        let (inner, _) = rest.split_once(");").unwrap();
        let (element, rest) = inner.split_once(',').unwrap();
        let (_, count) = rest.split_once(',').unwrap();
        // Each array begins at a multiple of 16 bytes.
        (names.element_bytes(element.trim()) * names.value(count) + 15) / 16 * 16
    });
    declared.sum()
}

/// A plan's constants, and those that its text makes of them.
struct Names<'a> {
    plan: &'a Plan,
    body: &'a str,
}

impl Names<'_> {
    /// The value of an expression.
    fn value(&self, expression: &str) -> i64 {
        let mut rest = Expression { names: self, left: expression.trim() };
        let value = rest.choice();
        assert_eq!(rest.left, "", "{expression} is not understood");
        value
    }

    fn element_bytes(&self, name: &str) -> i64 {
        match name {
            "float" | "int" | "gk_uint" => 4,
            "gk_ulong" => 8,
            "unsigned short" => 2,
            _ => match self.plan.constants.iter().find(|(of, _)| *of == name) {
                Some((_, TemplateValue::Dtype(dtype))) => dtype.size_of() as i64,
                _ => panic!("an array of {name}"),
            },
        }
    }

    fn constant(&self, name: &str) -> i64 {
        let given = self.plan.constants.iter().find(|(of, _)| *of == name);
        match given {
            Some((_, TemplateValue::Int(value))) => i64::from(*value),
            Some((_, TemplateValue::Bool(value))) => i64::from(*value),
            Some((_, TemplateValue::Dtype(_))) => panic!("{name} is a type"),
            None => self.value(self.derived(name)),
        }
    }

    /// The expression of a constant of the text.
    fn derived(&self, name: &str) -> &str {
        let lines = self.body.lines().filter_map(|line| line.strip_prefix("constexpr "));
        let parts = lines.flat_map(|line| line.trim_end_matches(';').split(','));
        let mut found = parts.filter_map(|part| {
            let (left, right) = part.split_once(" = ")?;
            (left.split_whitespace().last()? == name).then_some(right)
        });
        found.next().unwrap_or_else(|| panic!("{} has no {name}", self.plan.kernel.name))
    }
}

/// What is left of an expression.
struct Expression<'a> {
    names: &'a Names<'a>,
    left: &'a str,
}

/// Binary operators, by how tightly they bind.
const OPERATORS: [&[&str]; 5] =
    [&["||"], &["&&"], &["<=", ">=", "==", "<", ">"], &["+", "-"], &["*", "/", "%"]];

impl Expression<'_> {
    fn take(&mut self, token: &str) -> bool {
        let rest = self.left.strip_prefix(token).map(str::trim_start);
        self.left = rest.unwrap_or(self.left);
        rest.is_some()
    }

    fn choice(&mut self) -> i64 {
        let condition = self.binary(0);
        if !self.take("?") {
            return condition;
        }
        let yes = self.choice();
        assert!(self.take(":"), "a choice without `:` before {}", self.left);
        let no = self.choice();
        if condition == 0 { no } else { yes }
    }

    fn binary(&mut self, level: usize) -> i64 {
        let Some(operators) = OPERATORS.get(level) else { return self.primary() };
        let mut value = self.binary(level + 1);
        while let Some(operator) = operators.iter().find(|operator| self.left.starts_with(**operator)) {
            self.take(operator);
            let right = self.binary(level + 1);
            value = match *operator {
                "||" => i64::from(value != 0 || right != 0),
                "&&" => i64::from(value != 0 && right != 0),
                "<=" => i64::from(value <= right),
                ">=" => i64::from(value >= right),
                "==" => i64::from(value == right),
                "<" => i64::from(value < right),
                ">" => i64::from(value > right),
                "+" => value + right,
                "-" => value - right,
                "*" => value * right,
                "/" => value / right,
                _ => value % right,
            };
        }
        value
    }

    fn primary(&mut self) -> i64 {
        if self.take("(") {
            let value = self.choice();
            assert!(self.take(")"), "no `)` before {}", self.left);
            return value;
        }
        let end = self.left.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let (word, rest) = self.left.split_at(end.unwrap_or(self.left.len()));
        self.left = rest.trim_start();
        word.parse().unwrap_or_else(|_| self.names.constant(word))
    }
}

/// One of some values.
fn one<T: Copy>(numbers: &mut Numbers, of: &[T]) -> T {
    of[numbers.below(of.len())]
}

fn within(numbers: &mut Numbers, least: i32, most: i32) -> i32 {
    least + numbers.below((most - least + 1) as usize) as i32
}

const DTYPES: [Dtype; 3] = [Dtype::Bf16, Dtype::F16, Dtype::F32];
const OPERANDS: [Operand; 2] = [Operand::Whole, Operand::Parts];

fn attention(numbers: &mut Numbers) -> Vec<Plan> {
    let kv_heads = within(numbers, 1, 8);
    let shape = HeadShape {
        heads: kv_heads * within(numbers, 1, 40),
        kv_heads,
        head_dim: within(numbers, 1, 72) * one(numbers, &[1, 2, 8]),
    };
    let dtype = one(numbers, &DTYPES);
    let packed = PoolFormat::Packed { bits: one(numbers, &[4, 8]), group: one(numbers, &[32, 64]) };
    let pool = one(numbers, &[PoolFormat::Float(dtype), packed]);
    let attention = PagedAttention {
        dtype,
        pool,
        shape,
        block_size: one(numbers, &[16, 32]),
        window: None,
        sink_tokens: 0,
        scale: 0.1,
        softcap: None,
        sink_logits: SinkLogits::Absent,
        unit: MatrixUnit::SimdGroup,
    };
    let rotary = Rotary {
        dtype,
        pool,
        shape,
        projected: one(
            numbers,
            &[Projected::QueriesKeysValues, Projected::QueriesAndKeys, Projected::Queries],
        ),
        dims: shape.head_dim / 2 * 2,
        order: RotaryPairing::Halves,
        magnitude: 1.0,
        axes: RotaryAxes::One,
        clip: None,
        norm: RotaryNorm::Absent,
        value_norm: RotaryNorm::Absent,
        temperature: None,
        operand: one(numbers, &OPERANDS),
    };
    let mut plans: Vec<Plan> = rotary.plan(within(numbers, 1, 600)).into_iter().collect();
    if attention.is_supported() {
        let (rows, splits) = (within(numbers, 1, 600), within(numbers, 1, 40));
        plans.extend(attention.decode_split(Dialect::Metal, rows, rows, splits));
        plans.push(attention.chunks(Dialect::Metal, rows, rows));
    }
    plans
}

fn norms(numbers: &mut Numbers) -> Vec<Plan> {
    let (dtype, rows, eps) = (one(numbers, &DTYPES), within(numbers, 1, 600), 1e-6);
    let width = 8 * within(numbers, 1, 8_200);
    let operand = one(numbers, &OPERANDS);
    let joined = one(numbers, &[JoinedTerm::Plain, JoinedTerm::Scaled(2.0), JoinedTerm::Normed(1e-6)]);
    let sum = AddNorm { dtype, rows, width, eps, operand, joined };
    let normed = [width / 3 / 8 * 8, width / 4 / 8 * 8];
    let plans = [
        sum.plan(),
        sum.plan_of_sum(),
        RmsNorm { dtype, rows, width, eps, weights: 1 }.plan(),
        LayerNorm { dtype, rows, width, eps, has_bias: true }.plan(),
        NormColumns { dtype, rows, width, normed, eps, operand }.plan(),
    ];
    plans.into_iter().flatten().collect()
}

fn choices(numbers: &mut Numbers) -> Vec<Plan> {
    let rows = within(numbers, 1, 600);
    let count = within(numbers, 1, 32);
    let route = Route {
        dtype: one(numbers, &DTYPES),
        rows,
        experts: count * within(numbers, 1, 1024 / count),
        top_k: within(numbers, 1, 32),
        scores: RouteScores::Softmax,
        softcap: None,
        correction: Correction::Absent,
        groups: ExpertGroups { count, kept: within(numbers, 1, count), best: 1 },
        weights: RouteWeights::Scores,
        factor: 1.0,
        factors: ExpertFactors::Absent,
    };
    let mut plans = vec![Choose { rows }.plan(), ChooseEdited { rows }.plan()];
    plans.extend(route.plan());
    plans
}

fn products(numbers: &mut Numbers) -> Vec<Plan> {
    let group = one(numbers, &[32, 64, 128]);
    let product = FewRows {
        dtype: one(numbers, &[Dtype::Bf16, Dtype::F16]),
        format: one(numbers, &[WeightFormat::Four { group }, WeightFormat::Eight { group }]),
        rows: within(numbers, 17, 64),
        inputs: 128 * within(numbers, 1, 100),
        outputs: within(numbers, 1, 400) * one(numbers, &[1, 8, 80]),
        has_bias: false,
        unit: MatrixUnit::SimdGroup,
    };
    product.plans(Dialect::Metal).unwrap_or_default()
}

#[test]
fn groups_of_every_shape_fit_metals_limits() {
    let mut numbers = Numbers(34);
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..2_000 {
        let of_each = [attention, norms, choices, products];
        let plans: Vec<Plan> = of_each.iter().flat_map(|plans| plans(&mut numbers)).collect();
        for plan in &plans {
            check(plan);
            *seen.entry(plan.kernel.name).or_insert(0) += 1;
        }
    }
    assert!(seen.values().all(|times| *times > 100) && seen.len() >= 14, "{seen:?}");
}

#[test]
fn sizes_are_evaluated_as_the_language_does() {
    let plan = Choose { rows: 1 }.plan();
    let body = "constexpr int NT = NS * 32, NP = 8;\nconstexpr bool MANY = NT > 500 && NP < 8;";
    let names = Names { plan: &plan, body };
    for (expression, value) in [
        ("NS * NP + NP", 136),
        ("2 + 3 * (4 - 1)", 11),
        ("MANY ? NT : NP", 8),
        ("NP == 8 ? NT >= 512 ? 1 : 2 : 3", 1),
        ("NT / 3 % 7", 2),
        ("MANY || NP <= 8", 1),
    ] {
        assert_eq!(names.value(expression), value, "{expression}");
    }
    // Two lists of tokens, counts and sums of eight parts and 16 simd groups, and what is left of them.
    assert_eq!(threadgroup_bytes(&plan), 2 * 4 * 2048 + 16 + 136 * 4 + 136 * 8 + 64 + 64);
}
