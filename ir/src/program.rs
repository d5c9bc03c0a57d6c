//! What lowering hands to the backend: the flat module and what a user of the library may know about it.

use crate::constant::Constant;
use crate::diag::Diagnostic;
use crate::dtype::DType;
use crate::flat::FlatModule;
use crate::prim::{PrimExpr, Var};
use crate::relax::StructInfo;
use crate::span::Span;
use std::collections::HashSet;
use std::io;

/// A whole compiled program.
///
/// Symbols, with prefix `P` and an exported function `f`:
///
/// | symbol | linkage | signature |
/// |---|---|---|
/// | `P_f__call` | local | `i32(const DLTensor *const *args, DLTensor *const *outs, P_call *call)`, the packed convention |
/// | `P_f__infer` | local | the same; fills `ndim`, `dtype` and `shape[]` of the outputs (their upper bound where data decides) |
/// | `P_f__workspace` | local | `i64(const DLTensor *const *args)`: workspace bytes for these arguments, -1 when they are malformed; none over values |
/// | `P_f`, `P_f_infer`, `P_f_workspace_size` | export | the typed C entries, thin wrappers around the above |
/// | `P__module` | local | the descriptor that the runtime's generic entry reads |
/// | `P_metadata`, `P_run` | export (hosted) | |
///
/// In the packed convention every flattened parameter and result is a `DLTensor`: a scalar is 0-d, a shape is a 1-d
/// int64 tensor.
#[derive(Clone, Debug, Default)]
pub struct Program {
    pub prefix: String,
    pub module: FlatModule,
    pub entries: Vec<Entry>,
    /// Every check of shapes and of the model that may fail at run time, by number (index + 1); those of what arguments
    /// are have numbers below 0 ([`Entry::values`]).
    pub checks: Vec<CheckInfo>,
    /// Requirements over shape variables that were proved, each with what requires it.
    pub proved: Vec<(PrimExpr, Span)>,
    /// Shape variables that get their values inside of functions.
    pub born: Vec<BornDim>,
    /// Names of dims that were solved and of what stands for their variables, each with what the model wrote
    /// (`m_times_4`: `m * 4`); the longest first.
    pub written: Vec<(String, String)>,
    /// By entry.
    pub memory: Vec<MemoryUse>,
    /// Functions whose kernels run on one thread, as several of them run at once.
    pub alone: HashSet<String>,
    /// Code of their own for likely sizes.
    pub forms: Vec<FormInfo>,
    /// Accesses of kernels of the model that are not proved to be inside of their buffers.
    pub open_accesses: Vec<OpenAccess>,
    /// Whether the checks of arguments and shapes were left out.
    pub unchecked: bool,
    /// Bytes of weights, embedded or not.
    pub weight_bytes: u64,
    /// The section that the header names for the workspace.
    pub workspace_section: Option<String>,
    /// A function of the firmware that hears of every call that fails.
    pub on_error: Option<String>,
    /// The weights that are in a file beside the library.
    pub weights_file: Option<WeightsFile>,
    /// What the model calls a parameter where that is no identifier: entry, parameter, name.
    pub labels: Vec<(String, String, String)>,
    /// What the model calls the results of an entry, in their order, where it names them.
    pub result_labels: Vec<(String, Vec<String>)>,
}

/// The attribute of a function with [`Program::labels`] of its parameters, a dictionary.
pub const LABELS: &str = "relax_aot.names";

/// The attribute of a function with [`Program::result_labels`] of its results, a list.
pub const RESULT_LABELS: &str = "relax_aot.result_names";

/// Weights in a file of their own (`P.weights`), which each call brings: [`WeightsFile::MAGIC`], the hash, the size, then
/// the constants at multiples of [`WeightsFile::ALIGN`].
#[derive(Clone, Debug, Default)]
pub struct WeightsFile {
    /// Offsets in the file, ascending.
    pub pieces: Vec<(u64, Constant)>,
    /// Of the whole file.
    pub bytes: u64,
    /// Of the pieces.
    pub hash: u64,
}

impl WeightsFile {
    pub const MAGIC: &'static [u8; 8] = b"RLXWGHT1";
    pub const ALIGN: u64 = 64;
    /// Where the hash is.
    pub const HASH_AT: usize = 8;
    /// Bytes before the first constant.
    pub const HEAD: usize = 64;

