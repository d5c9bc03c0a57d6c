//! Tiles: matrices of up to 16 rows of 64 bytes, in registers of their own.

use super::*;

pub(super) fn is_tile_rows(e: &PrimExpr) -> bool {
    matches!(e.kind(), PrimKind::Call(Intrin::TileRows, _))
}

/// Rows of a tile of this type.
fn rows(d: DType) -> Option<u8> {
    let bytes = d.lanes as usize * d.bytes();
    let rows = u8::try_from(bytes / 64).ok()?;
    (bytes.is_multiple_of(64) && (1..=16).contains(&rows)).then_some(rows)
}

impl Builder {
    pub(super) fn tile_rows(&mut self, e: &PrimExpr) -> Option<Val> {
        let PrimKind::Call(_, args) = e.kind() else { return None };
        let [ptr, stride] = &args[..] else { return None };
        let rows = rows(e.dtype()).filter(|_| self.evex)?;
        let Val::General(stride) = self.value(stride)? else { return None };
        let m = self.address_without_index(ptr, &PrimExpr::i64(0), 1)?;
        let d = self.reg(Class::Tile(rows));
        self.push(Inst::TileLoad { d, m, stride });
        Some(Val::Tile(d))
    }

    /// The register of a tile that has a name.
    pub(super) fn tile(&self, e: &PrimExpr) -> Option<Reg> {
        match self.bound.get(&e.as_var()?.id())? {
            Val::Tile(r) => Some(*r),
            _ => None,
        }
    }

    pub(super) fn assign_tile(&mut self, d: Reg, var: &Var, value: &PrimExpr) -> Option<()> {
        let PrimKind::Call(Intrin::TileDot, args) = value.kind() else { return None };
        let [sums, a, b] = &args[..] else { return None };
        if sums.as_var() != Some(var) {
            return None;
        }
        let (a, b) = (self.tile(a)?, self.tile(b)?);
        // Rows of the sums and of the left side, and 16 of the right.
        let of = |r: Reg| self.p.classes[r as usize];
        if of(a) != of(d) || of(b) != Class::Tile(16) || a == d || b == d || a == b {
            return None;
        }
        self.push(Inst::TileDot { d, a, b });
        Some(())
    }

    /// The index of an address of a tile is the way from row to row.
    pub(super) fn address_without_index(&mut self, ptr: &PrimExpr, offset: &PrimExpr, bytes: u32) -> Option<Mem> {
        let m = self.address(ptr, offset, bytes)?;
        if m.index.is_none() {
            return Some(m);
        }
        let d = self.reg(Class::General);
        self.push(Inst::Address { d, m });
        Some(Mem { base: Base::Reg(d), index: None, disp: 0 })
    }
}
