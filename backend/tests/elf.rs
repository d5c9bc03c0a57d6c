//! Libraries written by our linker load, run, and look sound to binutils; the system's linker agrees.

use libloading::Library;
use relax_backend::elf::{link_shared, link_system, runtime_object, LARGE_PAGE};
use std::path::{Path, PathBuf};
use std::process::Command;

const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Compiles C to an object.
fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Vec<u8> {
    let (c, o) = (dir.join(format!("{name}.c")), dir.join(format!("{name}.o")));
    std::fs::write(&c, source).expect("write");
    let status = Command::new("cc").args(["-c", "-O2", "-std=c11", "-o"]).arg(&o).arg(&c).args(flags).status();
    assert!(status.expect("cc").success());
    std::fs::read(o).expect("object")
}

fn save(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).expect("write");
    path
}

/// `readelf` must read everything without a warning.
fn readelf(path: &Path) -> String {
    let out = Command::new("readelf").args(["-aW", "--use-dynamic"]).arg(path).output().expect("readelf");
    let plain = Command::new("readelf").arg("-aW").arg(path).output().expect("readelf");
    for o in [&out, &plain] {
        assert!(o.status.success() && o.stderr.is_empty(), "{}", String::from_utf8_lossy(&o.stderr));
        assert!(!String::from_utf8_lossy(&o.stdout).contains("arning"), "{}", String::from_utf8_lossy(&o.stdout));
    }
    String::from_utf8(plain.stdout).expect("text")
}

fn dynamic_symbols(path: &Path) -> Vec<String> {
    let out = Command::new("nm").args(["-D", "--defined-only"]).arg(path).output().expect("nm");
    let text = String::from_utf8(out.stdout).expect("text");
    let mut names: Vec<String> = text.lines().filter_map(|l| l.split_whitespace().nth(2)).map(str::to_owned).collect();
    names.sort();
    names
}

const PLAIN: &str = r#"
#include <string.h>
#include <stdlib.h>
static int seven(void) { return 7; }
int helper(int x);
__attribute__((aligned(64))) static const float weights[1000] = {1, 2, 3, [999] = 9};
static int (*const table[])(void) = {seven, seven};
static const char *const names[] = {"a", "bc", "def"};
int add(int a, int b) { return helper(a) + b; }
int helper(int x) { return x; }
float weight(int i) { return weights[i]; }
int aligned(void) { return (size_t)weights % 64 == 0; }
int indirect(int i) { return table[i]() + (int)strlen(names[i]); }
void *copy(const void *p, size_t n) { void *q = malloc(n); if (q) memcpy(q, p, n); return q; }
void give_back(void *p) { free(p); }
void *(*which(void))(size_t) { return malloc; }
int unused(void) { return undefined_if_kept(); }
"#;

#[test]
fn plain_objects() {
    let dir = tempfile::tempdir().expect("dir");
    let exports: Vec<String> =
        ["add", "weight", "aligned", "indirect", "copy", "give_back", "which"].map(String::from).to_vec();
    for (name, flags) in [
        ("sections", &["-fPIC", "-ffunction-sections", "-fdata-sections", "-Wno-implicit-function-declaration"][..]),
        ("hidden", &["-fPIC", "-ffunction-sections", "-fno-plt", "-fvisibility=hidden"][..]),
        ("unoptimised", &["-fPIC", "-ffunction-sections", "-fdata-sections", "-O0", "-g"][..]),
    ] {
        let mut flags = flags.to_vec();
        flags.extend(["-Wno-implicit-function-declaration", "-fcf-protection=none"]);
        let object = compile(dir.path(), name, PLAIN, &flags);
        let bytes = link_shared(&object, None, "libplain.so", &exports).expect("link");
        assert_eq!(bytes, link_shared(&object, None, "libplain.so", &exports).expect("link"));
        let path = save(dir.path(), &format!("lib{name}.so"), &bytes);
        let text = readelf(&path);
        assert!(text.contains("Shared library: [libc.so.6]") && text.contains("soname: [libplain.so]"));

        let system = link_system(&object, None, "libplain.so", &exports);
        if name == "hidden" {
            // The system's linker refuses to export what the compiler hid.
            let _ = system;
        } else {
            // It also refuses the undefined symbol only where it is kept: compare what is exported.
            let other = save(dir.path(), &format!("lib{name}-system.so"), &system.expect("system link"));
            assert_eq!(dynamic_symbols(&path), dynamic_symbols(&other));
        }

        // SAFETY: the signatures are those of the C source above.
        unsafe {
            let lib = Library::new(&path).expect("load");
            let add = lib.get::<unsafe extern "C" fn(i32, i32) -> i32>(b"add").expect("add");
            assert_eq!(add(2, 40), 42);
            let weight = lib.get::<unsafe extern "C" fn(i32) -> f32>(b"weight").expect("weight");
            assert_eq!((weight(1), weight(999)), (2.0, 9.0));
            let aligned = lib.get::<unsafe extern "C" fn() -> i32>(b"aligned").expect("aligned");
            assert_eq!(aligned(), 1);
            let indirect = lib.get::<unsafe extern "C" fn(i32) -> i32>(b"indirect").expect("indirect");
            assert_eq!((indirect(0), indirect(1)), (8, 9));
            let copy = lib.get::<unsafe extern "C" fn(*const u8, usize) -> *mut u8>(b"copy").expect("copy");
            let free = lib.get::<unsafe extern "C" fn(*mut u8)>(b"give_back").expect("give_back");
            let data = [1u8, 2, 3];
            let p = copy(data.as_ptr(), 3);
            assert_eq!(std::slice::from_raw_parts(p, 3), &data);
            free(p);
            assert!(lib.get::<unsafe extern "C" fn()>(b"helper").is_err());
        }
    }
}

