//! Threads for the big loops of calls: a team is started by the first call that has such a loop and stays, asleep
//! between calls, until the library is unloaded.
//!
//! A team serves one call at a time; a call that finds all teams taken works alone. It lives in pages of its own, which
//! the child of a fork finds empty: all zero is a team that has not been started. Iterations are dealt out evenly, those
//! of a thread side by side and the same ones in each loop of that size, so that a thread finds in its caches what it
//! left there; who is done takes what others have not begun. A call never waits for a worker that has not begun, so
//! where processors are busy with other work the caller does it alone. Between loops workers spin a while, then yield,
//! then sleep.
//!
//! Workers wake on another processor than the caller's: a system whose processors are all busy wakes a thread where it
//! slept last, and one that slept beside the caller gets its turn when the caller's is over, call after call.

use crate::abi::*;
use crate::fail::{code, relax_rt_fail};
use crate::hosted::relax_rt_forget;
use core::ffi::{c_int, c_long, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Threads of a team, the caller's included.
const MOST: usize = 64;
/// Calls at the same time that have a team each.
const TEAMS: usize = 8;
/// Rounds of waiting before the processor is given away, and before a worker sleeps though a call is under way.
const SPINS: u32 = 1 << 12;
const YIELDS: u32 = SPINS + (1 << 11);
/// Iterations of a loop, at most: a claim has 15 bits for each of two numbers.
const ITERATIONS: i64 = 1 << 14;
/// In claims: the others may help.
const OPEN: u64 = 1 << 15;

type Start = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

extern "C" {
    /// `pthread_t` is a word with every C library for Linux.
    fn pthread_create(thread: *mut usize, attributes: *const c_void, start: Start, argument: *mut c_void) -> c_int;
    fn pthread_join(thread: usize, result: *mut *mut c_void) -> c_int;
    fn pthread_sigmask(how: c_int, new: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn pthread_setaffinity_np(thread: usize, bytes: usize, processors: *const Processors) -> c_int;
    fn sched_getaffinity(thread: c_int, bytes: usize, processors: *mut Processors) -> c_int;
    fn sched_getcpu() -> c_int;
    fn sched_yield() -> c_int;
    fn mmap(at: *mut c_void, bytes: usize, access: c_int, flags: c_int, file: c_int, offset: c_long) -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
    fn madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

/// `sigset_t`, as large as any C library has it.
type SignalSet = [u64; 16];
/// `cpu_set_t`, for so many processors; where there are more the system places workers.
type Processors = [u64; 64];
const SIG_SETMASK: c_int = 2;
const READ_WRITE: c_int = 3;
const PRIVATE_ANONYMOUS: c_int = 0x22;
const WIPE_ON_FORK: c_int = 18;
const FUTEX: c_long = if cfg!(target_arch = "x86_64") { 202 } else { 98 };
const WAIT_PRIVATE: c_int = 128;
const WAKE_PRIVATE: c_int = 129;

/// What the threads of a call share. The thread that took the team alone writes the plain fields.
#[repr(C, align(64))]
struct Team {
    /// 1 while a call has it.
    taken: AtomicU32,
    /// The workers go home.
    over: AtomicU32,
    /// The first result of a loop that was not 0.
    failed: AtomicI32,
    /// Loops so far.
    loops: u32,
    /// Iterations so far, which the threads' `done` add up to.
    wanted: u32,
    /// Workers that run.
    workers: u32,
    tried: u32,
    /// Whether it is known where the threads may run: 1, or -1 where that cannot be; 0: not asked yet.
    known: i32,
    allowed: Processors,
    members: [Member; MOST],
}

/// A thread of a team, the caller's first. A line of the cache each.
#[repr(C, align(64))]
struct Member {
    /// The number of the loop, the next iteration of the thread's part, [`OPEN`], the end of the part: 32, 16, 1 and
    /// 15 bits.
    claims: AtomicU64,
    body: Option<ParallelBody>,
    context: *mut c_void,
    /// Iterations that this thread has run, all loops together.
    done: AtomicU32,
    /// 1 while the thread sleeps, and to sleep on.
    asleep: AtomicU32,
    team: *mut Team,
    thread: usize,
}

/// Memory of a library that is written.
#[link_section = ".bss.relax_rt_teams"]
static ALL: [AtomicPtr<Team>; TEAMS] = [const { AtomicPtr::new(null_mut()) }; TEAMS];

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
    // SAFETY: the caller's contract; a team that is taken is nobody else's.
    unsafe {
        let Some(entry) = entry else {
            return relax_rt_fail(call, code::CALL, 0, 0, 0, c"entry".as_ptr());
        };
        if threads < 2 || !call.is_null() && (*call).parallel_for.is_some() {
            return entry(args, outs, call);
        }
        let team = take();
        if team.is_null() {
            return entry(args, outs, call);
        }
        let mut own = Call::new();
        let call = if call.is_null() { &raw mut own } else { call };
        let this = (*call).parallel_self;
        let mut seat = Seat { team, threads: if threads as usize > MOST { MOST as u32 } else { threads as u32 } };
        (*call).parallel_for = Some(run);
        (*call).parallel_self = (&raw mut seat).cast();
        let rc = entry(args, outs, call);
        (*call).parallel_for = None;
        (*call).parallel_self = this;
        (*team).taken.store(0, Ordering::Release);
        rc
    }
}

/// A call's place in its team.
struct Seat {
    team: *mut Team,
    threads: u32,
}

/// A team that no other call has, or null.
fn take() -> *mut Team {
    let mut i = 0;
    while i < TEAMS {
        let mut team = ALL[i].load(Ordering::Acquire);
        if team.is_null() {
            team = make();
            if team.is_null() {
                return team;
            }
            if let Err(other) = ALL[i].compare_exchange(null_mut(), team, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: the pages came from `make`, and nobody else has seen them.
                unsafe { munmap(team.cast(), size_of::<Team>()) };
                team = other;
            }
        }
        // SAFETY: teams live until the library is unloaded.
        if unsafe { (*team).taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() } {
            return team;
        }
        i += 1;
    }
    null_mut()
}

/// Pages for a team, which a fork leaves behind; or null.
fn make() -> *mut Team {
    // SAFETY: new pages, which nobody else has.
    unsafe {
        let bytes = size_of::<Team>();
        let pages = mmap(null_mut(), bytes, READ_WRITE, PRIVATE_ANONYMOUS, -1, 0);
        if pages as isize == -1 {
            return null_mut();
        }
        if madvise(pages, bytes, WIPE_ON_FORK) != 0 {
            munmap(pages, bytes);
            return null_mut();
        }
        pages.cast()
    }
}

/// Ends all workers and frees kept workspaces. The loader runs it before it unmaps the library, and when the process ends.
///
/// # Safety
/// No call begins any more.
#[no_mangle]
pub unsafe extern "C" fn relax_rt_rest() {
    relax_rt_forget();
    let mut i = 0;
    while i < TEAMS {
        let team = ALL[i].swap(null_mut(), Ordering::AcqRel);
        i += 1;
        if team.is_null() {
            continue;
        }
        // SAFETY: threads of workers that run were written by `gather`; a team of a call that goes on while the
        // process ends keeps its pages, and that call does the rest alone.
        unsafe {
            (*team).over.store(1, Ordering::SeqCst);
            let mut k = 1;
            while k <= (*team).workers as usize {
                let member = (&raw mut (*team).members).cast::<Member>().add(k);
                wake(member);
                pthread_join((*member).thread, null_mut());
                k += 1;
            }
            if (*team).taken.load(Ordering::Acquire) == 0 {
                munmap(team.cast(), size_of::<Team>());
            }
        }
    }
}

/// [`ParallelFor`] of a team.
///
/// # Safety
/// `seat` points to a [`Seat`] of the calling thread, which has taken its team.
unsafe extern "C" fn run(seat: *mut c_void, n: i64, body: ParallelBody, context: *mut c_void) -> i32 {
    // SAFETY: workers read what is written here between their claim and their step of `done` only, and all claims of
    // the last loop have taken that step.
    unsafe {
        let (team, threads) = ((*seat.cast::<Seat>()).team, (*seat.cast::<Seat>()).threads as usize);
        if (*team).tried == 0 {
            (*team).tried = 1;
            gather(team, threads);
        }
        let workers = (*team).workers as usize;
        if workers == 0 || !(2..=ITERATIONS).contains(&n) {
            return body(context, 0, n);
        }
        let (count, members) = (n as usize, (&raw mut (*team).members).cast::<Member>());
        (*team).failed.store(0, Ordering::Relaxed);
        (*team).loops = (*team).loops.wrapping_add(1);
        (*team).wanted = (*team).wanted.wrapping_add(count as u32);
        // With an iteration each, a worker that is done would only disturb.
        let open = if count > workers + 1 { OPEN } else { 0 };
        let mut k = workers + 1;
        while k > 0 {
            k -= 1;
            let (begin, end) = (count * k / (workers + 1), count * (k + 1) / (workers + 1));
            let member = members.add(k);
            (*member).body = Some(body);
            (*member).context = context;
            let claims = ((*team).loops as u64) << 32 | (begin as u64) << 16 | open | end as u64;
            if k == 0 {
                (*member).claims.store(claims, Ordering::Release);
            } else {
                (*member).claims.swap(claims, Ordering::SeqCst);
                if (*member).asleep.load(Ordering::SeqCst) != 0 {
                    wake_elsewhere(team, member);
                }
            }
        }
        share(team, 0, true);
        let mut waited = 0;
        loop {
            let (mut done, mut k) = (0u32, 0);
            while k <= workers {
                done = done.wrapping_add((*members.add(k)).done.load(Ordering::Acquire));
                k += 1;
            }
            if done == (*team).wanted {
                return (*team).failed.load(Ordering::Relaxed);
            }
            pause(&mut waited);
        }
    }
}

/// Starts the workers, which take no signals; as many as the system gives.
///
/// # Safety
/// As for [`run`].
unsafe fn gather(team: *mut Team, threads: usize) {
    // SAFETY: `i` stays below MOST; a member is written before its thread starts.
    unsafe {
        let (all, mut former): (SignalSet, SignalSet) = ([!0; 16], [0; 16]);
        if pthread_sigmask(SIG_SETMASK, &raw const all, &raw mut former) != 0 {
            return;
        }
        let members = (&raw mut (*team).members).cast::<Member>();
        let mut i = 1;
        while i < threads {
            let member = members.add(i);
            (*member).team = team;
            if pthread_create(&raw mut (*member).thread, null(), work, member.cast()) != 0 {
                break;
            }
            (*team).workers = i as u32;
            i += 1;
        }
        pthread_sigmask(SIG_SETMASK, &raw const former, null_mut());
    }
}

/// Lets a worker go on that sleeps or is about to, on another processor than the caller's if there is one.
///
/// # Safety
/// As for [`run`].
unsafe fn wake_elsewhere(team: *mut Team, member: *mut Member) {
    // SAFETY: the worker runs until the team is over; the system fills and reads as many bytes as it is told.
    unsafe {
        let bytes = size_of::<Processors>();
        if (*team).known == 0 {
            (*team).known = if sched_getaffinity(0, bytes, &raw mut (*team).allowed) == 0 { 1 } else { -1 };
        }
        let here = sched_getcpu();
        if (*team).known < 0 || here < 0 || here as usize >= 8 * bytes {
            return wake(member);
        }
        let (mut others, word) = ((*team).allowed, here as usize / 64);
        let mut any = 0;
        let mut i = 0;
        while i < others.len() {
            if i == word {
                others[i] &= !(1 << (here % 64));
            }
            any |= others[i];
            i += 1;
        }
        if any == 0 {
            return wake(member);
        }
        // It begins there; after that the system moves it as it likes.
        pthread_setaffinity_np((*member).thread, bytes, &raw const others);
        wake(member);
        pthread_setaffinity_np((*member).thread, bytes, &raw const (*team).allowed);
    }
}

/// The life of a worker.
unsafe extern "C" fn work(member: *mut c_void) -> *mut c_void {
    let member: *mut Member = member.cast();
    // SAFETY: the team lives until its workers are joined. `thread` of the member is left alone here.
    unsafe {
        let team = (*member).team;
        let place = member.offset_from((&raw mut (*team).members).cast()) as usize;
        let (mut seen, mut waited) = (0, 0);
        while (*team).over.load(Ordering::Acquire) == 0 {
            if (*member).claims.load(Ordering::Acquire) != seen {
                seen = share(team, place, false);
                waited = 0;
            } else if waited < SPINS || waited < YIELDS && (*team).taken.load(Ordering::Relaxed) != 0 {
                pause(&mut waited);
            } else {
                (*member).asleep.store(1, Ordering::SeqCst);
                let news = (*member).claims.load(Ordering::SeqCst) != seen || (*team).over.load(Ordering::SeqCst) != 0;
                if news {
                    (*member).asleep.store(0, Ordering::Relaxed);
                    continue;
                }
                syscall(FUTEX, &raw mut (*member).asleep, WAIT_PRIVATE, 1 as c_int, null::<c_void>());
            }
        }
    }
    null_mut()
}

/// Lets a worker go on that sleeps or is about to.
///
/// # Safety
/// `member` is alive.
unsafe fn wake(member: *mut Member) {
    // SAFETY: the caller's contract.
    unsafe {
        if (*member).asleep.swap(0, Ordering::SeqCst) != 0 {
            syscall(FUTEX, &raw mut (*member).asleep, WAKE_PRIVATE, 1 as c_int);
        }
    }
}

/// Runs what is left of the part of thread `k`, then what others have not begun: always, or where it is open to all.
/// What the thread's claims were in the end.
///
/// # Safety
/// `team` is alive.
unsafe fn share(team: *mut Team, k: usize, always: bool) -> u64 {
    // SAFETY: after a claim the loop is not over before `done` says so: plain fields do not change meanwhile.
    unsafe {
        let members = (&raw mut (*team).members).cast::<Member>();
        let own = members.add(k);
        let (seen, any) = part(team, own, own);
        if always || any && seen & OPEN != 0 {
            let count = (*team).workers as usize + 1;
            let mut i = 1;
            while i < count {
                let other = if k + i < count { k + i } else { k + i - count };
                part(team, members.add(other), own);
                i += 1;
            }
        }
        seen
    }
}

/// Runs iterations of the part of `member` while there are some, in the name of `own`. The claims afterwards, and
/// whether there was one.
///
/// # Safety
/// `team` is alive.
unsafe fn part(team: *mut Team, member: *mut Member, own: *mut Member) -> (u64, bool) {
    // SAFETY: as for `share`.
    unsafe {
        let mut any = false;
        let mut claims = (*member).claims.load(Ordering::Acquire);
        loop {
            let (next, end) = (claims >> 16 & 0xffff, claims & (OPEN - 1));
            if next >= end {
                return (claims, any);
            }
            let taken = claims + (1 << 16);
            match (*member).claims.compare_exchange(claims, taken, Ordering::Acquire, Ordering::Acquire) {
                Err(now) => claims = now,
                Ok(_) => {
                    any = true;
                    let rc = match (*member).body {
                        Some(body) => body((*member).context, next as i64, next as i64 + 1),
                        None => 0,
                    };
                    if rc != 0 {
                        let _ = (*team).failed.compare_exchange(0, rc, Ordering::Relaxed, Ordering::Relaxed);
                    }
                    (*own).done.store((*own).done.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
                    claims = (*member).claims.load(Ordering::Acquire);
                }
            }
        }
    }
}

/// Waits a moment, and gives the processor away once it has waited for long.
fn pause(waited: &mut u32) {
    if *waited < YIELDS {
        *waited += 1;
    }
    if *waited < SPINS {
        core::hint::spin_loop();
    } else {
        // SAFETY: it reads nothing.
        unsafe { sched_yield() };
    }
}
