//! Bodies of entries whose images are computed one by one (see [`crate::each`]).
//!
//! With several threads each takes images of its own, in a workspace of its own: threads meet once. Images that are left
//! over, and calls of fewer images than threads, go one after another, each of them by all threads.

use super::forms::{one, Form, General, Why};
use super::*;
use crate::host::params::Leaf;

/// The tensors of a call, each with the bytes of an image of it; 0 where it is the same for all images.
type Tensors = Vec<(Var, PrimExpr)>;

/// What the loop over images passes on.
struct Images<'a> {
    args: Tensors,
    /// Of the body: shape variables and scalars.
    vars: Vec<Var>,
    outs: Tensors,
    actual: Var,
    count: PrimExpr,
    threads: i64,
    abi: AbiLayout,
    prefix: &'a str,
}

/// The body of an entry whose images are computed one by one by the function `f`, and its workspace. With `rest` they are
/// not results yet, but that function's last argument.
pub(super) fn each(
    cx: &mut Context,
    typed: &Typed,
    general: &General,
    (f, rest): (&Function, Option<&Function>),
    base: &str,
    layout: &Layout,
) -> Result<(FlatFunc, Layout), Diagnostic> {
    let (form, image, made) = one(cx, typed, general, f, if rest.is_some() { Why::Before } else { Why::Each })?;
    let rest = rest.map(|f| one(cx, typed, general, f, Why::Rest)).transpose()?;
    let (sig, results) = (general.sig, general.results);
    // The batch of a tensor that has a row for each image.
    let images = |whole: &[PrimExpr], one: &[PrimExpr]| {
        let (whole, one) = (whole.first()?, one.first()?);
        (one.is_int(1) && !whole.is_int(1)).then(|| whole.clone())
    };
    let count = sig.leaves.iter().zip(&image.leaves).find_map(|(all, one)| images(dims(all), dims(one)));
    let count = count.ok_or_else(|| Diagnostic::internal(f.signature_span, "no batch"))?;
    let threads = match count.as_int() {
        _ if !cx.regions.is_empty() => 1,
        Some(n) if n < cx.room.threads => 1,
        _ => cx.room.threads,
    };
    let alone = (threads > 1).then(|| one(cx, typed, general, f, Why::Alone)).transpose()?.map(|(form, ..)| form);
    let few = |a: &Form| count.as_int().is_some_and(|n| n < a.least);
    let alone = alone.filter(|a| {
        if few(a) {
            cx.alone.remove(&a.body.name);
            cx.funcs.retain(|f| f.name != a.body.name);
        }
        !few(a)
    });
    let bytes = |dims: &[PrimExpr], dtype: DType| PrimExpr::product(&dims[1..]) * dtype.bytes() as i64;
    let args = sig.leaves.iter().zip(&image.leaves).filter_map(|(l, one)| match &l.kind {
        LeafKind::Tensor { ptr, dims: all, dtype } => Some(match images(all, dims(one)) {
            Some(_) => (ptr.clone(), bytes(all, *dtype)),
            None => (ptr.clone(), PrimExpr::i64(0)),
        }),
        _ => None,
    });
    let args: Tensors = args.collect();
    let outs: Tensors = results.iter().map(|r| (Var::new(&r.name, DType::HANDLE), bytes(&r.dims, r.dtype))).collect();
    let (call, workspace, actual) =
        (Var::new("call", DType::HANDLE), Var::new("workspace", DType::HANDLE), Var::new("actual", DType::HANDLE));
    // The tensors of all images lie before what the functions work in.
    let (mut tensors, mut total) = (vec![], PrimExpr::i64(0));
    for r in made.iter().filter(|_| rest.is_some()) {
        let image = bytes(&r.dims, r.dtype);
        tensors.push((Var::new(&r.name, DType::HANDLE), image.clone(), total.clone()));
        total = total + memory::align_up(count.clone() * image);
    }
    let mut params = vec![call.clone(), workspace.clone()];
    params.extend(args.iter().map(|a| a.0.clone()));
    params.extend(sig.body_vars());
    params.extend(outs.iter().map(|o| o.0.clone()));
    params.push(actual.clone());
    let prefix = cx.prefix.clone();
    let mut i = Images {
        args,
        vars: sig.body_vars().to_vec(),
        outs: outs.clone(),
        actual: actual.clone(),
        count: count.clone(),
        threads,
        abi: cx.abi,
        prefix: &prefix,
    };
    let mut b = Builder::new(&mut cx.pool, cx.abi, call.expr());
    let room = workspace.expr().ptr_add(total.clone());
    if rest.is_some() {
        i.outs = tensors.iter().map(|(var, bytes, _)| (var.clone(), bytes.clone())).collect();
        for (var, _, offset) in tensors {
            b.push(FlatStmt::Let { var, value: workspace.expr().ptr_add(offset) });
        }
    }
    let one_by_one = |b: &mut Builder, first: PrimExpr| {
        b.for_range("image", count.clone() - first.clone(), |b, image| {
            let rc = b.call(form.body.clone(), i.of_image(&call, room.clone(), &form, first + image));
            b.return_if_failed(rc);
        });
    };
    let tasks = format!("{base}__images");
    match &alone {
        Some(alone) => {
            let least = PrimExpr::i64(alone.least.max(threads));
            let all = count.clone().ge(least);
            let shares = |b: &mut Builder| i.call_shares(b, &call, &room, &tasks);
            let whole = count.clone().floor_div(threads) * threads;
            match all.as_int() {
                Some(_) => {
                    shares(&mut b);
                    if !(count.clone() - whole.clone()).is_int(0) {
                        one_by_one(&mut b, whole);
                    }
                }
                None => {
                    let first = b.local("first", PrimExpr::i64(0));
                    b.if_then(all, |b| {
                        shares(b);
                        b.assign(&first, whole);
                    });
                    one_by_one(&mut b, first.expr());
                }
            }
        }
        None => one_by_one(&mut b, PrimExpr::i64(0)),
    }
    if let Some((rest, ..)) = &rest {
        let mut all = vec![call.expr(), room.clone()];
        all.extend(i.args.iter().chain(&i.outs).map(|(ptr, _)| ptr.expr()));
        all.extend(rest.vars.iter().cloned());
        all.extend(outs.iter().map(|(ptr, _)| ptr.expr()));
        all.push(actual.expr());
        let rc = b.call(rest.body.clone(), all);
        b.return_if_failed(rc);
    }
    b.ret(PrimExpr::i32(0));
    let body = b.finish(format!("{base}__body"), params, Some(DType::I32), Linkage::Local);
    // Where threads take all images, nobody calls the function of one image for all threads.
    let shared = alone.is_some() && count.as_int().is_some_and(|n| n % threads == 0);
    let mut most = form.total.clone();
    if shared {
        cx.funcs.retain(|f| f.name != form.body.name);
        most = PrimExpr::i64(0);
    }
    if let Some(alone) = &alone {
        let shares = i.shares(&mut cx.pool, alone, &tasks);
        cx.funcs.push(shares);
        most = most.max(memory::align_up(alone.total.clone()) * threads);
    }
    let mut layout = layout.clone();
    layout.total = match rest {
        Some((rest, ..)) => total + most.max(rest.total),
        None => most,
    };
    for (r, bytes) in layout.regions.iter_mut().zip(form.regions) {
        r.bytes = bytes;
    }
    Ok((body, layout))
}

