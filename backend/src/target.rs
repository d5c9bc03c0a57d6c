//! What code is generated for: a triple, a processor, and how hard to optimise.

use cranelift_codegen::isa::{self, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use relax_ir::{Diagnostic, Span};
use std::str::FromStr;
use target_lexicon::{Architecture, BinaryFormat, Endianness, Environment, OperatingSystem, Triple};

/// The processor within an architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpu {
    /// What every processor of the architecture has (x86-64: SSE2; riscv64gc: no vectors).
    Baseline,
    /// The machine that the compiler runs on.
    Native,
    /// A Cranelift preset (`x86-64-v3`, `znver4`, `z15`), or none, plus features: `x86-64-v2,+fma,-avx`, `+v`.
    Named(String),
}

/// Which forms of its kernels a library holds ([`crate::versions`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// The processor's alone.
    One,
    /// All; the processor that loads the library decides.
    AtLoad,
    /// All, and always this one is taken, from 0.
    Fixed(usize),
}

/// Cranelift's optimisation levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptLevel {
    None,
    Speed,
    SpeedAndSize,
}

impl OptLevel {
    fn name(self) -> &'static str {
        match self {
            OptLevel::None => "none",
            OptLevel::Speed => "speed",
            OptLevel::SpeedAndSize => "speed_and_size",
        }
    }
}

/// A target: everything that decides which bytes a flat module becomes.
#[derive(Clone, Debug)]
pub struct Target {
    pub triple: Triple,
    pub cpu: Cpu,
    /// Position-independent code: references to other objects go through the GOT.
    pub pic: bool,
    /// Whether the library holds kernels for several processors.
    pub levels: Levels,
    /// For functions that contain loops. `Speed` lengthens live ranges until register tiles spill (a matrix product runs
    /// at half the rate): a function that comes out of it with spills is compiled as written instead.
    pub kernel_opt: OptLevel,
    /// For straight-line host code.
    pub host_opt: OptLevel,
}

impl Target {
    /// The host with the baseline processor of its architecture.
    pub fn host() -> Target {
        Target::new(Triple::host(), Cpu::Baseline)
    }

    /// Bare-metal triples get code that is not position-independent.
    pub fn new(mut triple: Triple, cpu: Cpu) -> Target {
        if triple.binary_format == BinaryFormat::Unknown {
            triple.binary_format = BinaryFormat::Elf;
        }
        let pic = is_hosted(&triple);
        Target { triple, cpu, pic, levels: Levels::One, kernel_opt: OptLevel::Speed, host_opt: OptLevel::Speed }
    }

    /// From the command line: a triple (or `host`), and `auto`, `baseline`, `native` or a name as in [`Cpu::Named`].
    ///
    /// `auto` is the baseline with kernels for its successors, where the loader can choose: x86-64 with glibc.
    /// `auto=x86-64-v3` makes the choice beforehand.
    pub fn parse(triple: &str, cpu: &str) -> Result<Target, Diagnostic> {
        let triple = if triple == "host" || triple.is_empty() {
            Triple::host()
        } else {
            Triple::from_str(triple).map_err(|e| {
                Diagnostic::error("bad-target", Span::NONE, format!("`{triple}` is not a target triple: {e}"))
                    .help("e.g. x86_64-unknown-linux-gnu, aarch64-unknown-none-elf, riscv64gc-unknown-linux-gnu")
            })?
        };
        let levels = match cpu.strip_prefix("auto") {
            Some(rest) if triple.architecture == Architecture::X86_64 && triple.environment == Environment::Gnu => {
                match rest {
                    "" => Levels::AtLoad,
                    "=baseline" | "=x86-64-v2" => Levels::Fixed(0),
                    _ => match crate::versions::LEVELS.iter().position(|l| rest.strip_prefix('=') == Some(l)) {
                        Some(at) => Levels::Fixed(at + 1),
                        None => Levels::One,
                    },
                }
            }
            _ => Levels::One,
        };
        let cpu = match cpu {
            "" | "baseline" | "auto" => Cpu::Baseline,
            _ if levels != Levels::One => Cpu::Baseline,
            "native" => Cpu::Native,
            name => Cpu::Named(name.to_string()),
        };
        let target = Target { levels, ..Target::new(triple, cpu) };
        target.isa(OptLevel::Speed)?;
        Ok(target)
    }

    /// Whether there is an operating system (and so a hosted runtime).
    pub fn hosted(&self) -> bool {
        is_hosted(&self.triple)
    }

    pub fn pointer_bytes(&self) -> u32 {
        self.triple.pointer_width().map_or(8, |w| w.bytes() as u32)
    }

    pub fn big_endian(&self) -> bool {
        self.triple.endianness() == Ok(Endianness::Big)
    }

