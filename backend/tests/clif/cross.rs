//! Running code for other processors: a freestanding program around the object, under QEMU's user emulation.

use crate::harness::{Case, N};
use std::io::Write;
use std::process::{Command, Stdio};

/// clang's target, QEMU's program.
fn tools(triple: &str) -> Option<(&'static str, &'static str)> {
    match triple {
        "aarch64-unknown-linux-gnu" => Some(("aarch64-linux-gnu", "qemu-aarch64")),
        "riscv64gc-unknown-linux-gnu" => Some(("riscv64-linux-gnu", "qemu-riscv64")),
        _ => None,
    }
}

/// System calls and start-up: read all inputs, run every case, write all outputs.
const START: &str = r#"
typedef unsigned char u8; typedef long i64;
#if defined(__aarch64__)
static i64 sys(i64 n, i64 a, i64 b, i64 c) {
    register i64 x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory"); return x0;
}
#else
static i64 sys(i64 n, i64 a, i64 b, i64 c) {
    register i64 a7 __asm__("a7") = n, a0 __asm__("a0") = a, a1 __asm__("a1") = b, a2 __asm__("a2") = c;
    __asm__ volatile("ecall" : "+r"(a0) : "r"(a7), "r"(a1), "r"(a2) : "memory"); return a0;
}
#endif
static void take(u8 *p, i64 n) { while (n > 0) { i64 k = sys(63, 0, (i64)p, n); if (k <= 0) sys(93, 3, 0, 0); p += k; n -= k; } }
static void give(u8 *p, i64 n) { while (n > 0) { i64 k = sys(64, 1, (i64)p, n); if (k <= 0) sys(93, 4, 0, 0); p += k; n -= k; } }
struct job { void *f; i64 n, bytes[4]; };
static u8 in[3][1 << 14] __attribute__((aligned(64))), out[1 << 14] __attribute__((aligned(64)));
"#;

/// The outputs of every case; `None` when there is no way to run code for this triple here.
pub fn run(triple: &str, cpu: &str, object: &[u8], cases: &[Case], inputs: &[Vec<Vec<u8>>]) -> Option<Vec<Vec<u8>>> {
    let (target, qemu) = tools(triple)?;
    let present =
        |tool: &str| Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !present("clang") || !present("ld.lld") || !present(qemu) {
        eprintln!("{triple}: clang, ld.lld or {qemu} is missing, code not run");
        return None;
    }
    let mut c = START.to_string();
    for case in cases {
        c += &format!("void {}();\n", case.name);
    }
    c += "static struct job jobs[] = {\n";
    for case in cases {
        let mut bytes: Vec<usize> = case.inputs.iter().map(|d| d.bytes() * N).collect();
        bytes.resize(3, 0);
        bytes.push(case.out.bytes() * N);
        let bytes: Vec<String> = bytes.iter().map(usize::to_string).collect();
        c += &format!("{{(void *){}, {}, {{{}}}}},\n", case.name, case.inputs.len(), bytes.join(", "));
    }
    c += &format!(
        "}};
        void _start(void) {{
            for (i64 j = 0; j < (i64)(sizeof jobs / sizeof *jobs); j++) {{
                struct job *w = jobs + j;
                for (i64 i = 0; i < w->n; i++) take(in[i], w->bytes[i]);
                if (w->n == 1) ((void (*)(u8 *, u8 *, i64))w->f)(in[0], out, {N});
                else if (w->n == 2) ((void (*)(u8 *, u8 *, u8 *, i64))w->f)(in[0], in[1], out, {N});
                else ((void (*)(u8 *, u8 *, u8 *, u8 *, i64))w->f)(in[0], in[1], in[2], out, {N});
                give(out, w->bytes[3]);
            }}
            sys(93, 0, 0, 0);
        }}"
    );
    let dir = tempfile::tempdir().unwrap();
    let path = |n: &str| dir.path().join(n);
    std::fs::write(path("t.o"), object).unwrap();
    std::fs::write(path("main.c"), c).unwrap();
    let built = Command::new("clang")
        .args([
            &format!("--target={target}")[..],
            "-O1",
            "-w",
            "-nostdlib",
            "-static",
            "-ffreestanding",
            "-fuse-ld=lld",
        ])
        .args(["-mno-relax"].iter().filter(|_| target.starts_with("riscv")))
        .arg("-o")
        .args([path("t"), path("main.c"), path("t.o")])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut child = Command::new(qemu)
        .args(["-cpu", "rv64,v=true"].iter().filter(|_| cpu.contains("+v")))
        .arg(path("t"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let all: Vec<u8> = inputs.iter().flatten().flatten().copied().collect();
    let feed = std::thread::spawn(move || stdin.write_all(&all));
    let done = child.wait_with_output().unwrap();
    let _ = feed.join();
    assert!(done.status.success(), "{triple}: {:?}", done.status);
    let mut rest = &done.stdout[..];
    let outputs = cases
        .iter()
        .map(|c| {
            let (one, more) = rest.split_at(c.out.bytes() * N);
            rest = more;
            one.to_vec()
        })
        .collect();
    Some(outputs)
}
