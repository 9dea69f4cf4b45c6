//! Embedders: golden hidden states of each token of texts, alone and packed in one batch.

use omnibus_model::Kernels;
use omnibus_testing::reference;

use crate::cores::each;
use crate::golden::embedders::EmbedderFixture;
use crate::golden::fixtures;

fn check(kernels: Kernels) {
    let compared = each(fixtures(&reference::embedders(), &[]).unwrap(), |path| {
        let fixture = EmbedderFixture::read(&path, kernels).unwrap_or_else(|error| panic!("{error}"));
        let found = fixture.distances();
        for found in &found {
            let bound = fixture.bound_of(found.way);
            let (name, way) = (&fixture.name, found.way);
            assert!(found.distance <= bound, "{name} {way}: {} of {bound}", found.distance);
        }
        found.len()
    });
    assert!(compared.iter().sum::<usize>() > 0);
}

#[test]
fn mlx_gives_the_golden_states_of_embedders() {
    check(Kernels::Mlx);
}

#[test]
fn the_cpu_primitives_give_the_golden_states_of_embedders() {
    check(Kernels::Cpu);
}