    /// Whether the processor has a feature, by Cranelift's name without `has_` (`avx2`, `fma`, `avx512f`, `v`).
    ///
    /// Tiles of bytes (`amx-int8`) are a feature where the loader can ask for them and choose: x86-64 Linux with glibc.
    pub fn has(&self, feature: &str) -> bool {
        if feature == TILES {
            return self.has_tiles();
        }
        let Ok(isa) = self.isa(OptLevel::None) else { return false };
        isa_has(&*isa, feature)
    }

    fn has_tiles(&self) -> bool {
        let told = match &self.cpu {
            Cpu::Baseline => false,
            Cpu::Native => native_tiles(),
            Cpu::Named(name) => {
                let mut signs = name.split(',').filter_map(|p| p.trim().strip_suffix(TILES));
                signs.next_back() == Some("+")
            }
        };
        told && self.asks_when_loaded()
    }

    /// Whether libraries for it may choose between kernels when they are loaded.
    fn asks_when_loaded(&self) -> bool {
        self.triple.architecture == Architecture::X86_64 && self.triple.environment == Environment::Gnu
    }

    /// Whether it is known to multiply two 512-bit vectors a cycle: this machine, where it is one of Intel's servers or one of
    /// AMD's whose data path has 512 bits (Zen 5; Zen 4 has 256).
    pub fn multiplies_twice(&self) -> bool {
        self.cpu == Cpu::Native && native_multiplies_twice(&self.triple)
    }

    /// Whether it reads ahead for few streams at a time, so that tiles of many rows wait for what is not in the first-level
    /// cache: Zen 5, measured.
    pub fn reads_few_ahead(&self) -> bool {
        self.multiplies_twice() && !native_intel_server()
    }

    /// The Cranelift target machine.
    pub fn isa(&self, opt: OptLevel) -> Result<OwnedTargetIsa, Diagnostic> {
        let unsupported = |m: String| Diagnostic::unsupported("target", Span::NONE, m);
        let mut b = isa::lookup(self.triple.clone())
            .map_err(|e| unsupported(format!("no native code for `{}`: {e}", self.triple)).help("use --emit c"))?;
        match &self.cpu {
            Cpu::Baseline => {}
            Cpu::Native => {
                for f in native_features(&self.triple) {
                    b.enable(f).map_err(|e| Diagnostic::internal(Span::NONE, format!("feature {f}: {e}")))?;
                }
            }
            Cpu::Named(name) => {
                // Cranelift knows no tiles.
                let of_x86 = self.triple.architecture == Architecture::X86_64;
                let tiles = |p: &&str| of_x86 && matches!(p.strip_suffix(TILES), Some("+" | "-"));
                for part in name.split(',').map(str::trim).filter(|p| !p.is_empty() && !tiles(p)) {
                    let done = if let Some(f) = part.strip_prefix('+') {
                        b.set(&format!("has_{}", feature_name(f)), "true")
                    } else if let Some(f) = part.strip_prefix('-') {
                        b.set(&format!("has_{}", feature_name(f)), "false")
                    } else if matches!(part, "baseline" | "x86-64" | "generic" | "x86-64-v1") {
                        Ok(())
                    } else {
                        b.enable(part)
                    };
                    done.map_err(|_| {
                        Diagnostic::error("bad-cpu", Span::NONE, format!("`{part}` is no processor of {}", self.triple))
                            .help("e.g. baseline, native, x86-64-v3, znver4, or features such as +fma,+avx2")
                    })?;
                }
            }
        }
        let mut f = settings::builder();
        let probe = self.hosted() && !matches!(self.triple.architecture, Architecture::S390x);
        for (k, v) in [
            ("opt_level", opt.name()),
            ("is_pic", if self.pic { "true" } else { "false" }),
            ("unwind_info", "false"),
            ("enable_probestack", if probe { "true" } else { "false" }),
            ("probestack_strategy", "inline"),
            ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
        ] {
            f.set(k, v).map_err(|e| Diagnostic::internal(Span::NONE, format!("setting {k}={v}: {e}")))?;
        }
        let flags = settings::Flags::new(f);
        let finish = |b: &isa::Builder| {
            b.finish(flags.clone()).map_err(|e| unsupported(format!("target `{}`: {e}", self.triple)))
        };
        let isa = finish(&b)?;
        // Presets such as x86-64-v3 name AVX2 without the AVX that it implies.
        let mut implied = false;
        for (feature, others) in [("avx2", &["avx"][..]), ("avx512vl", &["avx512f", "avx2", "avx", "fma"])] {
            for other in others.iter().filter(|o| isa_has(&*isa, feature) && !isa_has(&*isa, o)) {
                implied |= b.set(&format!("has_{other}"), "true").is_ok();
            }
        }
        if implied {
            finish(&b)
        } else {
            Ok(isa)
        }
    }
}

pub(crate) fn isa_has(isa: &dyn isa::TargetIsa, feature: &str) -> bool {
    isa.isa_flags().iter().any(|v| v.name.strip_prefix("has_") == Some(feature) && v.as_bool() == Some(true))
}

