//! How far an encoder's features and a text model's logits are from a fixture's.

use mlx::Array;
use omnibus_model::encoders::{self, Encoder, Features};
use omnibus_model::{Kernels, Model, Quantization, families};

use super::{Medium, PictureFixture, distance};
use crate::golden::Prompt;
use crate::golden::ways::{Distance, distances_of};

impl PictureFixture {
    /// `None` if its family has no encoder here.
    pub fn encoder(&self, kernels: Kernels) -> Result<Option<Encoder>, String> {
        let say = |error: &dyn std::fmt::Display| format!("{}: {error}", self.name);
        let Some(blueprint) = encoders::read(&self.config).map_err(|error| say(&error))? else {
            return Ok(None);
        };
        let quantization = Quantization::read(&self.config).map_err(|error| say(&error))?;
        let encoder = Encoder::build(blueprint, quantization, self.weights(), kernels);
        encoder.map(Some).map_err(|error| say(&error))
    }

    pub fn model(&self, kernels: Kernels) -> Result<Model, String> {
        let say = |error: &dyn std::fmt::Display| format!("{}: {error}", self.name);
        let blueprint = families::read(&self.config).map_err(|error| say(&error))?;
        let quantization = Quantization::read(&self.config).map_err(|error| say(&error))?;
        Model::build(blueprint, quantization, self.weights(), kernels).map_err(|error| say(&error))
    }

    /// Of the features of every case whose pixels the fixture has.
    pub fn distances_of_features(&self, encoder: &Encoder) -> mlx::Result<Vec<Distance>> {
        let mut distances = Vec::new();
        for case in self.cases.iter().filter(|case| self.has_features_to_follow(case)) {
            let Some(want) = self.features_of(Medium::Picture, case) else { continue };
            let Some(Features { rows, deepstack }) = self.encoded(case, encoder) else { continue };
            let mut furthest = distance(&rows, &want);
            if let Some(deep) = self.array("deepstack_visual_embeds", case) {
                let found = mlx::stack(&deepstack.iter().collect::<Vec<&Array>>(), 0)?;
                furthest = furthest.max(distance(&found, deep));
            }
            distances.push(Distance { way: "features", distance: furthest });
        }
        Ok(distances)
    }

    /// Of the logits of every case, with the reference's features, in every way.
    pub fn distances_of_logits(
        &self,
        model: &Model,
        encoder: Option<&Encoder>,
    ) -> mlx::Result<Vec<Distance>> {
        let prompt = |case: &String| self.prompt(case, encoder);
        let prompts: Vec<Prompt> = self.cases.iter().filter_map(prompt).collect();
        distances_of(&prompts, model)
    }

    /// Of the logits of encoder and text model together, where transformers is followed.
    pub fn distances_of_both(&self, model: &Model, encoder: &Encoder) -> mlx::Result<Vec<Distance>> {
        let prompt = |case: &String| self.whole_prompt(case, encoder);
        let prompts: Vec<Prompt> = self.cases.iter().filter_map(prompt).collect();
        let distances = distances_of(&prompts, model)?;
        let furthest = distances.iter().map(|found| found.distance).reduce(f32::max);
        Ok(furthest.map(|distance| Distance { way: "encoder and text", distance }).into_iter().collect())
    }
}
