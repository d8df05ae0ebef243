//! A table for a terminal: columns that fit its width.

use super::display::{Keep, shortened, width};

/// The columns of space between two columns of the table.
const GAP: usize = 2;

/// The least width of a column that is shortened.
const NARROWEST: usize = 7;

/// A column of the table.
#[derive(Debug, Clone)]
pub(super) struct Column {
    title: &'static str,
    cells: Vec<String>,
    /// The part of a cell that is kept if there is no room; `None` if the cell is never cut.
    keep: Option<Keep>,
    columns: usize,
}

impl Column {
    pub(super) fn new(title: &'static str, keep: Option<Keep>, cells: Vec<String>) -> Self {
        let widest = cells.iter().map(|cell| width(cell)).max().unwrap_or_default();
        Self { title, cells, keep, columns: widest.max(width(title)) }
    }
}

/// Fits the columns to a terminal: drops the `least_important` ones first, then narrows the widest.
/// Without a terminal all columns stay.
pub(super) fn fitted(
    mut all: Vec<Column>,
    columns: Option<usize>,
    least_important: &[&str],
) -> Vec<Column> {
    let Some(room) = columns else { return all };
    for title in least_important {
        if needed(&all) > room {
            all.retain(|column| column.title != *title);
        }
    }
    while needed(&all) > room {
        let narrower = all.iter_mut().filter(|column| column.keep.is_some());
        match narrower.max_by_key(|column| column.columns) {
            Some(widest) if widest.columns > NARROWEST => {
                widest.columns = widest.columns.saturating_sub(1);
            }
            _ => break,
        }
    }
    all
}

fn needed(all: &[Column]) -> usize {
    let gaps = GAP.saturating_mul(all.len().saturating_sub(1));
    all.iter().fold(gaps, |sum, column| sum.saturating_add(column.columns))
}

pub(super) fn table(all: &[Column]) -> String {
    let mut text = String::new();
    let mut line = |cells: Vec<(&str, &Column)>| {
        let mut row = String::new();
        for (cell, column) in cells {
            let shown = shortened(cell, column.columns, column.keep.unwrap_or(Keep::Beginning));
            let rest = column.columns.saturating_sub(width(&shown)).saturating_add(GAP);
            row.push_str(&shown);
            row.extend(std::iter::repeat_n(' ', rest));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    };
    line(all.iter().map(|column| (column.title, column)).collect());
    let rows = all.iter().map(|column| column.cells.len()).max().unwrap_or_default();
    for index in 0..rows {
        let cells = all.iter().filter_map(|column| Some((&**column.cells.get(index)?, column)));
        line(cells.collect());
    }
    text
}