/// docs/decisions.md, "Large blocks begin at large pages": a library begins at one where it has weights of that size, and the
/// loader puts it there; its file stays as long as it was.
#[test]
fn large_constants_begin_at_large_pages() {
    let dir = tempfile::tempdir().expect("dir");
    let of = |name: &str, count: usize| {
        let source = format!(
            "__attribute__((aligned(64))) static const float weights[{count}] = {{1, 2, [{}] = 9}};
             float weight(int i) {{ return weights[i]; }}",
            count - 1
        );
        let object = compile(dir.path(), name, &source, &["-fPIC"]);
        let bytes = link_shared(&object, None, "libw.so", &["weight".to_string()]).expect("link");
        assert!(bytes.len() < count * 4 + 4096, "{}", bytes.len());
        let path = save(dir.path(), &format!("lib{name}.so"), &bytes);
        let loads: Vec<String> =
            readelf(&path).lines().filter(|l| l.trim_start().starts_with("LOAD")).map(str::to_owned).collect();
        // SAFETY: the signature is that of the C source above.
        let first = unsafe {
            let lib = Library::new(&path).expect("load");
            let weight = lib.get::<unsafe extern "C" fn(i32) -> f32>(b"weight").expect("weight");
            assert_eq!((weight(1), weight(count as i32 - 1)), (2.0, 9.0));
            let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
            let line = maps.lines().find(|l| l.contains(&format!("lib{name}.so"))).expect("mapped").to_owned();
            usize::from_str_radix(line.split('-').next().unwrap_or_default(), 16).expect("an address")
        };
        (loads, first)
    };
    let (small, _) = of("small", 1000);
    assert!(small.iter().all(|l| l.ends_with("0x1000")), "{small:?}");
    let (large, at) = of("large", 3 << 20);
    assert!(large[0].ends_with("0x200000") && large[1..].iter().all(|l| l.ends_with("0x1000")), "{large:?}");
    assert_eq!(at % LARGE_PAGE as usize, 0, "{at:#x}");
}

#[test]
fn refusals() {
    let dir = tempfile::tempdir().expect("dir");
    let link = |source: &str| {
        let object = compile(dir.path(), "bad", source, &["-fPIC", "-Wno-implicit-function-declaration"]);
        link_shared(&object, None, "libbad.so", &["f".to_string()]).expect_err("refused").message
    };
    assert!(link("int g(void); int f(void) { return g(); }").contains("`g`"));
    assert!(link("int state; int f(void) { return state++; }").contains("writable"));
    assert!(link("int state = 3; int f(void) { return state++; }").contains("writable"));
    assert!(link("int g(void) { return 1; }").contains("not defined"));
    assert!(link_shared(b"not an object", None, "x", &[]).is_err());
    assert!(link_shared(&[], None, "x", &[]).is_err());
}