    /// The file, piece by piece, until `f` fails: no constant is copied as a whole.
    pub fn write(&self, f: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut head = Self::MAGIC.to_vec();
        head.extend(self.hash.to_le_bytes());
        head.extend(self.bytes.to_le_bytes());
        f(&head)?;
        let mut end = head.len() as u64;
        for (at, c) in &self.pieces {
            f(&vec![0; at.saturating_sub(end) as usize])?;
            c.data.pieces(f)?;
            end = at + c.size() as u64;
        }
        Ok(())
    }

    /// The file in memory.
    pub fn contents(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes as usize);
        // Memory takes everything.
        let _ = self.write(&mut |piece| {
            out.extend_from_slice(piece);
            Ok(())
        });
        out
    }
}

/// An access whose index is known at run time only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenAccess {
    pub kernel: String,
    /// E.g. `A[i + 1]`.
    pub access: String,
    /// The index that is open, and the extent of its dim.
    pub axis: usize,
    pub extent: String,
    pub write: bool,
    pub span: Span,
}

/// A second body of an entry, for sizes that are likely.
#[derive(Clone, Debug, Default)]
pub struct FormInfo {
    /// [`Entry::name`].
    pub entry: String,
    /// For which calls, e.g. `n == 128`.
    pub when: String,
    /// The function's symbol.
    pub body: String,
    /// Symbols of kernels that no other code calls.
    pub kernels: Vec<String>,
    /// Weights that it alone reads.
    pub data_bytes: u64,
    /// Of the body and its kernels, once there is machine code.
    pub code_bytes: Option<u64>,
}

/// How an entry uses its workspace, for those who look for what takes memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryUse {
    /// [`Entry::name`].
    pub entry: String,
    /// What is done, in order: the name of the kernel, or `copy`.
    pub steps: Vec<String>,
    /// The kernels among them that take dims as arguments, each with the variables that decide these.
    pub sized: Vec<(String, Vec<Var>)>,
    pub buffers: Vec<BufferUse>,
}

/// A piece of the workspace.
#[derive(Clone, Debug)]
pub struct BufferUse {
    /// The first and last step that touch it, from 1.
    pub first: usize,
    pub last: usize,
    pub offset: PrimExpr,
    pub bytes: PrimExpr,
    /// At the dims' upper bounds.
    pub max_offset: Option<u64>,
    pub max_bytes: Option<u64>,
    /// The memory it is in, when there are several ([`Entry::regions`]).
    pub region: Option<String>,
}

/// An exported function.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The global symbol, e.g. `main`.
    pub name: String,
    /// Flattened, in order.
    pub params: Vec<EntryValue>,
    pub results: Vec<EntryValue>,
    /// Shape variables of the signature, in order of first occurrence, with their declared bounds.
    pub dims: Vec<EntryDim>,
    /// Bytes, over `dims`; `None` when it depends on data (then the allocator of the call serves).
    pub workspace: Option<PrimExpr>,
    /// Bytes, when every dim has an upper bound (or there is none).
    pub workspace_max: Option<u64>,
    /// The memories of a workspace in several pieces, with the bytes that are used of each; then [`Entry::workspace`] is
    /// the size of an array that has an address and a size for each.
    pub regions: Vec<(String, u64)>,
    /// Why this function needs the runtime's values (recursion, closures, packed functions, ...); `None` when all
    /// its values are laid out at compile time.
    pub dynamic: Option<Box<Diagnostic>>,
}

/// A dim that no argument tells: a value that is made in a function has it, and no expression over other dims is known
/// for it.
#[derive(Clone, Debug)]
pub struct BornDim {
    /// The function whose binding it is.
    pub function: String,
    pub var: Var,
    pub span: Span,
    /// The variable that is bound there, and what is known of it.
    pub binding: String,
    pub info: StructInfo,
}

#[derive(Clone, Debug)]
pub struct EntryDim {
    pub var: Var,
    pub lower: Option<i64>,
    pub upper: Option<i64>,
    pub divisor: Option<i64>,
    pub stated: DimStated,
}

/// How a signature says a dim: what its user calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DimStated {
    /// By its name.
    Named,
    /// As the value of a scalar argument.
    Scalar,
    /// As an expression that was solved (`m * 4`) for a variable (`m`).
    Solved { text: String, var: String },
    /// Not at all: the rank of this parameter is found by a MatchCast.
    Unranked(String),
}

impl EntryDim {
    /// As the model wrote it.
    pub fn text(&self) -> &str {
        match &self.stated {
            DimStated::Solved { text, .. } => text,
            _ => self.var.name(),
        }
    }
}