fn is_hosted(triple: &Triple) -> bool {
    !matches!(triple.operating_system, OperatingSystem::None_ | OperatingSystem::Unknown)
}

/// Multiplication of tiles of bytes, as LLVM calls it.
const TILES: &str = "amx-int8";

/// Common spellings of features to Cranelift's.
fn feature_name(f: &str) -> &str {
    match f {
        "sse4.1" => "sse41",
        "sse4.2" => "sse42",
        other => other,
    }
}

#[cfg(target_arch = "x86_64")]
fn native_features(triple: &Triple) -> Vec<&'static str> {
    if triple.architecture != Architecture::X86_64 {
        return vec![];
    }
    macro_rules! detect {
        ($($name:tt => $flag:literal),* $(,)?) => {
            [$((std::is_x86_feature_detected!($name), $flag)),*]
        };
    }
    let found = detect! {
        "sse3" => "has_sse3", "ssse3" => "has_ssse3", "sse4.1" => "has_sse41", "sse4.2" => "has_sse42",
        "cmpxchg16b" => "has_cmpxchg16b", "avx" => "has_avx", "avx2" => "has_avx2", "fma" => "has_fma",
        "bmi1" => "has_bmi1", "bmi2" => "has_bmi2", "lzcnt" => "has_lzcnt", "popcnt" => "has_popcnt",
        "avx512f" => "has_avx512f", "avx512dq" => "has_avx512dq", "avx512vl" => "has_avx512vl",
        "avx512vbmi" => "has_avx512vbmi", "avx512bitalg" => "has_avx512bitalg", "avx512vnni" => "has_avx512vnni",
        "avxvnni" => "has_avx_vnni",
    };
    found.into_iter().filter(|f| f.0).map(|f| f.1).collect()
}

#[cfg(target_arch = "x86_64")]
fn native_multiplies_twice(triple: &Triple) -> bool {
    let wide = std::is_x86_feature_detected!("avx512f");
    triple.architecture == Architecture::X86_64 && wide && (native_intel_server() || amd_path_of_512())
}

/// Whether this is a server of Intel's with AVX-512: one with AVX512-FP16 (Sapphire Rapids and later), or one whose family and
/// model say so where a hypervisor hides that; Intel SDM volume 4, table 2-1.
#[cfg(target_arch = "x86_64")]
fn native_intel_server() -> bool {
    use std::arch::x86_64::__cpuid;
    // Skylake to Cooper Lake, Ice Lake (two), Sapphire and Emerald Rapids, Granite Rapids (two).
    const MODELS: [u32; 7] = [0x55, 0x6a, 0x6c, 0x8f, 0xcf, 0xad, 0xae];
    if vendor() != *b"GenuineIntel" {
        return false;
    }
    let signs = __cpuid(1).eax;
    let (family, model) = (signs >> 8 & 0xf, signs >> 4 & 0xf | signs >> 12 & 0xf0);
    std::is_x86_feature_detected!("avx512fp16") || family == 6 && MODELS.contains(&model)
}

#[cfg(not(target_arch = "x86_64"))]
fn native_intel_server() -> bool {
    false
}

/// The twelve letters of `cpuid` 0.
#[cfg(target_arch = "x86_64")]
fn vendor() -> [u8; 12] {
    let v = std::arch::x86_64::__cpuid(0);
    let mut name = [0; 12];
    for (to, from) in name.chunks_mut(4).zip([v.ebx, v.edx, v.ecx]) {
        to.copy_from_slice(&from.to_le_bytes());
    }
    name
}

/// Whether AMD's leaf of optimisation identifiers (`cpuid` 8000001a, eax) is filled, so that it says that unaligned moves
/// are as good as others (bit 1), and does not say that vectors of 256 bits are executed at full width (bit 2), as it does
/// where the wider ones are executed in halves. Hypervisors hide the bit of 512.
#[cfg(target_arch = "x86_64")]
fn amd_path_of_512() -> bool {
    use std::arch::x86_64::__cpuid;
    const LEAF: u32 = 0x8000_001a;
    const MOVES: u32 = 1 << 1;
    const HALVES: u32 = 1 << 2;
    vendor() == *b"AuthenticAMD" && __cpuid(0x8000_0000).eax >= LEAF && __cpuid(LEAF).eax & (MOVES | HALVES) == MOVES
}

/// Leaf 7 of `cpuid`, edx: AMX-TILE and AMX-INT8. What the operating system allows is asked when a library is loaded.
#[cfg(target_arch = "x86_64")]
fn native_tiles() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const BOTH: u32 = 1 << 24 | 1 << 25;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & BOTH == BOTH
}

#[cfg(not(target_arch = "x86_64"))]
fn native_tiles() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn native_multiplies_twice(_: &Triple) -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn native_features(_: &Triple) -> Vec<&'static str> {
    vec![]
}
