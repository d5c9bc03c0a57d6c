//! Threads for the time of one call: started where the first big loop begins, joined before the call returns.
//!
//! A team lives on the stack of the call. Nothing is shared between calls, nothing is left behind when the library is
//! unloaded, and a process may fork between calls. Iterations are claimed one by one, so a call never waits for a
//! worker that has not begun: where processors are busy with other work, the caller does it alone. Between loops workers
//! spin a while, then yield, then nap.

use crate::abi::*;
use crate::fail::{code, relax_rt_fail};
use core::ffi::{c_int, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Threads of a team, the caller's included.
const MOST: usize = 64;
/// Rounds of waiting before the processor is given away, and before the thread naps.
const SPINS: u32 = 1 << 12;
const YIELDS: u32 = SPINS + (1 << 7);
const NAP_NANOSECONDS: i64 = 50_000;
/// Iterations of a loop, at most: a claim has 16 bits for each of two numbers.
const ITERATIONS: i64 = 1 << 15;

type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

extern "C" {
    /// `pthread_t` is a word with every C library for Linux.
    fn pthread_create(thread: *mut usize, attributes: *const c_void, start: Start, argument: *mut c_void) -> c_int;
    fn pthread_join(thread: usize, result: *mut *mut c_void) -> c_int;
    fn sched_yield() -> c_int;
    fn nanosleep(time: *const [i64; 2], left: *mut [i64; 2]) -> c_int;
}

/// What the threads of a call share. The caller's thread alone writes the plain fields, while no claim is open.
struct Team {
    /// Threads wanted, the caller's included.
    wanted: usize,
    /// Workers that run.
    workers: usize,
    tried: bool,
    body: Option<ParallelBody>,
    context: *mut c_void,
    /// The number of the loop, the next iteration, their count: 32, 16 and 16 bits.
    claims: AtomicU64,
    /// Iterations that have run.
    done: AtomicU32,
    /// The workers go home.
    over: AtomicU32,
    /// The first result that was not 0.
    failed: AtomicI32,
    members: [Member; MOST],
}

#[derive(Clone, Copy)]
struct Member {
    team: *const Team,
    thread: usize,
}

/// Runs an entry with up to `threads` threads, unless the call brings its own.
///
/// # Safety
/// As for the entry; `call` is null or not used by another thread meanwhile.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_team(
    entry: Option<EntryFn>,
    args: *const *const DLTensor,
    outs: *const *mut DLTensor,
    call: *mut Call,
    threads: i32,
) -> i32 {
    // SAFETY: the caller's contract; the team outlives its workers, which are joined below.
    unsafe {
        let Some(entry) = entry else {
            return relax_rt_fail(call, code::CALL, 0, 0, 0, c"entry".as_ptr());
        };
        if !call.is_null() && (*call).parallel_for.is_some() {
            return entry(args, outs, call);
        }
        let mut own = Call::new();
        let call = if call.is_null() { &raw mut own } else { call };
        let wanted = if threads < 1 { 1 } else { threads as usize };
        let mut team = Team {
            wanted: if wanted > MOST { MOST } else { wanted },
            workers: 0,
            tried: false,
            body: None,
            context: null_mut(),
            claims: AtomicU64::new(0),
            done: AtomicU32::new(0),
            over: AtomicU32::new(0),
            failed: AtomicI32::new(0),
            members: [Member { team: null(), thread: 0 }; MOST],
        };
        let this = (*call).parallel_self;
        (*call).parallel_for = Some(run);
        (*call).parallel_self = (&raw mut team).cast();
        let rc = entry(args, outs, call);
        (*call).parallel_for = None;
        (*call).parallel_self = this;
        dismiss(&raw mut team);
        rc
    }
}

