//! A plot as SVG: points, lines through them, axes with round numbers. Only draws; measures nothing.

use std::fmt::Write as _;

/// One plot.
pub struct Plot {
    pub title: &'static str,
    pub across: &'static str,
    pub up: &'static str,
    /// Each with its name.
    pub lines: Vec<(&'static str, Vec<(f64, f64)>)>,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 340.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 52.0;
const COLOURS: [&str; 3] = ["#2563a8", "#b4581a", "#3d7a3d"];

impl Plot {
    /// The drawing, on white, so that it can be read on any page.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let (most_x, most_y) =
            points().fold((0.0_f64, 0.0_f64), |(x, y), point| (x.max(point.0), y.max(point.1)));
        let (step_x, step_y) = (step(most_x), step(most_y));
        // Room above for the names.
        let (end_x, end_y) = (most_x, (most_y * 1.2 / step_y).ceil() * step_y);
        let x = |value: f64| LEFT + value / end_x * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / end_y * (HEIGHT - TOP - BOTTOM);
        let mut out = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" fill="#222"><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/><text x="{LEFT}" y="22" font-size="14" font-weight="bold">{}</text>"##,
            self.title
        );
        for at in 0..=(end_y / step_y).round() as usize {
            let value = at as f64 * step_y;
            let (height, right) = (y(value), WIDTH - RIGHT);
            let _ = write!(
                out,
                r##"<path d="M{LEFT} {height:.1}H{right}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"##,
                LEFT - 8.0,
                height + 4.0,
                number(value)
            );
        }
        for at in 0..=(end_x / step_x).floor() as usize {
            let value = at as f64 * step_x;
            let _ = write!(
                out,
                r#"<text x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                x(value),
                HEIGHT - BOTTOM + 18.0,
                number(value)
            );
        }
        self.draw_lines(&mut out, (&x, &y));
        let (middle, bottom) = ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 12.0);
        let _ = write!(
            out,
            r#"<text x="{middle:.0}" y="{bottom}" text-anchor="middle">{}</text><text transform="translate(16 {:.0}) rotate(-90)" text-anchor="middle">{}</text></svg>"#,
            self.across,
            (TOP + HEIGHT - BOTTOM) / 2.0,
            self.up
        );
        out.push('\n');
        out
    }

    fn draw_lines(&self, out: &mut String, (x, y): (&dyn Fn(f64) -> f64, &dyn Fn(f64) -> f64)) {
        for (at, (name, points)) in self.lines.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let path: Vec<String> =
                points.iter().map(|point| format!("{:.1} {:.1}", x(point.0), y(point.1))).collect();
            let _ = write!(
                out,
                r#"<path d="M{}" fill="none" stroke="{colour}" stroke-width="2"/>"#,
                path.join("L")
            );
            for point in points {
                let _ = write!(
                    out,
                    r#"<circle cx="{:.1}" cy="{:.1}" r="3" fill="{colour}"/>"#,
                    x(point.0),
                    y(point.1)
                );
            }
            let _ = write!(
                out,
                r#"<text x="{:.1}" y="{:.1}" fill="{colour}">{name}</text>"#,
                LEFT + 12.0,
                TOP + 14.0 + at as f64 * 16.0
            );
        }
    }
}

/// A round step that divides `most` into four to ten parts.
fn step(most: f64) -> f64 {
    let power = 10.0_f64.powf((most / 4.0).log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|factor| factor * power).find(|step| most / step >= 4.0).unwrap_or(power)
}

/// With thin gaps between thousands, and no more digits than a round number has.
fn number(value: f64) -> String {
    if value >= 1_000_000.0 {
        return format!("{} M", value / 1e6);
    }
    if value >= 10_000.0 {
        return format!("{}k", (value / 100.0).round() / 10.0);
    }
    format!("{}", (value * 1000.0).round() / 1000.0)
}
