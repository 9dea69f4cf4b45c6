//! Steps during which kernels or graphs were built.

use super::*;
use crate::worker::device_call::{Device, DeviceCall, DeviceReply};

/// A device that has built something for each step.
struct Building(Box<dyn Device>);

impl Device for Building {
    fn call(&mut self, call: DeviceCall) -> mlx::Result<DeviceReply> {
        let mut reply = self.0.call(call);
        if let Ok(DeviceReply::Step(result)) = &mut reply {
            result.built = true;
        }
        reply
    }
}

/// Steps of which the cost model knows, after all jobs.
fn learned(loaded: Loaded) -> u64 {
    let (_commands, inbox) = channel();
    let mut engine = EngineLoop::new(loaded, inbox, Box::new(|_| Ok(())));
    jobs().into_iter().for_each(|job| engine.submit(job));
    while !engine.jobs.is_empty() {
        assert!(engine.iterate().is_continue());
    }
    let cost = engine.scheduler.cost();
    cost.decode.samples + cost.prefill.samples
}

#[test]
fn the_cost_model_learns_from_steps_that_build_nothing() {
    let loaded = || load(&embedded(), settings());
    assert!(learned(loaded()) > 30);
    let loaded = loaded();
    let device = loaded.device.wrap(Building);
    assert_eq!(learned(Loaded { device, ..loaded }), 0);
}
