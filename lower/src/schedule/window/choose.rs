//! Ways to compute a window, and what they cost by the model.

use super::alike::{flattened, laid_down, product};
use super::tile::{
    best_rows, cost_near, cost_short, cost_twice, most_pieces, most_rows, most_tile, panel_cost, pieces, rows_of,
};
use super::{conv, depthwise, winograd, Kind, Outer, Window};
use crate::choice::{Algorithm, Config};

/// Cycles for a row of a window in panels of so many vectors and tiles of so many rows: lanes, vectors, rows.
type Cost = fn(&Window, i64, i64, i64) -> f64;

/// What a processor does in a cycle, as far as it decides between algorithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Vectors that it multiplies.
    pub vectors: f64,
    /// Bytes of weights that come from memory.
    pub bytes: f64,
}

impl Pace {
    pub const ONCE: Pace = Pace { vectors: 1.0, bytes: 10.0 };
    /// Two multiplications a cycle, and weights from far away: a core of a server of many reads some 13 GB/s.
    pub const TWICE: Pace = Pace { vectors: 2.0, bytes: 4.5 };
}

/// Weights of a panel, in bytes, that stay in the first-level cache.
const NEAREST: i64 = 32 << 10;

impl Window {
    /// How it is computed with vectors of so many lanes.
    pub fn config(&self, lanes: i64) -> Config {
        let algorithm = match self.kind {
            Kind::Winograd(made) => Algorithm::Winograd(made),
            _ => Algorithm::Direct,
        };
        if let Kind::Depthwise | Kind::Max | Kind::Sum = self.kind {
            let (columns, rows) = depthwise::shape(&self.multiplied(), lanes);
            return Config { algorithm, columns, rows, outer: Outer::Model };
        }
        let mut w = self.multiplied();
        // A panel that is wider than the result is as wide as that.
        w.panel = w.panel.min((w.made + lanes - 1) / lanes * lanes);
        let columns = (w.panel / lanes).max(1);
        let side = pieces(w.panel, lanes).len().clamp(1, most_pieces(lanes)) as i64;
        let rows = rows_of(&w, lanes, side);
        let outer = if conv::near(&w, lanes) { Outer::Data } else { Outer::Weights };
        Config { algorithm, columns, rows, outer }
    }

    /// Takes this way, for vectors of so many lanes. What it leaves to the model is as [`Window::choose_panel`] has it.
    pub fn configure(&mut self, c: &Config, lanes: i64) {
        match c.algorithm {
            Algorithm::Winograd(made) if self.suits_winograd(lanes) => self.kind = Kind::Winograd(made),
            _ => {}
        }
        self.choose_panel(lanes);
        if c.columns > 0 && self.takes_panel(c.columns * lanes) {
            self.panel = c.columns * lanes;
        }
        (self.plan.rows, self.plan.lanes, self.plan.outer) = (c.rows, lanes, c.outer);
    }

    /// As the model has it for processors that multiply two vectors a cycle.
    pub fn configure_twice(&mut self, lanes: i64) {
        self.choose_panel(lanes);
        self.choose_tile(lanes, i64::MAX, &[cost_twice]);
        self.choose_near(lanes, i64::MAX);
    }

    /// The same where tiles of few rows are the faster ones.
    pub fn configure_short(&mut self, lanes: i64) {
        self.choose_panel(lanes);
        self.choose_tile(lanes, i64::MAX, &[cost_short]);
    }

    /// For a library that is to run on both kinds of processors. Panels of weights, which narrower vectors read too, do
    /// not become wider: those walk over the data once for each few vectors of a panel.
    pub fn configure_shared(&mut self, lanes: i64) {
        self.choose_panel(lanes);
        self.choose_tile(lanes, self.panel, &[cost_twice, cost_short]);
        self.choose_near(lanes, self.panel);
    }

    /// Panel and tile of the least cost, where panels stay in the first-level cache.
    fn choose_near(&mut self, lanes: i64, widest: i64) {
        if self.plan.rows == 0 && self.depth() * self.panel * 4 <= NEAREST && self.last {
            self.choose_of(lanes, widest, &[cost_near]);
        }
    }

    /// Panel and tile of the least cost, where panels do not stay in the first-level cache; with several costs, those
    /// that are the least behind the best by any of them.
    fn choose_tile(&mut self, lanes: i64, widest: i64, costs: &[Cost]) {
        if self.depth() * self.panel * 4 > NEAREST && self.plan.epilogue < 2 {
            self.choose_of(lanes, widest, costs);
        }
    }

