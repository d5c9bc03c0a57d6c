//! Descriptions of targets: a kind by its name, a tag, JSON in a string, or a dictionary of options. Code is made for the target
//! of the command line; what a description says must be what its kind has.
//!
//! Source: TVM 0.27, `Target.list_kinds`, `target.ListTargetKindOptions`, and `target.tag.list_tags` for `target_tags.txt`.

use super::context::Cx;
use super::syntax::*;
use crate::suggest::nearest;
use relax_ir::Diagnostic;

/// What an option holds.
#[derive(Clone, Copy, PartialEq)]
enum Holds {
    Text,
    Texts,
    Whole,
    Truth,
    Target,
    Targets,
}

use Holds::{Target, Targets, Text, Texts, Truth, Whole};

type Options = &'static [(&'static str, Holds)];

/// The options of every kind.
const COMMON: Options = &[
    ("kind", Text),
    ("keys", Texts),
    ("tag", Text),
    ("device", Text),
    ("model", Text),
    ("libs", Texts),
    ("host", Target),
    ("from_device", Whole),
    ("target_device_type", Whole),
];

/// The kinds, with the options that each has beside those of all.
const KINDS: [(&str, Options); 15] = [
    ("composite", &[("devices", Targets)]),
    ("cuda_host", &[]),
    (
        "cuda",
        &[
            ("mcpu", Text),
            ("arch", Text),
            ("max_shared_memory_per_block", Whole),
            ("max_threads_per_block", Whole),
            ("thread_warp_size", Whole),
            ("registers_per_block", Whole),
            ("l2_cache_size_bytes", Whole),
            ("max_num_threads", Whole),
        ],
    ),
    ("nvptx", &[("mcpu", Text), ("mtriple", Text), ("max_num_threads", Whole), ("thread_warp_size", Whole)]),
    ("c", &[("mcpu", Text), ("march", Text), ("workspace-byte-alignment", Whole), ("constants-byte-alignment", Whole)]),
    (
        "hexagon",
        &[
            ("mattr", Texts),
            ("mcpu", Text),
            ("mtriple", Text),
            ("llvm-options", Texts),
            ("num-cores", Whole),
            ("vtcm-capacity", Whole),
        ],
    ),
    (
        "metal",
        &[
            ("max_num_threads", Whole),
            ("max_threads_per_block", Whole),
            ("max_shared_memory_per_block", Whole),
            ("thread_warp_size", Whole),
            ("max_function_args", Whole),
        ],
    ),
    (
        "opencl",
        &[
            ("max_threads_per_block", Whole),
            ("max_shared_memory_per_block", Whole),
            ("max_num_threads", Whole),
            ("thread_warp_size", Whole),
            ("texture_spatial_limit", Whole),
            ("texture_depth_limit", Whole),
            ("max_function_args", Whole),
            ("image_base_address_alignment", Whole),
        ],
    ),
    (
        "trn",
        &[
            ("partition_size", Whole),
            ("max_sbuf_size_per_partition", Whole),
            ("max_psum_size_per_partition", Whole),
            ("num-cores", Whole),
        ],
    ),
    (
        "webgpu",
        &[
            ("max_num_threads", Whole),
            ("max_shared_memory_per_block", Whole),
            ("supports_subgroups", Truth),
            ("thread_warp_size", Whole),
        ],
    ),
    ("test", &[]),
    (
        "rocm",
        &[
            ("mcpu", Text),
            ("mtriple", Text),
            ("mattr", Texts),
            ("max_num_threads", Whole),
            ("max_threads_per_block", Whole),
            ("max_shared_memory_per_block", Whole),
            ("thread_warp_size", Whole),
        ],
    ),
    (
        "vulkan",
        &[
            ("mattr", Texts),
            ("supports_float16", Truth),
            ("supports_float32", Truth),
            ("supports_float64", Truth),
            ("supports_int8", Truth),
            ("supports_int16", Truth),
            ("supports_int32", Truth),
            ("supports_int64", Truth),
            ("supports_8bit_buffer", Truth),
            ("supports_16bit_buffer", Truth),
            ("supports_storage_buffer_storage_class", Truth),
            ("supports_push_descriptor", Truth),
            ("supports_dedicated_allocation", Truth),
            ("supports_integer_dot_product", Truth),
            ("supports_cooperative_matrix", Truth),
            ("supported_subgroup_operations", Whole),
            ("max_num_threads", Whole),
            ("max_threads_per_block", Whole),
            ("thread_warp_size", Whole),
            ("max_block_size_x", Whole),
            ("max_block_size_y", Whole),
            ("max_block_size_z", Whole),
            ("max_push_constants_size", Whole),
            ("max_uniform_buffer_range", Whole),
            ("max_storage_buffer_range", Whole),
            ("max_per_stage_descriptor_storage_buffer", Whole),
            ("max_shared_memory_per_block", Whole),
            ("device_type", Text),
            ("device_name", Text),
            ("driver_name", Text),
            ("driver_version", Whole),
            ("vulkan_api_version", Whole),
            ("max_spirv_version", Whole),
        ],
    ),
    (
        "llvm",
        &[
            ("mattr", Texts),
            ("mcpu", Text),
            ("mtriple", Text),
            ("mfloat-abi", Text),
            ("mabi", Text),
            ("num-cores", Whole),
            ("fast-math", Truth),
            ("fast-math-nnan", Truth),
            ("fast-math-ninf", Truth),
            ("fast-math-nsz", Truth),
            ("fast-math-arcp", Truth),
            ("fast-math-contract", Truth),
            ("fast-math-reassoc", Truth),
            ("opt-level", Whole),
            ("cl-opt", Texts),
            ("jit", Text),
            ("vector-width", Whole),
        ],
    ),
    ("ext_dev", &[]),
];

