//! The report as one page: tables and plots, with nothing from elsewhere.
//!
//! Invariant: no script and no link. Names come from the command line, and are escaped.

use std::fmt::Write as _;

use super::interval::Interval;
use super::published::{PUBLISHED, Published};
use super::results::{Metric, Report, TABLE};
use crate::settings::load_kind::LoadKind;

const STYLE: &str = "\
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #8884; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
svg { display: block; margin: 1rem 0; } svg text { font-size: 12px; fill: currentColor; }
.bar { fill: #3b7dd8; } .whisker { stroke: currentColor; }
";

/// Metrics that have a plot, one bar for each server.
const PLOTTED: &[Metric] =
    &[Metric::TtftP95, Metric::TpotP50, Metric::OutputThroughput, Metric::Goodput, Metric::TokensPerJoule];
const WIDTH: f64 = 720.0;
const LABEL: f64 = 210.0;
const ROW: f64 = 22.0;

/// The page.
pub fn page(report: &Report) -> String {
    let title = format!("{}: report", escaped(&report.model));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n<h1>{title}</h1>\n"
    );
    page += &head(report);
    page += &published(report);
    for load in report.loads() {
        let _ = write!(page, "<h2>{}</h2>\n<p>{}</p>\n", load.name(), load.about());
        page += &table(report, load);
        for metric in PLOTTED {
            page += &plot(report, load, *metric);
        }
    }
    page
}

fn head(report: &Report) -> String {
    let Report { version, machine, rounds, requests, input_len, output_len, .. } = report;
    let machine = escaped(machine);
    let mut head = format!(
        "<p>omnibus {version} on {machine}. {rounds} rounds of {requests} requests for each load, servers in turns; prompts of \
         {input_len} words, answers of at most {output_len} tokens.</p>\n\
         <p>Each number is the mean of the rounds with half of its 95 % confidence interval (Student's t).</p>\n\
         <table><tr><th>server</th><th>setup</th></tr>\n"
    );
    for server in &report.contenders {
        let setup = escaped(&server.setup);
        let _ = writeln!(head, "<tr><td>{}</td><td>{setup}</td></tr>", escaped(&server.name));
    }
    head + "</table>\n"
}

/// The published ratios that the report has loads for.
fn published(report: &Report) -> String {
    let row = |row: &Published| {
        let (here, low, high) = row.here(report)?;
        let Published { source, what, theirs, .. } = row;
        let (here, low, high) = (number(here), number(low), number(high));
        Some(format!(
            "<tr><td>{source}</td><td>{what}</td><td>{theirs}</td><td>{here} ({low} to {high})</td></tr>\n"
        ))
    };
    let rows: String = PUBLISHED.iter().filter_map(row).collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h2>Beside published numbers</h2>\n<p>Of other models on other machines: how far batching, caches and drafts carry.</p>\n\
         <table><tr><th>source</th><th>ratio</th><th>published</th><th>here</th></tr>\n{rows}</table>\n"
    )
}

fn table(report: &Report, load: LoadKind) -> String {
    let mut table = "<table><tr><th>metric</th>".to_owned();
    for server in &report.contenders {
        let _ = write!(table, "<th>{}</th>", escaped(&server.name));
    }
    table += "</tr>\n";
    for (metric, label, _) in TABLE {
        let values: Vec<Option<Interval>> =
            report.contenders.iter().map(|server| report.value(&server.name, load, *metric)).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let _ = write!(table, "<tr><td>{label}</td>");
        for value in values {
            let _ = write!(table, "<td>{}</td>", value.map(shown).unwrap_or_default());
        }
        table += "</tr>\n";
    }
    table + "</table>\n"
}

/// A bar for each server, with its interval; empty where none has the metric.
fn plot(report: &Report, load: LoadKind, metric: Metric) -> String {
    let bars = report
        .contenders
        .iter()
        .filter_map(|server| Some((server.name.as_str(), report.value(&server.name, load, metric)?)));
    let bars: Vec<(&str, Interval)> = bars.collect();
    let end = |value: &Interval| value.mean + value.half.unwrap_or_default();
    let most = bars.iter().map(|(_, value)| end(value)).fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let across = |value: f64| LABEL + (WIDTH - LABEL - 90.0) * value.max(0.0) / most;
    let height = ROW * (bars.len() + 1) as f64;
    let label = metric.label();
    let mut svg = format!(
        "<svg width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{label}\">\n<text x=\"0\" y=\"15\">{label}</text>\n"
    );
    for (at, (name, value)) in bars.iter().enumerate() {
        let top = ROW * (at + 1) as f64;
        let (middle, baseline) = (top + 8.0, top + 12.0);
        let _ = writeln!(
            svg,
            "<text x=\"0\" y=\"{baseline}\">{}</text><rect class=\"bar\" x=\"{LABEL}\" y=\"{top}\" width=\"{:.1}\" height=\"16\"/>\
             <text x=\"{:.1}\" y=\"{baseline}\">{}</text>",
            escaped(name),
            across(value.mean) - LABEL,
            across(end(value)) + 6.0,
            number(value.mean),
        );
        if let Some(half) = value.half {
            let _ = writeln!(
                svg,
                "<line class=\"whisker\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>",
                across(value.mean - half),
                across(value.mean + half),
            );
        }
    }
    svg + "</svg>\n"
}

fn shown(value: Interval) -> String {
    match value.half {
        Some(half) => format!("{} ± {}", number(value.mean), number(half)),
        None => number(value.mean),
    }
}

/// Three digits that matter.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::results::{Described, Measurement};
    use super::*;

    #[test]
    fn a_page_has_tables_and_plots_and_nothing_from_elsewhere() {
        let server = "a<b>";
        let value = |metric, mean| Measurement {
            contender: server.to_owned(),
            load: LoadKind::Closed,
            metric,
            value: Interval { mean, half: Some(1.0) },
        };
        let page = page(&Report {
            version: "1".to_owned(),
            model: "m".to_owned(),
            machine: "here".to_owned(),
            rounds: 3,
            requests: 4,
            input_len: 5,
            output_len: 6,
            concurrency: Some(1),
            request_rate: None,
            contenders: vec![Described { name: server.to_owned(), setup: String::new() }],
            values: vec![value(Metric::TtftP95, 12.0), value(Metric::CachedShare, 0.5)],
        });
        assert!(!page.contains("published"), "no load has a published number");
        assert!(page.contains("<td>TTFT p95, ms</td><td>12.0 ± 1.00</td>"), "{page}");
        assert_eq!(page.matches("<svg").count(), 1);
        assert!(page.contains("a&lt;b&gt;") && !page.contains("a<b>"));
        assert!(!page.contains("tokens/J") && !page.contains("<script") && !page.contains("http"));
    }

    #[test]
    fn a_page_has_the_published_numbers_that_it_has_loads_for() {
        let tokens = |load, mean| Measurement {
            contender: "omnibus".to_owned(),
            load,
            metric: Metric::OutputThroughput,
            value: Interval { mean, half: None },
        };
        let values = vec![tokens(LoadKind::Streams1, 10.0), tokens(LoadKind::Streams2, 15.0)];
        let page = page(&Report { values, ..Report::default() });
        assert!(page.contains("<td>1.8</td><td>1.50 (1.50 to 1.50)</td>"), "{page}");
        assert!(!page.contains("mlxcel"), "its loads were not sent");
    }
}
