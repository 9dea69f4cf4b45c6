//! Whether step times are learned: with noise, with hiccups, and when the machine changes.

use omnibus_core::sim::Rng;
use omnibus_core::{CostModel, StepLoad, Tick};

/// Prices of a machine: of a step, a decoded token, a prompt's token and a position, in microseconds.
struct Truth {
    step: f64,
    decode: f64,
    prefill: f64,
    context: f64,
}

const MACHINE: Truth = Truth { step: 9_000.0, decode: 400.0, prefill: 150.0, context: 0.02 };

impl Truth {
    fn of(&self, load: &StepLoad) -> f64 {
        let context = self.context * (load.decode_context + load.prefill_context);
        self.step + self.decode * load.decode_tokens + self.prefill * load.prefill_tokens + context
    }
}

fn some_load(rng: &mut Rng) -> StepLoad {
    let streams = rng.within(0..=12);
    let decodes = (0..streams)
        .map(|_| StepLoad::decode(rng.within(10..=3000)))
        .fold(StepLoad::default(), StepLoad::plus);
    if streams > 0 && rng.one_in(2) {
        return decodes;
    }
    decodes.plus(StepLoad::prefill(rng.within(0..=2000), rng.within(2..=512)))
}

/// Lets a model see steps whose times are off by up to `noise`, one in `hiccups` of them by a factor of twenty.
fn watch(model: &mut CostModel, rng: &mut Rng, truth: &Truth, steps: usize, (noise, hiccups): (f64, u64)) {
    for _ in 0..steps {
        let load = some_load(rng);
        let factor = if rng.one_in(hiccups) { 20.0 } else { 1.0 + noise * (2.0 * rng.unit() - 1.0) };
        model.learn(&load, (truth.of(&load) * factor) as Tick);
    }
}

/// The mean error on loads like those it saw.
fn error(model: &CostModel, truth: &Truth) -> f64 {
    let mut rng = Rng::new(99);
    let off = (0..500).map(|_| {
        let load = some_load(&mut rng);
        (model.predict(&load) / truth.of(&load) - 1.0).abs()
    });
    off.sum::<f64>() / 500.0
}

#[test]
fn a_machine_is_learned_within_a_hundred_steps() {
    let (mut model, mut rng) = (CostModel::default(), Rng::new(1));
    watch(&mut model, &mut rng, &MACHINE, 100, (0.05, 0));
    assert!(error(&model, &MACHINE) < 0.06, "{model:#?}");
    assert!(model.error_ratio() < 0.15, "{model:#?}");
}

#[test]
fn outliers_are_not_learned() {
    let (mut model, mut rng) = (CostModel::default(), Rng::new(2));
    watch(&mut model, &mut rng, &MACHINE, 400, (0.05, 25));
    assert!(error(&model, &MACHINE) < 0.1, "{model:#?}");
}

#[test]
fn a_slower_machine_is_learned_again() {
    let (mut model, mut rng) = (CostModel::default(), Rng::new(3));
    watch(&mut model, &mut rng, &MACHINE, 400, (0.05, 0));
    let slower = Truth { step: 20_000.0, decode: 900.0, prefill: 300.0, context: 0.05 };
    watch(&mut model, &mut rng, &slower, 600, (0.05, 0));
    assert!(error(&model, &slower) < 0.1, "{model:#?}");
}

#[test]
fn background_load_is_learned_within_some_steps_and_unlearned_as_fast() {
    let (mut model, mut rng) = (CostModel::default(), Rng::new(6));
    watch(&mut model, &mut rng, &MACHINE, 400, (0.02, 0));
    let slower = Truth { step: 12_600.0, decode: 560.0, prefill: 210.0, context: 0.028 };
    watch(&mut model, &mut rng, &slower, 8, (0.02, 0));
    assert!(error(&model, &slower) < 0.05, "{model:#?}");
    watch(&mut model, &mut rng, &MACHINE, 12, (0.02, 0));
    assert!(error(&model, &MACHINE) < 0.05, "{model:#?}");
}

#[test]
fn no_coefficient_is_ever_negative_and_nothing_known_costs_nothing() {
    let (mut model, mut rng) = (CostModel::default(), Rng::new(4));
    assert_eq!(model.predict(&StepLoad::prefill(0, 100)), 0.0);
    for _ in 0..300 {
        let load = some_load(&mut rng);
        model.learn(&load, rng.below(50_000));
        for part in [&model.decode, &model.prefill] {
            let least = part.base_us.min(part.token_us).min(part.context_us);
            assert!(least >= 0.0 && model.predict(&load).is_finite(), "{model:#?}");
        }
    }
}

#[test]
fn what_fits_a_time_is_as_much_as_the_model_says() {
    let (mut model, mut rng) = (CostModel::default(), Rng::new(5));
    watch(&mut model, &mut rng, &MACHINE, 200, (0.0, 0));
    let beside = StepLoad::decode(500);
    let tokens = model.prefill_within(&beside, 100, 512, 40_000.0);
    let time = |tokens| model.predict(&beside.plus(StepLoad::prefill(100, tokens)));
    assert!(
        (1..512).contains(&tokens) && time(tokens) <= 40_000.0 && time(tokens + 1) > 40_000.0,
        "{tokens}"
    );
}

#[test]
fn a_knee_in_the_cost_of_rows_is_learned_and_kept_while_other_numbers_run() {
    // Up to four rows cost little, more of them as much as prefill.
    let of = |rows: usize| 9_000.0 + 100.0 * rows as f64 + 700.0 * rows.saturating_sub(4) as f64;
    let load = |rows: usize| (0..rows).fold(StepLoad::default(), |load, _| load.plus(StepLoad::decode(100)));
    let (mut model, mut rng) = (CostModel::default(), Rng::new(7));
    let mut watch = |model: &mut CostModel, most: usize, steps: usize| {
        for _ in 0..steps {
            let rows = rng.within(1..=most);
            let noise = 1.0 + 0.04 * (rng.unit() - 0.5);
            model.learn(&load(rows), (of(rows) * noise) as Tick);
        }
    };
    let check = |model: &CostModel| {
        for rows in 1..=16 {
            let off = model.predict(&load(rows)) / of(rows) - 1.0;
            assert!(off.abs() < 0.08, "{rows} rows: {off} off: {model:#?}");
        }
    };
    watch(&mut model, 16, 400);
    check(&model);
    watch(&mut model, 4, 300);
    check(&model);
}
