//! The part of `serve --print-config` that is in the models' files: the values of sampling parameters that requests leave
//! out.

use omnibus_engine::SamplingDefaults;

use crate::error::Error;
use crate::model;
use crate::settings::Config;

/// Comments, a line for each parameter. A model that would have to be downloaded first gets a line that says so.
pub fn printed(config: &Config, models: &[String]) -> Result<String, Error> {
    let embedded = models.is_empty().then_some(None);
    let models = embedded.into_iter().chain(models.iter().map(|model| Some(model.as_str())));
    let lines = models.map(|model| of_model(config, model)).collect::<Result<Vec<_>, _>>()?;
    Ok(lines.concat().join("\n"))
}

fn of_model(config: &Config, name: Option<&str>) -> Result<Vec<String>, Error> {
    let shown = name.unwrap_or("the embedded model");
    if let Some(id) = name.and_then(model::hub_id) {
        return Ok(vec![format!("# sampling defaults of {} are read when it is served", id.repository)]);
    }
    let files = model::source(name, &[])?.files();
    let defaults = SamplingDefaults::read(&config.engine.generation_config, &files).map_err(Error::failed)?;
    let rows = defaults.values().map(|(parameter, value, published)| {
        let assignment = format!("# {} = {value}", parameter.name());
        let source = if published { "generation_config.json" } else { "default" };
        format!("{assignment:<40} # {source}")
    });
    Ok(std::iter::once(format!("# sampling defaults of {shown}:")).chain(rows).collect())
}
