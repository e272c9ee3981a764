//! Pictures of figures, made here as SVG: bars over hours or days, with the same figures as a table for whoever cannot
//! see them. Words stand beside the picture, not in it, so that they keep their size on a phone.

use super::page::number;
use crate::clock::Ms;
use maud::{Markup, html};

/// One bar.
pub struct Bar {
    /// When its hour or day began.
    pub at: Ms,
    /// Its height; `None`: nothing is known of it.
    pub value: Option<f64>,
}

/// A chart.
pub struct Chart<'a> {
    /// For links between picture and words.
    pub id: &'a str,
    /// What it shows.
    pub title: &'a str,
    /// The figure that counts, in words.
    pub now: String,
    /// The bars, oldest first.
    pub bars: &'a [Bar],
    /// How a value is said.
    pub say: fn(f64) -> String,
    /// How a time is said.
    pub when: fn(Ms) -> String,
    /// What to say instead of a picture without bars.
    pub empty: &'a str,
}

/// A whole number.
pub fn count(value: f64) -> String {
    // Counts of jobs are far below 2^53, and not negative.
    number(value as u64)
}

/// An hour of a day.
pub fn hour(at: Ms) -> String {
    said(at, "%-d %b, %H:%M")
}

/// A day.
pub fn day(at: Ms) -> String {
    said(at, "%-d %b")
}

fn said(at: Ms, form: &str) -> String {
    jiff::Timestamp::from_millisecond(at.0).map_or_else(|_| at.rfc3339(), |at| at.strftime(form).to_string())
}

/// Bars in a box of 24 or 30 columns.
pub fn bars(chart: &Chart<'_>) -> Markup {
    let Chart { id, title, now, bars, say, when, empty } = chart;
    let most = bars.iter().filter_map(|bar| bar.value).fold(0.0, f64::max);
    let (width, height) = (bars.len() * 10, 100.0);
    let tall = |value: f64| if most > 0.0 { (value / most * height).max(1.5) } else { 0.0 };
    html! {
        figure.chart {
            figcaption {
                h3 { (title) }
                p.figure { (now) }
            }
            @if most > 0.0 {
                p.most aria-hidden="true" { (say(most)) }
                svg role="img" aria-label={ (title) ": " (now) "; at most " (say(most)) }
                    viewBox={ "0 0 " (width) " 100" } preserveAspectRatio="none" {
                    line.ground x1="0" y1="100" x2=(width) y2="100" {}
                    @for (i, bar) in bars.iter().enumerate() {
                        // Its place, so that a few bars among many hours do not hang in an empty box.
                        rect.slot x=(i * 10 + 1) y="0" width="8" height="100" {}
                        @if let Some(value) = bar.value.filter(|v| *v > 0.0) {
                            rect x=(i * 10 + 1) y=(format!("{:.1}", height - tall(value))) width="8"
                                height=(format!("{:.1}", tall(value))) {
                                title { (when(bar.at)) " UTC: " (say(value)) }
                            }
                        }
                    }
                }
                p.ends aria-hidden="true" {
                    @if let Some(first) = bars.first() { span { (when(first.at)) } }
                    span { "now" }
                }
                details id={ (id) "-text" } {
                    summary { "As a table" }
                    table {
                        thead { tr { th scope="col" { "From (UTC)" } th.n scope="col" { (title) } } }
                        tbody {
                            @for bar in bars.iter().rev().filter(|bar| bar.value.is_some()) {
                                tr { td { (when(bar.at)) } td.n { (say(bar.value.unwrap_or(0.0))) } }
                            }
                        }
                    }
                }
            } @else {
                p.none { (empty) }
            }
        }
    }
}

/// A share of a whole, drawn as a line of that length beside its figure.
pub fn share(value: u64, most: u64) -> Markup {
    let length = if most == 0 { 0.0 } else { value as f64 / most as f64 * 100.0 };
    html! {
        svg.share viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true" focusable="false" {
            rect x="0" y="0" width=(format!("{:.1}", length.max(0.5))) height="8" {}
        }
    }
}
