//! Windows one behind the other, by bands of rows: each band of the last result is made before the next one, from the rows
//! that the windows before it make meanwhile. What they hand each other is some rows that stay in the second-level cache
//! instead of a tensor that goes through memory.
//!
//! The rows that the windows of two bands share are moved to the beginning of the room for the next one, not made again.

use super::super::emit::{compute_type, Emit, Place, Res};
use super::super::fuse::Item;
use super::super::poly::Poly;
use super::super::stage::{loads, Stage};
use super::super::SchedOptions;
use super::{conv, depthwise, operands, tile, Kind, Window};
use relax_ir::flat::FlatStmt;
use relax_ir::prim::PrimKind;
use relax_ir::tir::Buffer;
use relax_ir::{DType, PrimExpr, Var};

/// Stages each of which reads what the one before made, and nothing else does.
pub struct Cascade {
    pub stages: Vec<Stage>,
    windows: Vec<Window>,
    /// How many rows of each are made when so many of the last one are.
    reaches: Vec<Reach>,
    /// What they hand each other: rows of it.
    between: Vec<Buffer>,
    /// Rows of the last result in a band.
    rows: i64,
}

/// For `n` rows of the last result so many of another one: `scale * n + more`.
#[derive(Clone, Copy)]
struct Reach {
    scale: i64,
    more: i64,
}

impl Reach {
    /// By window.
    fn all(windows: &[Window]) -> Vec<Reach> {
        let mut last = Reach { scale: 1, more: 0 };
        let mut out = vec![last];
        for w in windows.iter().skip(1).rev() {
            let more = (last.more - 1) * w.stride[0] + tall(w) - w.before[0];
            last = Reach { scale: last.scale * w.stride[0], more };
            out.push(last);
        }
        out.reverse();
        out
    }

    fn of(self, n: i64) -> i64 {
        self.scale * n + self.more
    }
}

/// Replaces stages that fit; of what they hand each other the rows of a band are left, of at most so many `bytes`.
pub fn take(items: &mut Vec<Item>, local: &mut [Buffer], bytes: i64) {
    for at in 0..items.len() {
        let mut stages: Vec<Stage> = vec![];
        let mut between = vec![];
        while let Some(Item::Stage(s)) = items.get(at + stages.len()).filter(|i| fits(i)) {
            if let Some(last) = stages.last() {
                let Some(b) = handed(items, last, s).filter(|b| local.contains(b)) else { break };
                between.push(b);
            }
            stages.push((**s).clone());
        }
        let count = stages.len();
        let Some(c) = Cascade::new(stages, &between, bytes) else { continue };
        for (old, new) in between.iter().zip(&c.between) {
            local.iter_mut().filter(|b| *b == old).for_each(|b| *b = new.clone());
        }
        items.splice(at..at + count, [Item::Cascade(Box::new(c))]);
    }
}

/// Whether a stage is a window that kernels here compute, whatever the vectors are.
fn fits(item: &Item) -> bool {
    let Item::Stage(s) = item else { return false };
    let Some(w) = s.window.as_ref().filter(|w| !w.open && w.batch == 1) else { return false };
    let dense = |b: &Buffer| b.strides.is_empty() && b.elem_offset.is_none();
    let Some((x, weight)) = operands(s, w) else { return false };
    let one = matches!(s.outs.as_slice(), [o] if o.indices.len() == 4 && compute_type(o.buffer.dtype()) == DType::F32);
    one && !matches!(w.kind, Kind::Winograd(_)) && dense(&x) && dense(&weight)
}

