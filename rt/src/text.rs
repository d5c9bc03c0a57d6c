//! Message formatting without `core::fmt`: bytes into a fixed buffer, cut when full, always NUL-terminated.

use core::ffi::c_char;

/// Appends to a buffer of the caller.
pub(crate) struct Text {
    start: *mut u8,
    length: usize,
    capacity: usize,
}

impl Text {
    /// # Safety
    /// `start` points to `capacity` (at least 1) writable bytes that outlive the result.
    pub(crate) unsafe fn new(start: *mut u8, capacity: usize) -> Text {
        // SAFETY: the caller grants at least one byte.
        unsafe { start.write(0) };
        Text { start, length: 0, capacity }
    }

    pub(crate) fn byte(&mut self, b: u8) {
        if self.length + 1 < self.capacity {
            // SAFETY: length + 1 is below the capacity granted in `new`.
            unsafe {
                self.start.add(self.length).write(b);
                self.start.add(self.length + 1).write(0);
            }
            self.length += 1;
        }
    }

    pub(crate) fn str(&mut self, s: &str) {
        for b in s.bytes() {
            self.byte(b);
        }
    }

    /// Null adds nothing.
    ///
    /// # Safety
    /// `s` is null or NUL-terminated.
    pub(crate) unsafe fn c_str(&mut self, s: *const c_char) {
        if s.is_null() {
            return;
        }
        let mut p = s as *const u8;
        loop {
            // SAFETY: every byte before the terminator was read and was not NUL, so `p` is inside the string.
            let b = unsafe { p.read() };
            if b == 0 {
                return;
            }
            self.byte(b);
            p = p.wrapping_add(1);
        }
    }

    pub(crate) fn number(&mut self, v: i64) {
        if v < 0 {
            self.byte(b'-');
        }
        let mut rest = v.unsigned_abs();
        // 2^64 has 20 digits; the lowest is written last.
        let mut digits = [0u8; 20];
        let mut count = 0;
        for d in digits.iter_mut() {
            *d = b'0' + (rest % 10) as u8;
            count += 1;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        for d in digits.iter().take(count).rev() {
            self.byte(*d);
        }
    }

    /// A DLPack type packed as the four bytes of the struct: code, bits, lanes.
    pub(crate) fn dtype(&mut self, packed: i64) {
        let (code, bits, lanes) = (packed as u8, (packed >> 8) as u8, (packed >> 16) as u16);
        self.str(match code {
            0 => "int",
            1 => "uint",
            2 => "float",
            3 => "handle",
            4 => "bfloat",
            5 => "complex",
            6 => "bool",
            _ => "type code ",
        });
        if code > 6 {
            self.number(code as i64);
            self.str(" bits ");
        }
        if code != 6 && code != 3 {
            self.number(bits as i64);
        }
        if lanes > 1 {
            self.byte(b'x');
            self.number(lanes as i64);
        }
    }
}

/// Whether two NUL-terminated strings agree.
///
/// # Safety
/// Both are NUL-terminated.
pub(crate) unsafe fn same(a: *const c_char, b: *const c_char) -> bool {
    let mut i = 0;
    loop {
        // SAFETY: all bytes before `i` were equal and not NUL, so `i` is inside both strings.
        let (x, y) = unsafe { (*a.add(i), *b.add(i)) };
        if x != y {
            return false;
        }
        if x == 0 {
            return true;
        }
        i += 1;
    }
}
