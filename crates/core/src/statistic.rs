//! Rows of the tables of statistics: the metric's name, what it means, and how it adds up.
//!
//! Invariant: a field that only grows is in exactly one row, so sums, metrics and their page cannot differ.

/// A number of the statistics `S`.
#[derive(Debug)]
pub struct Statistic<S> {
    /// As the metric of clients; `None` for a total that only `GET /v1/status` has.
    pub metric: Option<Metric>,
    /// Where the number is.
    pub source: Source<S>,
}

/// A metric's name and meaning. Several rows of one name are series with different labels.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// With its base unit, as `omnibus_swap_used_bytes`.
    pub name: &'static str,
    /// One line without an end.
    pub help: &'static str,
    /// The label of this series, if the metric has several.
    pub label: Option<(&'static str, &'static str)>,
}

/// Where a number is, and how it adds up.
#[derive(Debug)]
pub enum Source<S> {
    /// A field that only grows. A successor's numbers continue it: they are added.
    Total(fn(&mut S) -> Total<'_>),
    /// Grows, because it is computed from totals.
    Derived(fn(&S) -> u64),
    /// The present value.
    Gauge(fn(&S) -> f64),
}

/// A field that only grows.
#[derive(Debug)]
pub enum Total<'a> {
    /// Things, tokens, bytes.
    Count(&'a mut u64),
    /// Time.
    Seconds(&'a mut f64),
}

impl<S> Statistic<S> {
    /// A field that only grows, as a metric.
    pub const fn total(name: &'static str, help: &'static str, field: fn(&mut S) -> Total<'_>) -> Self {
        Self { metric: Some(Metric { name, help, label: None }), source: Source::Total(field) }
    }

    /// A field that only grows, without a metric.
    pub const fn sum(field: fn(&mut S) -> Total<'_>) -> Self {
        Self { metric: None, source: Source::Total(field) }
    }

    /// A field that only grows, as one series of a metric, which is a name and its help.
    pub const fn series(
        (name, help): (&'static str, &'static str),
        label: (&'static str, &'static str),
        field: fn(&mut S) -> Total<'_>,
    ) -> Self {
        Self { metric: Some(Metric { name, help, label: Some(label) }), source: Source::Total(field) }
    }

    /// A number that is computed from totals, as one series of a metric.
    pub const fn derived_series(
        (name, help): (&'static str, &'static str),
        label: (&'static str, &'static str),
        value: fn(&S) -> u64,
    ) -> Self {
        Self { metric: Some(Metric { name, help, label: Some(label) }), source: Source::Derived(value) }
    }

    /// A number that rises and falls.
    pub const fn gauge(name: &'static str, help: &'static str, value: fn(&S) -> f64) -> Self {
        Self { metric: Some(Metric { name, help, label: None }), source: Source::Gauge(value) }
    }
}

/// Adds the totals of `before` to those of `sum`. Other numbers stay.
pub fn add_totals<S: Clone>(table: &[Statistic<S>], sum: &mut S, before: &S) {
    let mut before = before.clone();
    for row in table {
        let Source::Total(field) = row.source else { continue };
        match (field(sum), field(&mut before)) {
            (Total::Count(sum), Total::Count(before)) => *sum += *before,
            (Total::Seconds(sum), Total::Seconds(before)) => *sum += *before,
            (Total::Count(_), Total::Seconds(_)) | (Total::Seconds(_), Total::Count(_)) => {
                unreachable!("a row's field has one type")
            }
        }
    }
}
