//! Draws the charts in docs/: one bar for each measurement.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// One bar: the name of a measurement and its value.
pub(crate) struct Bar {
    name: String,
    value: f64,
    color: RGBColor,
}

impl Bar {
    /// A bar of the filter.
    pub(crate) fn of_the_filter(name: &str, value: f64) -> Self {
        Self { name: name.into(), value, color: RGBColor(52, 101, 164) }
    }

    /// A bar of the baseline that the filter is compared with.
    pub(crate) fn of_the_baseline(name: &str, value: f64) -> Self {
        Self { name: name.into(), value, color: RGBColor(160, 160, 160) }
    }
}

const WIDTH: i32 = 860;
const NAMES: i32 = 300;
const VALUES: i32 = 90;
const ROW: i32 = 28;
const HEAD: i32 = 44;

/// Writes `docs/<name>.svg`.
pub(crate) fn draw(name: &str, title: &str, decimals: usize, bars: &[Bar]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(format!("{name}.svg"));
    let height = HEAD + ROW * i32::try_from(bars.len()).unwrap() + 8;
    let area = SVGBackend::new(&path, (WIDTH.unsigned_abs(), height.unsigned_abs()));
    let area = area.into_drawing_area();
    area.fill(&WHITE).unwrap();
    let text = |size: u32, color: RGBColor, side| {
        ("sans-serif", size).into_font().color(&color).pos(Pos::new(side, VPos::Center))
    };
    let write = |content: &str, at: (i32, i32), style: TextStyle<'_>| {
        area.draw(&Text::new(content.to_owned(), at, style)).unwrap();
    };
    write(title, (12, HEAD / 2), text(17, RGBColor(30, 30, 30), HPos::Left));

    let most = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    for (row, bar) in (0..).zip(bars) {
        let middle = HEAD + ROW * row + ROW / 2;
        let end = NAMES + (f64::from(WIDTH - NAMES - VALUES) * bar.value / most).round() as i32;
        let corners = [(NAMES, middle - 9), (end.max(NAMES + 1), middle + 9)];
        area.draw(&Rectangle::new(corners, bar.color.filled())).unwrap();
        let dark = RGBColor(60, 60, 60);
        write(&bar.name, (NAMES - 8, middle), text(14, dark, HPos::Right));
        write(&format!("{:.decimals$}", bar.value), (end + 6, middle), text(14, dark, HPos::Left));
    }
    area.present().unwrap();
    println!("drawn: docs/{name}.svg");
}
