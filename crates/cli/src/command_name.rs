//! The name of each command, apart from the table of commands so that settings can refer to it.

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandName {
    /// `omnibus serve`
    Serve,
    /// `omnibus generate`
    Generate,
    /// `omnibus chat`
    Chat,
    /// `omnibus run`
    Run,
    /// `omnibus ps`
    Ps,
    /// `omnibus launch`
    Launch,
    /// `omnibus replay`
    Replay,
    /// `omnibus batch`
    Batch,
    /// `omnibus convert`
    Convert,
    /// `omnibus perplexity`
    Perplexity,
    /// `omnibus models`
    Models,
    /// `omnibus plan`
    Plan,
    /// `omnibus doctor`
    Doctor,
    /// `omnibus bench serve`
    BenchServe,
    /// `omnibus bench prefix`
    BenchPrefix,
    /// `omnibus bench engine`
    BenchEngine,
    /// `omnibus bench speculation`
    BenchSpeculation,
    /// `omnibus bench energy`
    BenchEnergy,
    /// `omnibus bench report`
    BenchReport,
    /// `omnibus bench compare`
    BenchCompare,
    /// `omnibus bench sim`
    BenchSim,
    /// `omnibus cache prompt`
    CachePrompt,
    /// `omnibus cache ls`
    CacheList,
    /// `omnibus cache rm`
    CacheRemove,
    /// `omnibus pull`
    Pull,
    /// `omnibus push`
    Push,
    /// `omnibus ls`
    ListModels,
    /// `omnibus rm`
    RemoveModels,
    /// `omnibus mcp ls`
    McpList,
    /// `omnibus mcp call`
    McpCall,
    /// `omnibus service install`
    ServiceInstall,
    /// `omnibus service uninstall`
    ServiceUninstall,
    /// `omnibus service status`
    ServiceStatus,
    /// `omnibus service logs`
    ServiceLogs,
    /// `omnibus completions`
    Completions,
}