/// [`ParallelFor`] of a team.
///
/// # Safety
/// `team` points to a [`Team`] of the calling thread.
unsafe extern "C" fn run(team: *mut c_void, n: i64, body: ParallelBody, context: *mut c_void) -> i32 {
    let team: *mut Team = team.cast();
    // SAFETY: workers read the plain fields between a claim and their step of `done` only.
    unsafe {
        if !(*team).tried {
            (*team).tried = true;
            gather(team);
        }
        if (*team).workers == 0 || !(2..=ITERATIONS).contains(&n) {
            return body(context, 0, n);
        }
        (*team).body = Some(body);
        (*team).context = context;
        (*team).failed.store(0, Ordering::Relaxed);
        (*team).done.store(0, Ordering::Relaxed);
        let last = (*team).claims.load(Ordering::Relaxed) >> 32;
        (*team).claims.store(last.wrapping_add(1) << 32 | n as u64, Ordering::Release);
        share(team);
        let mut waited = 0;
        while (*team).done.load(Ordering::Acquire) as i64 != n {
            pause(&mut waited, SPINS);
        }
        (*team).failed.load(Ordering::Relaxed)
    }
}

/// Starts the workers; as many as the system gives.
///
/// # Safety
/// As for [`run`].
unsafe fn gather(team: *mut Team) {
    // SAFETY: `i` stays below MOST; a member is written before its thread starts.
    unsafe {
        let members = (&raw mut (*team).members).cast::<Member>();
        let mut i = 1;
        while i < (*team).wanted {
            let member = members.add(i);
            (*member).team = team;
            let mut thread = 0usize;
            if pthread_create(&raw mut thread, null(), work, member.cast()) != 0 {
                return;
            }
            (*member).thread = thread;
            (*team).workers = i;
            i += 1;
        }
    }
}

/// Sends the workers home.
///
/// # Safety
/// As for [`run`].
unsafe fn dismiss(team: *mut Team) {
    // SAFETY: as above; `thread` of the workers that run was written by `gather`.
    unsafe {
        if (*team).workers == 0 {
            return;
        }
        (*team).over.store(1, Ordering::Release);
        let members = (&raw mut (*team).members).cast::<Member>();
        let mut i = 1;
        while i <= (*team).workers {
            pthread_join((*members.add(i)).thread, null_mut());
            i += 1;
        }
    }
}

/// The life of a worker.
unsafe extern "C" fn work(member: *mut c_void) -> *mut c_void {
    let member: *const Member = member.cast();
    // SAFETY: the team lives until its workers are joined. `thread` of the member is left alone here.
    unsafe {
        let team = (*member).team;
        let mut waited = 0;
        while (*team).over.load(Ordering::Acquire) == 0 {
            match share(team) {
                true => waited = 0,
                false => pause(&mut waited, YIELDS),
            }
        }
    }
    null_mut()
}

/// Runs iterations while there are some; whether there was one.
///
/// # Safety
/// `team` is alive.
unsafe fn share(team: *const Team) -> bool {
    let mut any = false;
    // SAFETY: after a claim the loop is not over before `done` says so: its plain fields do not change meanwhile.
    unsafe {
        loop {
            let claims = (*team).claims.load(Ordering::Acquire);
            let (next, n) = (claims >> 16 & 0xffff, claims & 0xffff);
            if next >= n {
                return any;
            }
            let taken = claims + (1 << 16);
            if (*team).claims.compare_exchange_weak(claims, taken, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue;
            }
            any = true;
            let rc = match (*team).body {
                Some(body) => body((*team).context, next as i64, next as i64 + 1),
                None => 0,
            };
            if rc != 0 {
                let _ = (*team).failed.compare_exchange(0, rc, Ordering::Relaxed, Ordering::Relaxed);
            }
            (*team).done.fetch_add(1, Ordering::Release);
        }
    }
}

/// Waits a moment, longer and longer until `most`.
fn pause(waited: &mut u32, most: u32) {
    if *waited < most {
        *waited += 1;
    }
    // SAFETY: both read what they are given alone.
    unsafe {
        if *waited < SPINS {
            core::hint::spin_loop();
        } else if *waited < YIELDS {
            sched_yield();
        } else {
            nanosleep(&[0, NAP_NANOSECONDS], null_mut());
        }
    }
}
