//! The span of log lines that are about one model of several.

use tracing::Span;

/// The span of a model's engine, which names the model; none where it need not be named.
pub(crate) fn of_model(model: Option<&str>) -> Span {
    // Of the highest level, so that errors have it whatever the filter is.
    model.map_or_else(Span::none, |model| tracing::error_span!("engine", model))
}

/// What a new thread runs, in the span of the thread that starts it.
pub(crate) fn in_this<T>(body: impl FnOnce() -> T + Send + 'static) -> impl FnOnce() -> T + Send + 'static {
    let span = Span::current();
    move || span.in_scope(body)
}