#[test]
fn runtime_links() {
    let dir = tempfile::tempdir().expect("dir");
    let runtime = runtime_object(TRIPLE).expect("a runtime for this host");
    let object = compile(
        dir.path(),
        "rt",
        "int relax_rt_fail(void *, int, int, long, long, const char *);
         int f(void *call) { return relax_rt_fail(call, 4, 1, 16, 15, \"x.shape[0]\"); }",
        &["-fPIC"],
    );
    let bytes = link_shared(&object, Some(runtime), "librt.so", &["f".to_string()]).expect("link");
    let path = save(dir.path(), "librt.so", &bytes);
    let text = readelf(&path);
    assert!(!text.contains("libc.so.6"), "only the failure path is kept: {text}");
    assert_eq!(dynamic_symbols(&path), ["f"]);
    // SAFETY: a null call is tolerated.
    unsafe {
        let lib = Library::new(&path).expect("load");
        let f = lib.get::<unsafe extern "C" fn(*mut u8) -> i32>(b"f").expect("f");
        assert_eq!(f(std::ptr::null_mut()), 4);
        let mut call = [0u8; 512];
        assert_eq!(f(call.as_mut_ptr()), 4);
        let text = b"x.shape[0]: wanted 16, got 15\0";
        assert!(call.windows(text.len()).any(|w| w == text));
    }
}

/// Calls into the C library through stubs and the offset table, on AArch64.
#[test]
fn aarch64_imports() {
    let dir = tempfile::tempdir().expect("dir");
    let tool = |name: &str, args: &[&str]| {
        let out = Command::new(name).current_dir(dir.path()).args(args).output().expect(name);
        assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    };
    save(
        dir.path(),
        "model.c",
        br#"
typedef unsigned long size_t;
void *malloc(size_t), *memcpy(void *, const void *, size_t);
size_t strlen(const char *);
static int seven(void) { return 7; }
static int (*const table[])(void) = {seven, seven};
static const char *const names[] = {"a", "bc", "def"};
static void *(*const allocate)(size_t) = malloc;
int indirect(int i) { return table[i]() + (int)strlen(names[i]); }
void *copy(const void *p, size_t n) { void *q = malloc(n); if (q) memcpy(q, p, n); return q; }
void *(*which(int i))(size_t) { return i ? malloc : *(void *(*const volatile *)(size_t))&allocate; }
"#,
    );
    save(
        dir.path(),
        "main.c",
        br#"
typedef unsigned long size_t;
void *malloc(size_t), *dlopen(const char *, int), *dlsym(void *, const char *);
int strcmp(const char *, const char *);
__asm__(".globl _start\n_start: bl main\nbl exit\n");
int main(void) {
  void *lib = dlopen("./libmodel.so", 2);
  if (!lib) return 2;
  int (*indirect)(int) = dlsym(lib, "indirect");
  void *(*copy)(const void *, size_t) = dlsym(lib, "copy");
  void *(*(*which)(int))(size_t) = dlsym(lib, "which");
  if (indirect(1) != 9) return 3;
  if (strcmp(copy("hello", 6), "hello")) return 4;
  return which(0) == malloc && which(1) == malloc ? 0 : 5;
}
"#,
    );
    tool("aarch64-linux-gnu-gcc", &["-c", "-O1", "-fPIC", "-ffunction-sections", "model.c", "-o", "model.o"]);
    // Only the C library's run time is needed, not its development files.
    let libc = "/usr/aarch64-linux-gnu/lib/libc.so.6";
    tool("aarch64-linux-gnu-gcc", &["-nostdlib", "main.c", "-o", "main", libc]);
    let object = std::fs::read(dir.path().join("model.o")).expect("object");
    let exports: Vec<String> = ["indirect", "copy", "which"].map(String::from).to_vec();
    let bytes = link_shared(&object, None, "libmodel.so", &exports).expect("link");
    readelf(&save(dir.path(), "libmodel.so", &bytes));
    let status = Command::new("qemu-aarch64")
        .args(["-L", "/usr/aarch64-linux-gnu", "./main"])
        .current_dir(dir.path())
        .status()
        .expect("qemu-aarch64");
    assert_eq!(status.code(), Some(0));
}

/// Damaged objects give an error or a library, never a panic.
#[test]
fn damaged_objects() {
    let dir = tempfile::tempdir().expect("dir");
    let flags = ["-fPIC", "-ffunction-sections", "-fdata-sections", "-Wno-implicit-function-declaration"];
    let object = compile(dir.path(), "whole", PLAIN, &flags);
    let exports = ["add".to_string(), "indirect".to_string(), "copy".to_string()];
    let runtime = runtime_object(TRIPLE);
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % n
    };
    let mut linked = 0;
    for _ in 0..3000 {
        let mut bytes = object.clone();
        if random(8) == 0 {
            bytes.truncate(random(bytes.len()));
        }
        for _ in 0..=random(4) {
            // File header, section headers and symbols, or anything.
            if !bytes.is_empty() {
                let n = bytes.len();
                let (start, room) = [(0, 64), (n.saturating_sub(6000), 6000), (0, n)][random(3)];
                let at = (start + random(room)).min(n - 1);
                bytes[at] = [random(256) as u8, 0, 0xff][random(3)];
            }
        }
        linked += link_shared(&bytes, runtime, "libx.so", &exports).is_ok() as u32;
    }
    assert!(linked > 100, "{linked}");
}
