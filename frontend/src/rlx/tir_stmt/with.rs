//! `with`: blocks, attributes, lets, threads, and branches and loops in the words of the script builder.

use super::*;

impl<'a> Cx<'a> {
    pub(super) fn tir_with(
        &mut self,
        items: &[(Expr<'a>, Option<Expr<'a>>)],
        body: &[Stmt<'a>],
        span: Span,
        f: &mut PrimCx,
        block: &mut Option<BlockParts>,
        place: Place,
    ) -> Option<Vec<Item>> {
        let [(item, target)] = items else {
            return self.unsupported("tir", first_line(self.text, span), "one thing per `with` is read");
        };
        let (Some(what), Some(call)) = (item.called(), item.as_call()) else {
            return self.expected(item, "T.sblock(..) or another scope");
        };
        let one = |kind: TKind| Some(vec![Item::Stmt(TStmt::at(kind, span))]);
        match what.as_str() {
            "T.sblock" if !f.blocks => {
                let d = Diagnostic::error("tir", item.span, "a PrimFunc without s_tir=True has no blocks");
                self.report(d.help("write @T.prim_func(s_tir=True)"))
            }
            "T.sblock" if target.is_some() => {
                let d = Diagnostic::error("tir", item.span, "a block is no value");
                self.report(d.help("drop `as`; its axes have names: `v = T.axis.spatial(..)`"))
            }
            "T.sblock" | "T.block" => {
                if let Some((k, _)) = call.keywords.iter().find(|(k, _)| !matches!(k.name, "name" | "no_realize")) {
                    return self.error("argument", k.span, format!("{what} has no argument `{}`", k.name));
                }
                let name = match call.arg(0, "name") {
                    Some(n) => self.string(n)?,
                    None => String::new(),
                };
                let mut parts = Some(BlockParts::default());
                self.names.push();
                let (outside, before) = (f.cells.len(), f.pointers.len());
                let around = std::mem::replace(&mut f.block_cells, outside);
                let list = self.tir_list(body, f, &mut parts, Place::Body);
                let cells = f.cells.split_off(outside.min(f.cells.len()));
                let pointers = f.pointers.split_off(before.min(f.pointers.len()));
                self.names.pop();
                let mut p = parts?;
                if let Some(none) = call.arg(1, "no_realize").filter(|_| !p.axes.is_empty() || p.predicate.is_some()) {
                    if self.bool(none)? {
                        return self.error("tir", none.span, "a block without realisation has no axes");
                    }
                }
                f.block_cells = around;
                if what == "T.sblock" && !(f.root == Some(span) && p.axes.is_empty()) {
                    self.states_own(&name, item.span, &p, &cells, &list)?;
                }
                let stated = p.reads.is_some() && p.writes.is_some();
                if let Some(pointer) = pointers.first().filter(|_| !stated && what == "T.sblock" && name != "root") {
                    let message =
                        format!("block \"{name}\" names memory by its pointer and does not state what it accesses");
                    let d = Diagnostic::error("tir", *pointer, message).label(item.span, "this block");
                    return self.report(d.help("state T.reads(..) and T.writes(..)"));
                }
                let mut list = list;
                if !p.values.is_empty() {
                    let with = |s: TStmt| s.rewrite(&mut |e| e.substitute(&p.values), &mut |s| s);
                    list = list.into_iter().map(with).collect();
                    p.init = p.init.map(with);
                }
                // Where nothing is reduced, every instance is the first.
                if !p.axes.iter().any(|a| a.kind == IterKind::Reduce) {
                    drop(list.splice(0..0, p.init.take()));
                }
                // The first step of a reduction is where its axes are least.
                let least: HashMap<Var, PrimExpr> = p
                    .axes
                    .iter()
                    .filter(|a| a.kind == IterKind::Reduce)
                    .map(|a| (a.var.clone(), a.min.clone()))
                    .collect();
                let init = p.init.map(|i| i.rewrite(&mut |e| e.substitute(&least), &mut |s| s));
                let block = Block {
                    name,
                    axes: p.axes,
                    predicate: p.predicate,
                    reads: p.reads,
                    writes: p.writes,
                    attrs: p.attrs,
                    alloc_buffers: p.alloc_buffers,
                    match_buffers: p.match_buffers,
                    init,
                    body: TStmt::seq(list),
                };
                self.outer_loops(&block)?;
                one(TKind::Block(Box::new(block)))
            }
            "T.init" => {
                let init = self.nested(body, f);
                let b = self.parts(block, place, "T.init()", item.span)?;
                if b.init.replace(init).is_some() {
                    return self.error("tir", item.span, "T.init() of this block is stated already");
                }
                Some(vec![])
            }
            "T.attr" => {
                self.scope(f, span)?;
                let attrs = self.tir_attr(call, item.span);
                let mut stmt = self.nested(body, f);
                for (node, key, value) in attrs?.into_iter().rev() {
                    stmt = TStmt::at(TKind::Attr { node, key, value, body: stmt }, span);
                }
                Some(vec![Item::Stmt(stmt)])
            }
            "T.Assert" => {
                let check = self.assertion_of(call, item.span);
                let body = self.nested(body, f);
                Some(vec![Item::Stmt(check?), Item::Stmt(body)])
            }
            "T.While" => {
                let Some(cond) = call.arg(0, "condition") else {
                    return self.error("argument", item.span, "T.While takes a condition");
                };
                self.while_loop(cond, body, span, f).map(|s| vec![Item::Stmt(s)])
            }
            "T.If" => self.if_statement(call, body, span, f).map(|s| vec![Item::Stmt(s)]),
            // What comes later gets other names.
            "T.hint" | "T.block_name_suffix_context" => {
                let body = self.nested(body, f);
                Some(vec![Item::Stmt(body)])
            }
            "T.let" => {
                let d = Diagnostic::error("tir", item.span, "T.let is the type of a binding, it opens no scope");
                self.report(d.help("write `v: T.let = value`"))
            }
            "T.LetStmt" => {
                let (named, value) = match (call.args.as_slice(), target) {
                    ([value], Some(t)) => (Some(t), value),
                    ([value], None) => (call.keyword("var"), value),
                    _ => return self.error("argument", item.span, "write `with T.LetStmt(value) as v:`"),
                };
                let Some(named) = named else {
                    return self.error("argument", item.span, "write `with T.LetStmt(value) as v:`");
                };
                let Some(name) = named.as_name() else { return self.expected(named, "a name") };
                let value = self.prim(value);
                self.names.push();
                let var = value.as_ref().map(|v| Var::with_span(name, v.dtype(), named.span));
                if let (Some(var), Some(value)) = (&var, &value) {
                    self.note_let(var, value);
                }
                let meaning = var.clone().map_or(Value::Poison, Value::Prim);
                self.names.bind(name, meaning);
                let body = self.nested(body, f);
                self.names.pop();
                one(TKind::Let { var: var?, value: value?, body })
            }
            "T.decl_buffer" | "T.alloc_local" | "T.alloc_shared" => {
                let Some(name) = target.as_ref().and_then(Expr::as_name) else {
                    return self.error("syntax", item.span, format!("write `with {what}(..) as name:`"));
                };
                let scope = if what == "T.alloc_local" { "local" } else { "global" };
                if let Some(data) = buffer_argument(call, 0, "data").filter(|_| what == "T.decl_buffer") {
                    self.names.push();
                    let view = self.view(name, call, data, item.span);
                    self.born(name, item.span, f);
                    let body = self.nested(body, f);
                    self.names.pop();
                    return view.map(|()| vec![Item::Stmt(body)]);
                }
                let buffer = self.memory_type(name, call, scope, item.span);
                self.names.push();
                let meaning = buffer.clone().map_or(Value::Poison, Value::Buffer);
                self.names.bind(name, meaning);
                self.born(name, item.span, f);
                let body = self.nested(body, f);
                self.names.pop();
                one(TKind::Alloc { buffer: buffer?, body })
            }
            "T.launch_thread" => {
                let header = self.thread(call, item.span);
                self.names.push();
                let mut found = None;
                if let (Some((thread, extent)), Some(name)) = (header, target.as_ref().and_then(Expr::as_name)) {
                    let min = PrimExpr::int(extent.dtype(), 0);
                    let var = self.loop_var(name, item.span, &min, &extent);
                    found = Some((var, min, extent, ForKind::ThreadBinding(thread)));
                }
                let body = self.nested(body, f);
                self.names.pop();
                let (var, min, extent, kind) = found?;
                one(TKind::For { var, min, extent, kind, annotations: vec![], body })
            }
            _ => {
                let d = Diagnostic::unsupported("tir", call.func.span, format!("`with {what}(..)` is not supported"));
                self.report(d.help("PrimFuncs are read in block form: loops and `with T.sblock(..):`"))
            }
        }
    }
}