/// The tensor that `first` makes and `second` alone reads, as data of its windows.
fn handed(items: &[Item], first: &Stage, second: &Stage) -> Option<Buffer> {
    let w = second.window.as_ref()?;
    let out = first.outs.first()?;
    let b = &out.buffer;
    let users = items.iter().filter(|i| i.reads(b) || i.writes(b)).count();
    let (x, _) = operands(second, w)?;
    let plain = out.indices.iter().zip(&first.spatial).all(|(i, a)| i.as_var() == Some(&a.var) || i.is_int(0));
    let shape: Option<Vec<i64>> = b.shape.iter().map(|d| d.as_int()).collect();
    let as_data = shape? == [1, w.size[0], w.size[1], w.taken] && w.last && w.pitch == 0 && x == *b;
    let as_data = as_data && !second.outs.iter().any(|o| loads(&o.value, b));
    (users == 2 && plain && as_data && b.dtype() == DType::F32 && shared(w) >= 0).then(|| b.clone())
}

/// Rows of data under a row of the result.
fn tall(w: &Window) -> i64 {
    (w.kernel[0] - 1) * w.dilation[0] + 1
}

/// Those of them that the next row needs, too.
fn shared(w: &Window) -> i64 {
    tall(w) - w.stride[0]
}

impl Cascade {
    fn new(mut stages: Vec<Stage>, between: &[Buffer], bytes: i64) -> Option<Cascade> {
        let windows: Vec<Window> = stages.iter().filter_map(|s| s.window.clone()).collect();
        let reaches = Reach::all(&windows);
        let [_, after @ ..] = windows.as_slice() else { return None };
        // In the first band there is padding, in the others what was moved.
        let height = |n: i64| {
            let of = move |(w, r): (&Window, &Reach)| (r.of(n) + w.before[0]).max(r.scale * n + shared(w));
            after.iter().zip(&reaches).map(of).collect::<Vec<i64>>()
        };
        let line = |w: &Window| w.size[1] * w.taken;
        let fits = |n: &i64| height(*n).iter().zip(after).map(|(h, w)| h * line(w) * 4).sum::<i64>() <= bytes;
        let all = after.last()?.out[0];
        let most = (1..=all).rev().find(fits)?;
        let bands = (all + most - 1) / most;
        let rows = (all + bands - 1) / bands;
        let room = |(h, b): (&i64, &Buffer)| {
            let mut shape = b.shape.clone();
            shape[1] = PrimExpr::i64(*h);
            Buffer::new(&b.name, shape, b.dtype())
        };
        let rooms: Vec<Buffer> = height(rows).iter().zip(between).map(room).collect();
        for (old, new) in between.iter().zip(&rooms) {
            for s in &mut stages {
                s.outs.iter_mut().filter(|o| o.buffer == *old).for_each(|o| o.buffer = new.clone());
                s.map_exprs(&mut |e| renamed(e, old, new));
            }
        }
        Some(Cascade { stages, windows, reaches, between: rooms, rows })
    }

    pub fn emit(&self, e: &mut Emit, o: &SchedOptions) -> Res<()> {
        let rooms: Option<Vec<Place>> = self.between.iter().map(|b| e.places.get(b).cloned()).collect();
        let Some(rooms) = rooms else { return Err(e.internal("a cascade without room")) };
        let all = self.windows.last().map_or(0, |w| w.out[0]);
        let band = Var::new("band", DType::I64);
        e.ranges.add_loop(&band, Poly::default(), Poly::constant(all));
        e.for_loop(&band, PrimExpr::i64(0), PrimExpr::i64(all), self.rows, |e| {
            let begin = band.expr();
            let end = e.bind("end", (begin.clone() + self.rows).min(all));
            self.rooms(e, &begin, &rooms, o)?;
            for (i, (s, w)) in self.stages.iter().zip(&self.windows).enumerate() {
                let Some((x, weight)) = operands(s, w) else { return Err(e.internal("a cascade of other stages")) };
                let mut r = tile::Run::new(e, s, w, o, (&x, &weight), w.sizes(), false)?;
                r.passed = i + 1 < self.stages.len();
                let first = self.first(e, &begin, i).max(0).min(w.out[0]);
                let reach = self.reaches[i];
                let behind = (end.clone() * reach.scale + reach.more).min(w.out[0]);
                r.rows = Some(match r.passed {
                    true => (e.bind("first", first), e.bind("behind", behind)),
                    false => (begin.clone(), end.clone()),
                });
                match w.kind {
                    Kind::Conv => conv::emit(e, &r)?,
                    _ => depthwise::emit(e, &r)?,
                }
            }
            Ok(())
        })?;
        e.places.extend(self.between.iter().cloned().zip(rooms));
        Ok(())
    }

