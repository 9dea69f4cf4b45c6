//! `[models.NAME]` in `omnibus.toml`: a model beside others, with settings of its own.

/// One table.
#[derive(Debug, Clone, Default)]
pub struct ModelTable {
    /// The name that it is served under.
    pub name: String,
    /// Its directory, or its id on the hub; else its name is one of both.
    pub model: Option<String>,
    /// Other names.
    pub aliases: Vec<String>,
    /// When it is loaded.
    pub residency: Residency,
    /// Settings of the model and its engine, which are checked already.
    pub settings: toml::Table,
}

/// When a model is loaded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Residency {
    /// Whether it stays when another needs its memory.
    pub pin: bool,
    /// Whether it is loaded at the start.
    pub preload: bool,
    /// Seconds that it stays loaded after its last request; negative for ever.
    pub ttl_s: Option<f64>,
}