    /// Panel and tile of the least cost.
    fn choose_of(&mut self, lanes: i64, widest: i64, costs: &[Cost]) {
        if self.kind != Kind::Conv || self.groups > 1 {
            return;
        }
        let w = self.multiplied();
        let ways: Vec<(i64, i64)> = (2..=most_pieces(lanes) as i64)
            .filter(|c| w.takes_panel(c * lanes) && c * lanes <= w.made.min(widest))
            .flat_map(|c| (1..=most_tile(&w, lanes, c).min(w.out[1].max(1))).map(move |rows| (c, rows)))
            .collect();
        let least: Vec<f64> = costs
            .iter()
            .map(|cost| ways.iter().map(|&(c, rows)| cost(&w, lanes, c, rows)).fold(f64::MAX, f64::min))
            .collect();
        let mut best = (0, 0, f64::MAX);
        for (columns, rows) in ways {
            let behind = |(cost, least): (&Cost, &f64)| cost(&w, lanes, columns, rows) / least;
            let behind = costs.iter().zip(&least).map(behind).fold(0.0, f64::max);
            if behind < best.2 * 0.999 {
                best = (columns, rows, behind);
            }
        }
        if best.0 > 0 {
            (self.panel, self.plan.rows, self.plan.lanes) = (best.0 * lanes, best.1, lanes);
        }
    }

    /// The product of matrices that it comes down to: of one position of transformed data, or of flattened data; a picture
    /// of one column lies down.
    fn multiplied(&self) -> Window {
        match self.kind {
            Kind::Winograd(made) => product(self, winograd::Shape::new(self, made).tiles),
            _ => flattened(self).or_else(|| laid_down(self)).unwrap_or_else(|| self.clone()),
        }
    }

    /// All ways and their costs, in cycles, about.
    pub fn candidates(&self, lanes: i64) -> Vec<(Config, f64)> {
        if let Kind::Depthwise | Kind::Max | Kind::Sum = self.kind {
            return depthwise::shapes(&self.multiplied(), lanes)
                .into_iter()
                .map(|(columns, rows, cost)| {
                    (Config { algorithm: Algorithm::Direct, columns, rows, outer: Outer::Model }, cost)
                })
                .collect();
        }
        let direct = Window { kind: Kind::Conv, ..self.clone() };
        let mut out = products(&direct.multiplied(), lanes, Algorithm::Direct);
        let least = out.iter().map(|(_, cost)| *cost).fold(f64::MAX, f64::min);
        for made in [2, 4] {
            if !direct.suits_winograd(lanes) {
                break;
            }
            let w = Window { kind: Kind::Winograd(made), ..direct.clone() };
            let all = products(&w.multiplied(), lanes, Algorithm::Winograd(made));
            let own = all.iter().map(|(_, cost)| *cost).fold(f64::MAX, f64::min);
            let positions = ((made + 2) * (made + 2) * winograd::Shape::new(&w, made).blocks() * w.batch) as f64;
            let base = least - direct.winograd_gain(made, lanes, Pace::ONCE);
            out.extend(all.into_iter().map(|(c, cost)| (c, base + (cost - own) * positions)));
        }
        out
    }
}

/// Register tiles and orders of a convolution.
fn products(w: &Window, lanes: i64, algorithm: Algorithm) -> Vec<(Config, f64)> {
    let mut out = vec![];
    for columns in 1..=most_pieces(lanes) as i64 {
        if columns > 1 && (columns - 1) * lanes >= w.made {
            break;
        }
        if !w.takes_panel(columns * lanes) {
            continue;
        }
        let times = (w.out[0] * w.batch) as f64;
        let model = best_rows(w, lanes, columns).0;
        let most = most_rows(lanes, columns).min(w.out[1].max(1));
        let mut rows: Vec<(i64, f64)> =
            (1..=most).map(|r| (r, panel_cost(w, lanes, columns, Some(r)) * times)).collect();
        rows.sort_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)));
        rows.truncate(3);
        if !rows.iter().any(|(r, _)| *r == model) {
            rows.push((model, panel_cost(w, lanes, columns, Some(model)) * times));
        }
        let wide = Window { panel: columns * lanes, ..w.clone() };
        let orders: &[Outer] = match w.made > wide.panel {
            true => &[Outer::Data, Outer::Weights],
            false => &[Outer::Weights],
        };
        for (rows, cost) in rows {
            for &outer in orders {
                // The order that the model would not take comes behind.
                let other = (outer == Outer::Data) != conv::near(&wide, lanes);
                let cost = if other { cost * 1.05 } else { cost };
                out.push((Config { algorithm, columns, rows, outer }, cost));
            }
        }
    }
    out
}
