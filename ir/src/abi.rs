//! Byte offsets of the C structs that generated code reads: DLPack's `DLTensor` and the call record `P_call`.
//! `rt` declares the same structs in Rust, the header writer in C; a test holds the three together.

/// Offsets for one pointer size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbiLayout {
    pub pointer: u32,
    pub tensor_data: i64,
    /// The type of the device; its number follows.
    pub tensor_device: i64,
    pub tensor_ndim: i64,
    pub tensor_dtype: i64,
    pub tensor_shape: i64,
    pub tensor_strides: i64,
    pub tensor_byte_offset: i64,
    pub tensor_size: u32,
    pub call_workspace: i64,
    pub call_workspace_size: i64,
    pub call_allocate: i64,
    pub call_release: i64,
    pub call_allocator: i64,
    pub call_parallel_for: i64,
    pub call_parallel_self: i64,
    pub call_packed: i64,
    pub call_n_packed: i64,
    pub call_code: i64,
    pub call_constraint: i64,
    pub call_wanted: i64,
    pub call_got: i64,
    pub call_message: i64,
    pub call_weights: i64,
    pub call_weights_size: i64,
    pub call_size: u32,
}

/// Bytes of a workspace that the runtime's generic entry keeps between calls.
pub const KEPT_FROM: u64 = 25 << 20;
/// Bytes of `P_call.message`, the final NUL included.
pub const MESSAGE_BYTES: u32 = 256;

impl AbiLayout {
    /// `pointer` is 4 or 8.
    pub const fn new(pointer: u32) -> AbiLayout {
        let p = pointer as i64;
        // workspace, size, allocate, release, allocator, parallel_for, parallel_self, packed, n_packed
        let code = 9 * p;
        let wanted = (code + 8 + 7) / 8 * 8;
        let weights = wanted + 16 + MESSAGE_BYTES as i64;
        AbiLayout {
            pointer,
            tensor_data: 0,
            tensor_device: p,
            tensor_ndim: p + 8,
            tensor_dtype: p + 12,
            tensor_shape: p + 16,
            tensor_strides: 2 * p + 16,
            // uint64_t, 8-aligned
            tensor_byte_offset: (3 * p + 16 + 7) / 8 * 8,
            tensor_size: ((3 * pointer + 16).div_ceil(8) * 8) + 8,
            call_workspace: 0,
            call_workspace_size: p,
            call_allocate: 2 * p,
            call_release: 3 * p,
            call_allocator: 4 * p,
            call_parallel_for: 5 * p,
            call_parallel_self: 6 * p,
            call_packed: 7 * p,
            call_n_packed: 8 * p,
            call_code: code,
            call_constraint: code + 4,
            call_wanted: wanted,
            call_got: wanted + 8,
            call_message: wanted + 16,
            call_weights: weights,
            call_weights_size: weights + p,
            call_size: (weights + 2 * p) as u32,
        }
    }
}
