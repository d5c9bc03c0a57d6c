//! Kernels that test their accesses (`--check-bounds`).

use super::*;
use crate::accesses::{tested, STATUS};

impl Planner<'_> {
    /// Calls the kernel with its tests; what they found fails here.
    pub(super) fn tested_kernel(
        &mut self,
        prim: &PrimFunc,
        inputs: &[HostValue],
        mut outputs: Vec<TensorValue>,
        span: Span,
    ) -> Res<()> {
        let (mut with_tests, found) = tested(prim);
        self.place_kernel(&mut with_tests);
        let status = self.tensor(vec![PrimExpr::i64(STATUS)], DType::I64);
        outputs.push(status.clone());
        self.kernel(&with_tests, inputs, &outputs, span)?;
        let told: Vec<Var> = ["access", "index", "extent"].iter().map(|n| Var::new(*n, DType::I64)).collect();
        for (index, var) in told.iter().enumerate() {
            self.step(Step::Read { var: var.clone(), from: status.buf, index, dtype: DType::I64 });
        }
        for (i, f) in found.iter().enumerate() {
            let condition = told[0].expr().ne(PrimExpr::i64(i as i64 + 1));
            let verb = if f.write { "writes" } else { "reads" };
            let message = format!("{} {verb} {} outside of its buffer, index {}", prim.name, f.text(), f.axis);
            let number = self.infos.len() as u32 + 1;
            let extent = relax_ir::printer::print_prim(&f.buffer.shape[f.axis]);
            self.infos.push(CheckInfo {
                number,
                code: code::CHECK,
                condition: format!("0 <= {} < {extent}", relax_ir::printer::print_prim(&f.indices[f.axis])),
                message: message.clone(),
                span: if f.span.is_none() { span } else { f.span },
            });
            self.step(Step::Check {
                condition,
                code: code::CHECK,
                constraint: number,
                wanted: told[2].expr(),
                got: told[1].expr(),
                what: message,
            });
        }
        Ok(())
    }
}
