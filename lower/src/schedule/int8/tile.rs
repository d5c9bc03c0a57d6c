//! Register tiles of kernels of bytes: pixels by vectors of channels, by the model or as they were measured.

use super::{Conv, Form};
use crate::choice::{Algorithm, Config};
use crate::schedule::window::Outer;

/// The register tile of the widest panels, for the widest form. What is 0 is left to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tile {
    /// Pixels.
    pub rows: i64,
    /// Vectors of channels.
    pub columns: i64,
    /// The form that it is about multiplies four pairs of bytes at a time.
    pub dot4: bool,
}

impl Tile {
    /// For processors that multiply two vectors a cycle: four vectors of weights beside six pixels all stay in registers,
    /// where seven leave one to be read by each multiplication (Sapphire Rapids: 0.93 of resnet50's time).
    pub fn for_twice(self, channels: i64) -> Tile {
        let rows = if self.dot4 && channels % 64 == 0 { 6 } else { 0 };
        Tile { rows, ..self }
    }
}

/// Pixels beside so many vectors for which there are registers.
fn most_rows(form: Form, depthwise: bool, vectors: i64) -> i64 {
    match (form.dot4, form.vector_bytes) {
        (true, _) => match (depthwise, vectors) {
            (true, 4) => 3,
            (true, _) => 8,
            (_, 4) => 7,
            (_, 3) => 9,
            (_, 2) => 14,
            _ => 16,
        },
        (_, 64) => match (depthwise, vectors) {
            (true, 4) => 3,
            (true, _) => 8,
            (_, 4) => 4,
            (_, 3) => 6,
            (_, 2) => 9,
            _ => 14,
        },
        _ => match (depthwise, vectors) {
            (true, 4) => 2,
            (_, 2) => 4,
            _ => 6,
        },
    }
}

fn most_columns(form: Form, depthwise: bool) -> i64 {
    match (depthwise, form.vector_bytes) {
        (true, _) => 1,
        (_, 64) => 4,
        _ => 2,
    }
}

impl Conv {
    /// The tile that was chosen, where it is about this form.
    fn chosen(&self, form: Form) -> Option<Tile> {
        let same = form.vector_bytes == self.vector_bytes && form.dot4 == self.tile.dot4;
        Some(self.tile).filter(|_| same)
    }

    /// Vectors that go together, at most.
    pub(super) fn columns_of(&self, form: Form) -> i64 {
        let most = most_columns(form, self.depthwise);
        self.chosen(form).filter(|t| t.columns > 0).map_or(most, |t| t.columns.min(most))
    }

    /// Pixels of a tile with so many vectors, at most.
    pub(super) fn rows_of(&self, form: Form, vectors: i64) -> i64 {
        let most = most_rows(form, self.depthwise, vectors);
        self.chosen(form).filter(|t| t.rows > 0).map_or(most, |t| t.rows.min(most))
    }

    fn widest(&self) -> Form {
        Form { vector_bytes: self.vector_bytes, dot4: self.tile.dot4, tiles: false }
    }

    /// Vectors of the widest panel as they can go together, and how many there are.
    fn vectors(&self) -> (i64, i64) {
        let panel = self.panels().into_iter().next();
        let count = panel.as_ref().map_or(1, |p| if p.is_woven(self) { 4 } else { p.count });
        (count, panel.filter(|p| p.is_woven(self)).map_or(most_columns(self.widest(), self.depthwise), |_| 4))
    }

    /// Whether nothing lies between the rows of an image, so that all of its pixels are one.
    pub(super) fn is_dense(&self) -> bool {
        self.k_h * self.k_w == 1
            && self.stride_h * self.stride_w == 1
            && self.in_w == self.columns
            && self.out_w == self.columns
            && self.off_w == 0
    }

    /// Pixels that are one row of the kernel.
    pub(super) fn row(&self) -> i64 {
        if self.is_dense() {
            self.rows * self.columns
        } else {
            self.columns
        }
    }

    /// Pixels of the whole tiles of a row, when there are registers for so many.
    pub(super) fn whole(&self, most: i64) -> i64 {
        match self.open && self.row() < most {
            true => most,
            false => self.even(most),
        }
    }

    /// Pixels of all tiles of a row but the last, when there may be so many.
    pub(super) fn even(&self, most: i64) -> i64 {
        let (row, most) = (self.row(), most.max(1));
        let tiles = (row + most - 1) / most;
        (row + tiles - 1) / tiles.max(1)
    }

    /// How the widest panels are computed.
    pub fn config(&self) -> Config {
        let form = self.widest();
        let (count, most) = self.vectors();
        let columns = if most == 4 && self.depthwise { 4 } else { count.min(self.columns_of(form)) };
        let rows = self.even(self.rows_of(form, columns));
        Config { algorithm: Algorithm::Direct, columns, rows, outer: Outer::Model }
    }

    /// All tiles and what they cost, about.
    pub fn candidates(&self) -> Vec<(Config, f64)> {
        let form = self.widest();
        let (count, most) = self.vectors();
        let least = if most == 4 && self.depthwise { 4 } else { 1 };
        let mut out: Vec<(Config, f64)> = vec![];
        for columns in least..=count.min(most) {
            let top = most_rows(form, self.depthwise, columns);
            for rows in (1..=top).rev().map(|r| self.even(r)) {
                let config = Config { algorithm: Algorithm::Direct, columns, rows, outer: Outer::Model };
                let of = out.iter().filter(|(c, _)| c.columns == columns);
                if out.iter().any(|(c, _)| *c == config) || of.count() == 4 {
                    continue;
                }
                let taps = (self.k_h * self.k_w * if self.depthwise { 4 } else { self.in_c }) as f64 / 4.0;
                let step = ((rows * columns) as f64).max(0.5 * (rows + 2 * columns) as f64).max(4.0);
                let tiles = (self.row() as f64 / rows as f64).ceil() * (count as f64 / columns as f64).ceil();
                out.push((config, tiles * (taps * step + (20 + 6 * rows * columns) as f64)));
            }
        }
        out
    }

    /// Takes this tile.
    pub fn configure(&mut self, c: &Config) {
        (self.tile.rows, self.tile.columns) = (c.rows, c.columns);
    }

    /// What it is known by when it is measured.
    pub fn key(&self) -> String {
        format!(
            "{} uint8 {} {}x{}x{} to {}x{}x{} kernel {}x{} stride {}x{} by {}{}",
            if self.depthwise { "depthwise" } else { "conv" },
            self.batch,
            self.in_h,
            self.in_w,
            self.in_c,
            self.rows,
            self.columns,
            self.channels,
            self.k_h,
            self.k_w,
            self.stride_h,
            self.stride_w,
            if self.tile.dot4 { "fours" } else { "words" },
            // Results with borders do not lie behind one another.
            match (self.sums, self.out_w == self.columns) {
                (true, _) => " to sums",
                (_, true) => "",
                _ => " into borders",
            },
        )
    }
}