fn dims(l: &Leaf) -> &[PrimExpr] {
    match &l.kind {
        LeafKind::Tensor { dims, .. } => dims,
        _ => &[],
    }
}

impl Images<'_> {
    /// The arguments of the function of one image.
    fn of_image(&self, call: &Var, room: PrimExpr, form: &Form, image: PrimExpr) -> Vec<PrimExpr> {
        let at = |(ptr, bytes): &(Var, PrimExpr)| match bytes.is_int(0) {
            true => ptr.expr(),
            false => ptr.expr().ptr_add(image.clone() * bytes.clone()),
        };
        let mut all = vec![call.expr(), room];
        all.extend(self.args.iter().map(at));
        all.extend(form.vars.iter().cloned());
        all.extend(self.outs.iter().map(at));
        all.push(self.actual.expr());
        all
    }

    /// What the shares read, in words of 8 bytes.
    fn words(&self) -> impl Iterator<Item = &Var> {
        let pointers = self.args.iter().chain(&self.outs).map(|(ptr, _)| ptr);
        pointers.chain(&self.vars).chain([&self.actual])
    }

    /// Has the images computed in shares, a share for each thread and as many images in each.
    fn call_shares(&self, b: &mut Builder, call: &Var, room: &PrimExpr, tasks: &str) {
        let each = self.count.clone().floor_div(self.threads);
        let words: Vec<PrimExpr> =
            [call.expr(), room.clone(), each].into_iter().chain(self.words().map(Var::expr)).collect();
        let context = b.stack("context", 8 * words.len() as u32, 8);
        for (i, word) in words.into_iter().enumerate() {
            b.store(&context, 8 * i as i64, word);
        }
        let (h, n) = (DType::HANDLE, DType::I64);
        let tasks = b.address(tasks);
        let callee = local_callee(&crate::threads::parallel_name(self.prefix), vec![h, n, h, h], Some(DType::I32));
        let rc = b.call(callee, vec![call.expr(), PrimExpr::i64(self.threads), tasks, context]);
        b.return_if_failed(rc);
    }

    /// `int32_t images(void *context, int64_t begin, int64_t end)`: the shares `begin..end`.
    fn shares(&self, pool: &mut Pool, form: &Form, name: &str) -> FlatFunc {
        let [context, begin, end] =
            [("context", DType::HANDLE), ("begin", DType::I64), ("end", DType::I64)].map(|(name, d)| Var::new(name, d));
        let (call, room, each) =
            (Var::new("call", DType::HANDLE), Var::new("room", DType::HANDLE), Var::new("each", DType::I64));
        let mut b = Builder::new(pool, self.abi, call.expr());
        for (i, var) in [&call, &room, &each].into_iter().chain(self.words()).enumerate() {
            let at = context.expr().ptr_add(8 * i as i64);
            b.let_var(var, PrimExpr::load_ptr(at, PrimExpr::i64(0), var.dtype()));
        }
        let bytes = memory::align_up(form.total.clone());
        b.for_range("share", end.expr() - begin.expr(), |b, i| {
            let share = b.bind("at", begin.expr() + i);
            b.for_range("image", each.expr(), |b, image| {
                let room = room.expr().ptr_add(share.clone() * bytes.clone());
                let image = share.clone() * each.expr() + image;
                let rc = b.call(form.body.clone(), self.of_image(&call, room, form, image));
                b.return_if_failed(rc);
            });
        });
        b.ret(PrimExpr::i32(0));
        b.finish(name.to_string(), vec![context, begin, end], Some(DType::I32), Linkage::Local)
    }
}
