//! Weights in a file beside the library: where each one lies, and the check that a call brings the right file.

use super::build::{address_of, Builder, Failure, Pool};
use fnv::FnvHasher;
use relax_ir::flat::{DataBytes, FlatData, Linkage};
use relax_ir::program::{code, WeightsFile};
use relax_ir::{Constant, DType, PrimExpr};
use std::hash::Hasher;

/// Smaller constants stay in the library.
const LEAST_BYTES: usize = 1024;

/// The weights placed so far.
#[derive(Default)]
pub struct External {
    pieces: Vec<(u64, Constant)>,
    end: u64,
}

impl External {
    /// Places a constant: its offset in the file. `None` for small ones.
    pub fn place(&mut self, c: &Constant) -> Option<u64> {
        if c.size() < LEAST_BYTES {
            return None;
        }
        let at = self.end.max(WeightsFile::HEAD as u64).next_multiple_of(WeightsFile::ALIGN);
        self.pieces.push((at, c.clone()));
        self.end = at + c.size() as u64;
        Some(at)
    }

    /// The file, and the data that calls compare it with. `None` when nothing was placed.
    pub fn finish(self, pool: &mut Pool, prefix: &str) -> Option<WeightsFile> {
        if self.pieces.is_empty() {
            return None;
        }
        let mut h = FnvHasher::default();
        for (at, c) in &self.pieces {
            h.write_u64(*at);
            // Hashing does not fail.
            let _ = c.data.pieces(&mut |piece| {
                h.write(piece);
                Ok(())
            });
        }
        let file = WeightsFile { pieces: self.pieces, bytes: self.end, hash: h.finish() };
        let mut bytes = file.bytes.to_le_bytes().to_vec();
        bytes.extend(file.hash.to_le_bytes());
        pool.data.push(FlatData {
            symbol: id_symbol(prefix),
            align: 8,
            bytes: DataBytes::Owned(bytes),
            relocs: vec![],
            linkage: Linkage::Local,
        });
        Some(file)
    }
}

/// Size and hash of the file, as the library knows them.
fn id_symbol(prefix: &str) -> String {
    format!("{prefix}__weights_id")
}

/// The weights of the call: code that checks size, alignment and hash, and gives the pointer.
pub fn of_call(b: &mut Builder, prefix: &str) -> PrimExpr {
    let abi = b.abi;
    let zero = PrimExpr::i64(0);
    let call = b.call.clone();
    let missing = |what| Failure { code: code::NULL, constraint: 0, wanted: zero.clone(), got: zero.clone(), what };
    b.fail_if(address_of(call.clone()).eq(zero.clone()), missing("call, which brings the weights"));
    let weights = b.load("weights", &call, abi.call_weights, DType::HANDLE);
    b.fail_if(address_of(weights.clone()).eq(zero.clone()), missing("weights of the call"));
    let id = b.address(&id_symbol(prefix));
    let wanted = b.load("bytes", &id, 0, DType::I64);
    let int = if abi.pointer == 8 { DType::I64 } else { DType::I32 };
    let got = b.load("given", &call, abi.call_weights_size, int).cast(DType::I64);
    let got = b.bind("given", got);
    let what = "weights size in bytes";
    b.fail_if(got.clone().lt(wanted.clone()), Failure { code: code::DIM, constraint: 0, wanted, got, what });
    let align = PrimExpr::i64(WeightsFile::ALIGN as i64);
    let off = b.bind("off", address_of(weights.clone()).floor_mod(align.clone()));
    let what = "alignment of the weights in bytes";
    b.fail_if(off.clone().ne(zero), Failure { code: code::ALIGN, constraint: 0, wanted: align, got: off, what });
    let wanted = b.load("hash", &id, 8, DType::I64);
    let got = b.load("hash", &weights, WeightsFile::HASH_AT as i64, DType::I64);
    let what = "hash of the weights: they are another model's";
    b.fail_if(got.clone().ne(wanted.clone()), Failure { code: code::CHECK, constraint: 0, wanted, got, what });
    weights
}