/// The kind of target that this describes, or its tag where it states none.
pub fn target_kind<'e>(e: &'e Expr) -> Option<&'e str> {
    match &e.kind {
        ExprKind::Dict(entries) => entry(entries, "kind").or_else(|| entry(entries, "tag")).and_then(Expr::as_str),
        _ => e.as_str(),
    }
}

fn entry<'e, 'a>(entries: &'e [(Expr<'a>, Expr<'a>)], name: &str) -> Option<&'e Expr<'a>> {
    entries.iter().find(|(k, _)| k.as_str() == Some(name)).map(|(_, v)| v)
}

impl<'a> Cx<'a> {
    /// A description of a target that there is.
    pub fn target(&mut self, e: &Expr<'a>) -> Option<()> {
        match &e.kind {
            // JSON is read by nobody here.
            ExprKind::Str(s) if s.starts_with('{') => Some(()),
            ExprKind::Str(s) if s.contains('/') => self.tag_of_target(s, e),
            ExprKind::Str(s) => self.kind_of_target(s, e).map(|_| ()),
            ExprKind::Dict(entries) => {
                let options = match (entry(entries, "kind"), entry(entries, "tag")) {
                    (Some(kind), _) => {
                        let Some(name) = kind.as_str() else {
                            return self.expected(kind, "a kind of target in quotes");
                        };
                        Some(self.kind_of_target(name, kind)?)
                    }
                    (None, Some(Expr { kind: ExprKind::Str(tag), .. })) if tag.contains('/') => {
                        self.tag_of_target(tag, e)?;
                        None
                    }
                    _ => {
                        let d = Diagnostic::error("type", e.span, "this target has no kind");
                        return self.report(d.help("add \"kind\": \"llvm\", say"));
                    }
                };
                entries.iter().try_for_each(|(k, v)| self.target_option(k, v, options))
            }
            _ => Some(()),
        }
    }

    fn tag_of_target(&mut self, tag: &str, at: &Expr<'a>) -> Option<()> {
        let tags = include_str!("target_tags.txt").lines();
        if tags.clone().any(|known| known == tag) {
            return Some(());
        }
        let d = Diagnostic::error("type", at.span, format!("there is no target `{tag}`"));
        self.report(match nearest(tag, tags) {
            Some(near) => d.help(format!("did you mean \"{near}\"?")),
            None => d.help("name a kind of target: \"llvm\", \"cuda\" or {\"kind\": \"llvm\", \"mcpu\": ..}"),
        })
    }

    fn kind_of_target(&mut self, name: &str, at: &Expr<'a>) -> Option<Options> {
        if let Some((_, options)) = KINDS.iter().find(|(kind, _)| *kind == name) {
            return Some(options);
        }
        let d = Diagnostic::error("type", at.span, format!("there is no target `{name}`"));
        self.report(match nearest(name, KINDS.map(|(kind, _)| kind)) {
            _ if name.trim().contains(' ') => {
                d.help("a target with options is a dictionary: {\"kind\": \"llvm\", \"mcpu\": ..}")
            }
            Some(near) => d.help(format!("did you mean \"{near}\"?")),
            None => d.help(format!("one of {}", KINDS.map(|(kind, _)| kind).join(", "))),
        })
    }

    /// `options` are those of the kind, where it is known.
    fn target_option(&mut self, key: &Expr<'a>, value: &Expr<'a>, options: Option<Options>) -> Option<()> {
        let name = self.string(key)?;
        let all = COMMON.iter().chain(options.unwrap_or(&[]));
        let Some((_, holds)) = all.clone().find(|(option, _)| *option == name) else {
            if options.is_none() || name.starts_with("feature.") {
                return Some(());
            }
            let d = Diagnostic::error("type", key.span, format!("this kind of target has no option `{name}`"));
            return self.report(match nearest(&name, all.clone().map(|(option, _)| *option)) {
                Some(near) => d.help(format!("did you mean \"{near}\"?")),
                None => d.help(format!("it has {}", all.map(|(option, _)| *option).collect::<Vec<_>>().join(", "))),
            });
        };
        let whole = |e: &Expr| match &e.kind {
            ExprKind::Unary(UnaryOp::Neg, e) => matches!(e.kind, ExprKind::Int(_)),
            _ => matches!(e.kind, ExprKind::Int(_) | ExprKind::Bool(_)),
        };
        let (fits, what) = match holds {
            Text => (value.as_str().is_some(), "a string"),
            Texts => (value.elements().is_some_and(|v| v.iter().all(|e| e.as_str().is_some())), "a list of strings"),
            Whole | Truth => (whole(value), "a whole number or a truth value"),
            Target if matches!(value.kind, ExprKind::Str(_) | ExprKind::Dict(_)) => return self.target(value),
            Target => (false, "a target"),
            Targets => match value.elements() {
                Some(all) => return all.iter().try_for_each(|t| self.target(t)),
                None => (false, "a list of targets"),
            },
        };
        match fits {
            true => Some(()),
            false => self.expected(value, what),
        }
    }
}