    /// The first row of stage `i` that is not made yet when a band begins; before the first band none is.
    fn first(&self, e: &mut Emit, begin: &PrimExpr, i: usize) -> PrimExpr {
        match self.reaches[i] {
            Reach { scale: 1, more: 0 } => begin.clone(),
            r => {
                let first = begin.clone().gt(0).select(begin.clone() * r.scale + r.more, PrimExpr::i64(0));
                e.bind("first", first)
            }
        }
    }

    /// Where the rows of a band lie: the first one that its windows read at the beginning of the room. Those that are there
    /// already are moved.
    fn rooms(&self, e: &mut Emit, begin: &PrimExpr, rooms: &[Place], o: &SchedOptions) -> Res<()> {
        let several = self.windows.last().is_some_and(|w| self.rows < w.out[0]);
        for (i, (b, room)) in self.between.iter().zip(rooms).enumerate() {
            let w = &self.windows[i + 1];
            let line = w.size[1] * w.taken;
            let first = self.first(e, begin, i + 1);
            let first = e.bind("under", first * w.stride[0] - w.before[0]);
            if shared(w) > 0 && several {
                let again = |e: &mut Emit| {
                    let begin = e.bind("before", begin.clone() - self.rows);
                    let before = self.first(e, &begin, i + 1) * w.stride[0] - w.before[0];
                    let from = e.bind("from", room.ptr.expr().ptr_add((first.clone() - before) * (line * 4)));
                    copy(e, &room.ptr, from, shared(w) * line, o)
                };
                e.if_then(begin.clone().gt(0), again, |_| Ok(()))?;
            }
            // As if all rows were there.
            let ptr = Var::new("rows", DType::HANDLE);
            let value = room.ptr.expr().ptr_add(first * (-line * 4));
            e.push(FlatStmt::Let { var: ptr.clone(), value });
            e.places.insert(b.clone(), Place { ptr, ..room.clone() });
        }
        Ok(())
    }

    pub fn reads(&self, b: &Buffer) -> bool {
        self.stages.iter().any(|s| s.reads(b))
    }

    pub fn writes(&self, b: &Buffer) -> bool {
        self.stages.iter().any(|s| s.writes(b))
    }
}

/// Moves so many elements to `to`, which lies before `from`.
fn copy(e: &mut Emit, to: &Var, from: PrimExpr, count: i64, o: &SchedOptions) -> Res<()> {
    let fits = |l: &i64| *l * 4 <= o.vector_bytes as i64 && count % l == 0;
    let lanes = [16, 8, 4].into_iter().find(fits).unwrap_or(1);
    let steps = [4, 2].into_iter().find(|n| count % (n * lanes) == 0).unwrap_or(1);
    let i = Var::new("i", DType::I64);
    e.ranges.add_loop(&i, Poly::default(), Poly::constant(count));
    e.for_loop(&i, PrimExpr::i64(0), PrimExpr::i64(count), steps * lanes, |e| {
        for n in 0..steps {
            let at = i.expr() + n * lanes;
            let value = PrimExpr::load_ptr(from.clone(), at.clone(), DType::F32.with_lanes(lanes as u16));
            let value = e.bind("x", value);
            e.push(FlatStmt::Store { ptr: to.expr(), offset: at, value });
        }
        Ok(())
    })
}

/// The expression with another buffer.
fn renamed(e: &PrimExpr, from: &Buffer, to: &Buffer) -> PrimExpr {
    match e.kind() {
        PrimKind::BufferLoad(b, at) if b == from => {
            PrimExpr::load(to, at.iter().map(|i| renamed(i, from, to)).collect::<Vec<_>>())
        }
        _ => e.map_children(&mut |c| renamed(c, from, to)),
    }
}
