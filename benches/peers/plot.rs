//! The medians as bars, in SVG. It carries its own ground, light or dark as the reader's system is.

use std::fmt::Write;

use crate::figures::Unit;

/// Bars of one unit, on a logarithmic axis that is the same for all panels of it.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) what: &'static str,
    pub(crate) unit: Unit,
    pub(crate) bars: Vec<(&'static str, f64)>,
}

const PANEL: f64 = 450.0;
const MARGIN: f64 = 16.0;
/// Where bars begin, and how long the longest is.
const ZERO: f64 = 164.0;
const LONGEST: f64 = 210.0;
const ROW: f64 = 21.0;
/// Of a panel, beside its bars.
const HEAD: f64 = 46.0;
const FOOT: f64 = 26.0;

const STYLE: &str = "<style>
text { font: 12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif; fill: #24292f }
.title { font-size: 13px; font-weight: 600 }
.small { font-size: 11px; fill: #57606a }
.ours { font-weight: 600 }
.ground { fill: #ffffff; stroke: #d0d7de }
.grid { stroke: #d8dee4 }
.bar { fill: #a9b4c0 }
.bar.ours { fill: #c2410c }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.small { fill: #9198a1 }
.ground { fill: #0d1117; stroke: #3d444d }
.grid { stroke: #30363d }
.bar { fill: #59636e }
.bar.ours { fill: #f0883e }
}
</style>
";

/// Two panels beside each other, and so on downwards.
pub(crate) fn drawn(panels: &[Panel]) -> String {
    let mut body = String::new();
    let mut top = MARGIN;
    for pair in panels.chunks(2) {
        let mut height: f64 = 0.0;
        for (panel, column) in pair.iter().zip([0.0, 1.0]) {
            body += &panel.drawn(&Axis::of(panels, panel.unit), MARGIN + column * PANEL, top);
            height = height.max(panel.height());
        }
        top += height;
    }
    let note = "Medians, on logarithmic axes: less is better. benches/results.md has the figures, and what each of them does.";
    top += MARGIN;
    body += &text(MARGIN, top, "small", note);
    top += MARGIN;
    let width = 2.0 * (PANEL + MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {top}\" width=\"{width}\" height=\"{top}\" role=\"img\" \
         aria-label=\"rlock run and its peers: times, server commands and memory\">\n{STYLE}\
         <rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n{body}</svg>\n",
        width - 1.0,
        top - 1.0
    )
}

impl Panel {
    fn height(&self) -> f64 {
        HEAD + FOOT + self.bars.iter().fold(0.0, |sum, _| sum + ROW)
    }

    fn drawn(&self, axis: &Axis, left: f64, top: f64) -> String {
        let mut sorted = self.bars.clone();
        sorted.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        let (first, bottom) = (top + HEAD, top + self.height() - FOOT);
        let mut svg = text(left, top + 16.0, "title", self.title);
        svg += &text(left, top + 32.0, "small", self.what);
        for decade in axis.decades() {
            let x = left + ZERO + axis.length(decade);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {:.1}V{:.1}\"/>",
                first - 4.0,
                bottom
            );
            let label = self.unit.label(decade);
            let _ = writeln!(
                svg,
                "<text class=\"small\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{:.1}\">{label}</text>",
                bottom + 14.0
            );
        }
        let mut y = first;
        for (name, figure) in sorted {
            let (length, middle) = (axis.length(figure).max(1.0), y + 13.0);
            let ours = if name.starts_with("rlock") {
                "ours"
            } else {
                ""
            };
            let _ = writeln!(
                svg,
                "<text class=\"{ours}\" text-anchor=\"end\" x=\"{:.1}\" y=\"{middle:.1}\">{name}</text>",
                left + ZERO - 8.0
            );
            let x = left + ZERO;
            let _ = writeln!(
                svg,
                "<rect class=\"bar {ours}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"15\"/>",
                y + 1.0
            );
            svg += &text(x + length + 6.0, middle, ours, &self.unit.written(figure));
            y += ROW;
        }
        svg
    }
}

/// From a power of ten below all figures of a unit to the largest, so that bars of several panels
/// can be compared.
struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    fn of(panels: &[Panel], unit: Unit) -> Self {
        let bars = panels
            .iter()
            .filter(|panel| panel.unit == unit)
            .flat_map(|panel| &panel.bars);
        let positive = bars
            .map(|(_, figure)| *figure)
            .filter(|figure| *figure > 0.0);
        let (least, most) = positive.fold((f64::MAX, f64::MIN_POSITIVE), |(least, most), one| {
            (least.min(one), most.max(one))
        });
        // Below the least of them, so that it has a bar too.
        Self {
            from: (least / 1.5).log10().floor(),
            to: most.log10(),
        }
    }

    fn length(&self, figure: f64) -> f64 {
        let share = (figure.max(f64::MIN_POSITIVE).log10() - self.from) / (self.to - self.from);
        share.max(0.0) * LONGEST
    }

    fn decades(&self) -> Vec<f64> {
        let mut decades = Vec::new();
        let mut power = self.from;
        while power <= self.to {
            decades.push(10_f64.powf(power));
            power += 1.0;
        }
        decades
    }
}

impl Unit {
    /// Of a power of ten.
    fn label(self, decade: f64) -> String {
        match self {
            Self::Millis => format!("{decade} ms"),
            Self::Megabytes => format!("{decade} MB"),
            Self::Count | Self::Ratio => format!("{decade}"),
        }
    }
}

fn text(x: f64, y: f64, class: &str, words: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>\n")
}