impl Entry {
    /// Its flattened parameters, then its results, each with the number of the check of what it is: a pointer to a dense
    /// tensor of the CPU with that dtype and rank, and of a result that its dims or its room fit.
    pub fn values(&self) -> impl Iterator<Item = (i32, &EntryValue)> {
        self.params.iter().chain(&self.results).enumerate().map(|(i, v)| (value_check(i), v))
    }
}

/// The number of the check of an entry's flattened value `i`, parameters first. Below 0, so that it depends on the
/// signature alone: checks of shapes come and go with what can be proved.
pub fn value_check(i: usize) -> i32 {
    -1 - i as i32
}

/// A flattened parameter or result.
#[derive(Clone, Debug)]
pub struct EntryValue {
    pub name: String,
    pub kind: EntryKind,
    /// As printed Relax, e.g. `R.Tensor((n, 16), dtype="float32")`.
    pub text: String,
    /// What the dims of a result are at most, over the entry's dims, where data decides some of them and all have bounds:
    /// what `_infer` tells and the caller makes room for.
    pub bounds: Option<Vec<PrimExpr>>,
    /// Of the parameter; results have none.
    pub span: Span,
}

#[derive(Clone, Debug)]
pub enum EntryKind {
    /// `dims` has one entry per axis when the rank is known; an axis that data decides is `None`.
    Tensor {
        dtype: Option<DType>,
        dims: Option<Vec<Option<PrimExpr>>>,
    },
    Shape {
        values: Option<Vec<PrimExpr>>,
        ndim: Option<usize>,
    },
    Scalar {
        dtype: DType,
    },
    Str,
    /// A runtime value (Object, closure, packed function).
    Boxed,
}

/// A check at run time.
#[derive(Clone, Debug)]
pub struct CheckInfo {
    /// From 1.
    pub number: u32,
    /// What the call returns: one of [`code`].
    pub code: i64,
    /// The condition as text, e.g. `n == 4 * m`.
    pub condition: String,
    /// The names in the condition; of a dim that was solved (`m * 4`) the one that it got.
    pub names: Vec<String>,
    pub message: String,
    pub span: Span,
    /// The line of `span` in the model's text.
    pub line: Option<u32>,
}

/// Bytes of a condition in [`CheckInfo::text`]: the call record has room for 255.
const MOST_OF_A_CONDITION: usize = 96;

impl CheckInfo {
    /// What the call record says of it when it fails: its line, its condition and its message.
    pub fn text(&self) -> String {
        let mut condition: String = self.condition.chars().take(MOST_OF_A_CONDITION).collect();
        if condition.len() < self.condition.len() {
            condition += "..";
        }
        let place = self.line.map(|n| format!("line {n}, ")).unwrap_or_default();
        format!("{place}{condition}: {}", self.message)
    }
}

/// Return codes of generated code (the C header lists them as `RELAX_OK`, `RELAX_E_NULL`...).
pub mod code {
    pub const OK: i64 = 0;
    /// A required pointer is null.
    pub const NULL: i64 = 1;
    pub const DTYPE: i64 = 2;
    /// Wrong number of dims.
    pub const RANK: i64 = 3;
    /// A dim differs from a constant or from an earlier dim.
    pub const DIM: i64 = 4;
    /// The tensor is not dense row-major.
    pub const STRIDES: i64 = 5;
    /// The data pointer is not aligned to the element.
    pub const ALIGN: i64 = 6;
    /// The workspace is too small.
    pub const WORKSPACE: i64 = 7;
    /// A MatchCast or operator requirement failed.
    pub const CHECK: i64 = 8;
    /// `R.assert_op` failed.
    pub const ASSERT: i64 = 9;
    /// The allocator returned null.
    pub const MEMORY: i64 = 10;
    /// Wrong number of arguments or results, or no such entry (`P_run`).
    pub const CALL: i64 = 11;
    /// A packed function is not registered.
    pub const PACKED: i64 = 12;
    /// A packed function returned an error.
    pub const PACKED_FAILED: i64 = 13;
    /// A value has another structure than expected (boxed values).
    pub const TYPE: i64 = 14;
    /// Recursion took more stack than is granted (bytes).
    pub const STACK: i64 = 15;
    /// The tensor is not in the CPU's memory; wanted and got are DLPack's device types.
    pub const DEVICE: i64 = 16;
}
