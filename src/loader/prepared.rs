//! Timing typed entries over memory that stays where it is.

use super::{dense, Bytes, CallError, Library, Memory};
use relax_ir::DType;
use relax_rt::{Call, DLTensor};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Memory that calls share.
pub struct Shared {
    blocks: Vec<Bytes>,
}

impl Shared {
    /// Blocks with these contents, at multiples of 64.
    pub fn new(contents: &[Vec<u8>]) -> Shared {
        Shared { blocks: contents.iter().map(|c| Bytes::new(c, Memory::Heap)).collect() }
    }

    /// Reads the first bytes of block `i`: they are in the caches as if somebody had just written them.
    pub fn touch(&self, i: usize, bytes: usize) {
        if let Some(Bytes::Heap { storage, start }) = self.blocks.get(i) {
            let lines = storage[*start..].iter().take(bytes).step_by(64);
            std::hint::black_box(lines.fold(0u8, |sum, b| sum.wrapping_add(*b)));
        }
    }

    /// Whether block `i` has so many bytes.
    fn holds(&self, i: usize, bytes: usize) -> bool {
        self.blocks
            .get(i)
            .is_some_and(|b| matches!(b, Bytes::Heap { storage, start } if storage.len() - start >= bytes))
    }
}

/// A call that can be made again and again. What it points to lives as long as it does.
pub struct Prepared<'a> {
    library: &'a Library,
    symbol: String,
    words: Vec<usize>,
    call: Box<Call>,
    _tensors: Vec<(Box<DLTensor>, Vec<i64>)>,
    _shared: Rc<Shared>,
    _workspace: Bytes,
}

impl Library {
    /// A call of the typed entry `PREFIX_NAME` over static tensors: arguments and results lie in the blocks of `shared`,
    /// in order. `None` when a block is too small, or the entry takes too many arguments.
    pub fn prepare(&self, symbol: &str, tensors: &[(DType, Vec<i64>)], shared: &Rc<Shared>) -> Option<Prepared<'_>> {
        let mut keep = vec![];
        for (i, (dtype, shape)) in tensors.iter().enumerate() {
            let bytes = shape.iter().product::<i64>() as usize * dtype.bytes();
            if !shared.holds(i, bytes) {
                return None;
            }
            let mut shape = shape.clone();
            let tensor = Box::new(dense(*dtype, &mut shape, shared.blocks[i].as_pointer().cast_mut()));
            keep.push((tensor, shape));
        }
        let bytes = self.workspace_size(symbol, &[])?;
        let workspace = Bytes::new(&vec![0; bytes], Memory::Heap);
        let mut call = Box::new(Call::new());
        call.workspace = workspace.as_pointer().cast_mut().cast();
        call.workspace_size = bytes;
        let mut words: Vec<usize> = keep.iter().map(|(t, _)| std::ptr::from_ref::<DLTensor>(t) as usize).collect();
        words.push(&raw mut *call as usize);
        let symbol = symbol.to_string();
        let _shared = shared.clone();
        Some(Prepared { library: self, symbol, words, call, _tensors: keep, _shared, _workspace: workspace })
    }
}

impl Prepared<'_> {
    /// The time of so many calls together.
    pub fn time(&mut self, calls: u32) -> Result<Duration, CallError> {
        let unknown =
            || CallError { code: -1, constraint: 0, wanted: 0, got: 0, message: format!("no entry {}", self.symbol) };
        let start = Instant::now();
        for _ in 0..calls {
            let code = self.library.words(&self.symbol, &self.words).ok_or_else(unknown)? as u32 as i32;
            if code != 0 {
                return Err(CallError::left_in(&self.call, code));
            }
        }
        Ok(start.elapsed())
    }
}
