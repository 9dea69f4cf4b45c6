//! The part of `serve --print-config` that is in the models' files: the values of sampling parameters that requests leave
//! out.

use omnibus_engine::SamplingDefaults;

use crate::error::Error;
use crate::model;
use crate::settings::{Config, config_of};

/// Comments, a line for each parameter. A model that would have to be downloaded first gets a line that says so.
pub fn printed(config: &Config, models: &[String]) -> Result<String, Error> {
    let tables = &config.pool.tables;
    let is_table = |name: &&String| tables.iter().any(|table| table.name == **name);
    let has_none = models.is_empty() && tables.is_empty() && config.pool.folder.is_none();
    let embedded = has_none.then(|| of_model(config, None));
    let named = models.iter().filter(|name| !is_table(name)).map(|model| of_model(config, Some(model)));
    let of_tables = tables.iter().map(|table| {
        of_model(&config_of(table, config)?, Some(table.model.as_deref().unwrap_or(&table.name)))
    });
    let lines = embedded.into_iter().chain(named).chain(of_tables).collect::<Result<Vec<_>, _>>()?;
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
