//! What a module says of the machine: `I.module_global_infos({"vdevice": [..], "mesh": [..]})`.
//!
//! Source: TVM `ir.GlobalInfo` and its kinds, `relax.distributed.DeviceMesh`. A compiled library runs on one device: they are
//! checked and kept as text.

use super::context::Cx;
use super::syntax::*;
use super::targets::target_kind;
use relax_ir::{AttrValue, Diagnostic};

/// Kind and number of `kind:number:scope`; without a number it is the first one. TVM's parser passes over the scope of
/// the memory, which its printer writes.
fn parts(written: &str) -> (&str, Option<usize>) {
    let mut parts = written.split(':');
    let kind = parts.next().unwrap_or_default();
    (kind, parts.next().map_or(Some(0), |n| n.parse().ok()))
}

impl<'a> Cx<'a> {
    /// The lists of global infos by name, in the order written.
    pub fn global_infos(&mut self, call: &CallExpr<'a>) -> Option<Vec<(String, Vec<AttrValue>)>> {
        let entries = match call.args.as_slice() {
            [Expr { kind: ExprKind::Dict(entries), .. }] => entries,
            _ => return self.error("argument", call.func.span, "a dictionary of lists is needed here"),
        };
        let mut all = vec![];
        for (key, list) in entries {
            let name = self.string(key)?;
            let Some(infos) = list.elements() else { return self.expected(list, "a list of global infos") };
            if name == "vdevice" {
                self.devices = Some(infos.iter().map(kind).collect());
            }
            let infos = infos.iter().map(|e| self.global_info(e)).collect::<Option<Vec<_>>>()?;
            all.push((name, infos));
        }
        Some(all)
    }

    /// A virtual device as text: `"cuda:0"`, or the call as written.
    pub fn vdevice(&mut self, e: &Expr<'a>) -> Option<String> {
        match &e.kind {
            ExprKind::None => None,
            ExprKind::Str(s) => Some(self.device_name(s)),
            _ => self.text.get(e.span.lo as usize..e.span.hi as usize).map(str::to_string),
        }
    }

    /// A device that a string names, by its number among those of its kind. The module must list devices, more than this
    /// number says; and this one, where something is to go there. Source: TVM `I.lookup_vdevice`, which for other
    /// annotations takes a device that is not listed for none.
    pub fn listed_device(&mut self, e: &Expr<'a>, to_go_there: bool) -> Option<String> {
        let written = e.as_str().unwrap_or_default();
        let (kind, number) = parts(written);
        let Some(listed) = self.devices.as_deref() else {
            let d = Diagnostic::error("type", e.span, "the module lists no virtual devices");
            return self.report(d.help("begin it with I.module_global_infos({\"vdevice\": [I.vdevice(..)]})"));
        };
        let own = listed.iter().filter(|k| kind == "vdevice" || *k == kind).count();
        let most = if to_go_there { own } else { listed.len() };
        if number.is_some_and(|n| n < most) {
            return Some(self.device_name(written));
        }
        let names: Vec<String> = (0..listed.len()).map(|i| self.device_name(&format!("vdevice:{i}"))).collect();
        let d = Diagnostic::error("type", e.span, format!("the module lists no device `{written}`"));
        self.report(d.help(format!("it lists {}", names.join(", "))))
    }

    /// One name for a device: its kind, and its number among those of this kind. `vdevice:3` counts all of them, a name
    /// without a number is the first. Source: TVM `I.lookup_vdevice`.
    pub fn device_name(&self, written: &str) -> String {
        let (kind, number) = parts(written);
        let Some(number) = number else { return written.to_string() };
        let listed = self.devices.as_deref().unwrap_or(&[]);
        match listed.get(number).filter(|_| kind == "vdevice") {
            Some(kind) => format!("{kind}:{}", listed[..number].iter().filter(|k| *k == kind).count()),
            None => format!("{kind}:{number}"),
        }
    }

