//! Calling the typed entries of a library as firmware does: caller's buffers and workspace, no allocator.

use super::{dense, guard::Pages, CallError, Library, Memory};
use relax_ir::{Constant, DType};
use relax_rt::{Call, DLTensor};
use std::ffi::c_void;

/// An argument of a typed entry, a result left out.
#[derive(Clone, Debug)]
pub enum Argument {
    Tensor(Constant),
    /// A pointer and a count.
    Shape(Vec<i64>),
    Integer(i64),
}

/// Words that one entry can take.
const MOST: usize = 16;
/// Room for the dims of a result.
const RANK: usize = 32;

/// All arguments of the kinds above are passed as integers, and a function that takes fewer ignores the others: so one
/// type serves every entry under the calling conventions of the supported hosts.
type Words = [usize; MOST];
type Typed = unsafe extern "C" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> usize;

struct Tensor {
    tensor: Box<DLTensor>,
    shape: Vec<i64>,
    data: Option<Pages>,
}

fn tensor(dtype: DType, mut shape: Vec<i64>, data: Option<Pages>) -> Tensor {
    let pointer = data.as_ref().map_or(std::ptr::null_mut(), |p| p.pointer());
    let tensor = Box::new(dense(dtype, &mut shape, pointer));
    Tensor { tensor, shape, data }
}

fn address<T>(p: *const T) -> usize {
    p as usize
}

impl Library {
    /// The address of an exported function, called with words.
    pub(super) fn words(&self, symbol: &str, words: &[usize]) -> Option<usize> {
        if words.len() > MOST {
            return None;
        }
        let mut w: Words = [0; MOST];
        w[..words.len()].copy_from_slice(words);
        // SAFETY: the caller passes what the header of this library declares, as words.
        unsafe {
            let f = *self._library.get::<Typed>(format!("{symbol}\0").as_bytes()).ok()?;
            Some(f(
                w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15],
            ))
        }
    }

    /// `P_f_workspace_size(dims..)`; `None` when there is no such function or it takes too many dims.
    pub fn workspace_size(&self, entry: &str, dims: &[i64]) -> Option<usize> {
        let words: Vec<usize> = dims.iter().map(|d| *d as usize).collect();
        self.words(&format!("{entry}_workspace_size"), &words)
    }

    /// Calls the typed entry `entry` (`P_f`) with a workspace of exactly `bytes` bytes; arguments, results and workspace
    /// each lie between unmapped pages, at the end or the start of theirs. The call record says `bytes - less`.
    ///
    /// `None` when the entry takes more words than this can pass.
    pub fn call_exact(
        &self,
        memory: Memory,
        entry: &str,
        args: &[Argument],
        results: usize,
        bytes: usize,
        less: usize,
    ) -> Option<Result<Vec<Constant>, CallError>> {
        let mut keep = vec![];
        let mut shapes = vec![];
        let mut words = vec![];
        for a in args {
            match a {
                Argument::Tensor(c) => {
                    let t = tensor(c.dtype, c.shape.clone(), Some(Pages::holding(c.bytes(), memory)?));
                    words.push(address(&*t.tensor));
                    keep.push(t);
                }
                Argument::Shape(values) => {
                    words.extend([values.as_ptr() as usize, values.len()]);
                    shapes.push(values);
                }
                Argument::Integer(n) => words.push(*n as usize),
            }
        }
        let mut outs: Vec<Tensor> = (0..results).map(|_| tensor(DType::U8, vec![0; RANK], None)).collect();
        words.extend(outs.iter().map(|t| address(&*t.tensor)));
        let workspace = Pages::holding(&vec![0xa5; bytes], memory)?;
        let mut call = Call::new();
        call.workspace = workspace.pointer().cast::<c_void>();
        call.workspace_size = bytes - less;
        words.push(&raw mut call as usize);
        let go = |symbol: &str| -> Option<Result<(), CallError>> {
            let code = self.words(symbol, &words)? as u32 as i32;
            // SAFETY: the call has returned: nothing else refers to the record, which has the address in `words`.
            let record = unsafe { &*(words[words.len() - 1] as *const Call) };
            Some(if code == 0 { Ok(()) } else { Err(CallError::left_in(record, code)) })
        };
        if let Err(e) = go(&format!("{entry}_infer"))? {
            return Some(Err(e));
        }
        for t in &mut outs {
            let dtype = DType::from_dlpack(t.tensor.dtype.code, t.tensor.dtype.bits)?;
            let elements: i64 = t.shape[..t.tensor.ndim as usize].iter().product();
            let data = Pages::holding(&vec![0; elements as usize * dtype.bytes()], memory)?;
            t.tensor.data = data.pointer().cast();
            t.data = Some(data);
        }
        if let Err(e) = go(entry)? {
            return Some(Err(e));
        }
        let results = outs.iter().map(|t| {
            let dtype = DType::from_dlpack(t.tensor.dtype.code, t.tensor.dtype.bits)?;
            let shape = t.shape[..t.tensor.ndim as usize].to_vec();
            let bytes = shape.iter().product::<i64>() as usize * dtype.bytes();
            // SAFETY: the data was made above with room for the upper bound of these dims.
            let data = unsafe { std::slice::from_raw_parts(t.data.as_ref()?.pointer(), bytes) }.to_vec();
            Some(Constant::new(dtype, shape, data))
        });
        results.collect::<Option<Vec<_>>>().map(Ok)
    }
}
