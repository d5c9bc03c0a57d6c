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
            let (number, what) = f.check(&prim.name, self.infos, span);
            self.step(Step::Check {
                condition,
                code: code::CHECK,
                constraint: number,
                wanted: told[2].expr(),
                got: told[1].expr(),
                what,
                numbers: vec![],
            });
        }
        Ok(())
    }
}