    /// `R.device(device_type=1, index=0)`, `R.device("cpu:0")`: a device of DLPack, by its code or its name.
    /// Source: TVM `tvm_ffi.device`.
    pub fn device(&mut self, call: &CallExpr<'a>, e: &Expr<'a>) -> Option<String> {
        const NAMES: [&str; 12] = [
            "cpu",
            "cuda",
            "cuda_host",
            "opencl",
            "vulkan",
            "metal",
            "vpi",
            "rocm",
            "ext_dev",
            "oneapi",
            "webgpu",
            "hexagon",
        ];
        let (Some(kind), true) = (call.arg(0, "device_type"), call.args.len() <= 2) else {
            return self.error("argument", e.span, "R.device takes a type of device and an index");
        };
        self.known_keywords(call, &["device_type", "index"]);
        if let Some(index) = call.arg(1, "index").filter(|i| !matches!(i.kind, ExprKind::None)) {
            self.int(index)?;
        }
        let known = match &kind.kind {
            ExprKind::Str(s) => NAMES.contains(&s.split(':').next().unwrap_or("")),
            _ => self.int(kind)? > 0,
        };
        if !known {
            return self.expected(kind, "a type of device, \"cpu\" say,");
        }
        self.text.get(e.span.lo as usize..e.span.hi as usize).map(str::to_string)
    }

    fn global_info(&mut self, e: &Expr<'a>) -> Option<AttrValue> {
        let (name, call) = (e.called(), e.as_call());
        match (name.as_deref(), call) {
            (Some("I.vdevice"), _) => self.target_exists(e)?,
            (Some("I.dummy_global_info"), Some(call)) => {
                if let Some(a) = call.args.first().or(call.keywords.first().map(|(_, v)| v)) {
                    return self.error("argument", a.span, "I.dummy_global_info takes no arguments");
                }
            }
            (Some("R.device_mesh"), Some(call)) => self.device_mesh(call, e)?,
            _ => return self.expected(e, "a global info (I.vdevice(..), R.device_mesh(..), I.dummy_global_info())"),
        }
        Some(AttrValue::GlobalInfo(self.vdevice(e)?))
    }

    /// `I.vdevice(target=None, vdevice_id=0, memory_scope="global")`: a kind of target that there is, or its tag
    /// (`"nvidia/nvidia-a100"`).
    pub fn target_exists(&mut self, e: &Expr<'a>) -> Option<()> {
        let Some(call) = e.as_call().filter(|_| e.called().as_deref() == Some("I.vdevice")) else { return Some(()) };
        if let Some(more) = call.args.get(3) {
            return self.error("argument", more.span, "I.vdevice takes a target, a number and a scope");
        }
        self.known_keywords(call, &["target", "vdevice_id", "memory_scope"]);
        if let Some(number) = call.arg(1, "vdevice_id") {
            self.int(number)?;
        }
        if let Some(scope) = call.arg(2, "memory_scope") {
            self.string(scope)?;
        }
        let Some(target) = call.arg(0, "target") else { return Some(()) };
        self.target(target)
    }

    /// `R.device_mesh((2, 2), I.Range(0, 4))`, `R.device_mesh((2,), [0, 1])`: as many devices as the shape has places.
    fn device_mesh(&mut self, call: &CallExpr<'a>, e: &Expr<'a>) -> Option<()> {
        let (Some(shape), Some(ids)) = (call.arg(0, "shape"), call.arg(1, "device_ids")) else {
            return self.error("argument", e.span, "R.device_mesh takes a shape and devices");
        };
        let shape = match (shape.elements(), shape.as_call().filter(|_| shape.called().as_deref() == Some("R.shape"))) {
            (Some(dims), _) => dims,
            (None, Some(call)) => call.args.first().and_then(Expr::elements).unwrap_or(&[]),
            (None, None) => return self.expected(shape, "a shape"),
        };
        let mut places = 1i64;
        for d in shape {
            places = places.saturating_mul(self.int(d)?);
        }
        let devices = match (ids.elements(), ids.called().as_deref(), ids.as_call()) {
            (Some(list), ..) => list.len() as i64,
            (None, Some("I.Range"), Some(range)) => match range.args.as_slice() {
                [end] => self.int(end)?,
                [begin, end] => {
                    let (begin, end) = (self.int(begin)?, self.int(end)?);
                    end.saturating_sub(begin)
                }
                _ => return self.error("argument", ids.span, "a range is I.Range(end) or I.Range(begin, end)"),
            },
            _ => return self.expected(ids, "a list of devices or I.Range(begin, end)"),
        };
        if devices != places {
            let d =
                Diagnostic::error("argument", e.span, format!("the mesh has {places} places for {devices} devices"));
            return self.report(d.help("state as many devices as the shape has places"));
        }
        Some(())
    }
}

/// The kind of target of `I.vdevice("llvm", 0)` or `I.vdevice({"kind": "llvm", ..})`.
fn kind(e: &Expr) -> String {
    let target = e.as_call().and_then(|c| c.arg(0, "target"));
    target.and_then(target_kind).unwrap_or("").to_string()
}
