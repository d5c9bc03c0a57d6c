//! The parts of the header that are the same for every library, but for the prefix.

/// DLPack's structs: its own header where the compiler finds it, else the part of it that is used.
pub const DLPACK: &str = r#"
#ifdef __has_include
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
/* The part of DLPack (https://dmlc.github.io/dlpack) used here. */
typedef enum { kDLCPU = 1 } DLDeviceType;
typedef struct {
  DLDeviceType device_type;
  int32_t device_id;
} DLDevice;
typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLOpaqueHandle = 3, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 } DLDataTypeCode;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* null: dense, row-major */
  uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
#endif
"#;

pub const CODES: &str = r#"
#ifndef RELAX_OK
#define RELAX_OK 0
#define RELAX_E_NULL 1           /* a required pointer is null */
#define RELAX_E_DTYPE 2          /* wanted and got are the bytes of a DLDataType, the code lowest */
#define RELAX_E_RANK 3           /* wrong number of dims */
#define RELAX_E_DIM 4            /* a dim differs from a constant or from an earlier dim */
#define RELAX_E_STRIDES 5        /* not dense row-major */
#define RELAX_E_ALIGN 6          /* data not aligned to its element, or workspace not to 64 */
#define RELAX_E_WORKSPACE 7      /* workspace too small */
#define RELAX_E_CHECK 8          /* a requirement of the model failed: see constraint */
#define RELAX_E_ASSERT 9         /* an assertion of the model failed */
#define RELAX_E_MEMORY 10        /* the allocator returned null */
#define RELAX_E_CALL 11          /* wrong number of arguments or results, or no such entry */
#define RELAX_E_PACKED 12        /* a packed function is not registered */
#define RELAX_E_PACKED_FAILED 13 /* a packed function returned an error */
#define RELAX_E_TYPE 14          /* a value has another structure than expected */
#define RELAX_E_STACK 15         /* recursion took more stack than is granted (bytes) */
#define RELAX_E_DEVICE 16        /* not in the CPU's memory: wanted and got are device types */

#define RELAX_VALUE_NULL 0
#define RELAX_VALUE_INT 1
#define RELAX_VALUE_FLOAT 2
#define RELAX_VALUE_BOOL 3       /* 0 or 1 in i */
#define RELAX_VALUE_TENSOR 8
#define RELAX_VALUE_SHAPE 9
#define RELAX_VALUE_TUPLE 10
#define RELAX_VALUE_CLOSURE 11
#define RELAX_VALUE_OBJECT 12
#define RELAX_VALUE_STR 13
#endif
"#;

pub const CALL: &str = r#"
/** A value without static structure. What it points to is borrowed unless `owned` is not 0. */
typedef struct PREFIX_value {
  uint32_t tag; /* RELAX_VALUE_... */
  uint32_t owned;
  union {
    int64_t i;
    double f;
    DLTensor *tensor;
    const struct PREFIX_shape *shape;
    const struct PREFIX_tuple *tuple;
    void *object;
    const char *str;
  } u;
} PREFIX_value;

/** Followed by `count` values. */
typedef struct PREFIX_shape {
  int64_t count;
} PREFIX_shape;

/** Followed by `count` fields of type PREFIX_value. */
typedef struct PREFIX_tuple {
  int64_t count;
} PREFIX_tuple;

/** A function of yours that the model calls by name; 0 is success. */
typedef struct PREFIX_packed {
  const char *name;
  int32_t (*function)(void *self, const PREFIX_value *args, int32_t n, PREFIX_value *result);
  void *self;
} PREFIX_packed;

/** One call: what you lend, and the error you get. All zero is valid: `PREFIX_call call = {0};` */
typedef struct PREFIX_call {
  void *workspace; /* aligned to 64 */
  size_t workspace_size;
  /* Optional: memory whose size is not known before the call. */
  void *(*allocate)(void *allocator, size_t bytes, size_t align);
  void (*release)(void *allocator, void *pointer, size_t bytes);
  void *allocator;
  /* Optional: cover 0..n by calls of body, on any threads; return when all have, with 0 or the first non-zero result. */
  int32_t (*parallel_for)(void *parallel_self, int64_t n,
                          int32_t (*body)(void *context, int64_t begin, int64_t end), void *context);
  void *parallel_self;
  const PREFIX_packed *packed;
  size_t n_packed;
  /* Filled when the call fails. */
  int32_t code;
  int32_t constraint;
  int64_t wanted;
  int64_t got;
  char message[256];
  /* Models compiled with --weights external: the contents of PREFIX.weights, aligned to 64. */
  const void *weights;
  size_t weights_size;
} PREFIX_call;
"#;

pub const GENERIC: &str = r#"
/** What the library contains, as JSON: entries, parameters, results, dims, constraints, memory. */
const char *PREFIX_metadata(void);

/**
 * Runs an entry by name (null: the first) and allocates its results: each is freed by its own deleter.
 * A scalar is a 0-d tensor and a shape a 1-d int64 tensor, both ways. After an error all results are null.
 * The call may be null; a workspace that it lacks is allocated for the time of the call.
 */
int32_t PREFIX_run(const char *entry, const DLTensor *const *args, int32_t n_args, DLManagedTensor **results,
                   int32_t n_results, PREFIX_call *call);
"#;
