//! What Python's `format` makes of a value in a field of a formatted string: `{n:03d}`, `{name!r:>8}`.
//!
//! Source: Python's library reference, "Format Specification Mini-Language".

/// A value that has a text.
pub enum Shown {
    Integer(i128),
    Float(f64),
    Bool(bool),
    Text(String),
    /// A variable, by its name, or None: it takes no format.
    Object(String),
}

/// Why there is no text.
pub enum Refused {
    /// Python raises an error.
    Wrong(String),
    /// Python makes a text that is not known here.
    Unknown(String),
}

/// Fields are no wider.
const WIDEST: usize = 4096;

pub fn show(value: Shown, conversion: Option<char>, format: &str) -> Result<String, Refused> {
    let value = match conversion {
        None => value,
        Some(c) => Shown::Text(converted(value, c)?),
    };
    if format.is_empty() {
        return Ok(plain(value));
    }
    let wrong = |why: String| Err(Refused::Wrong(why));
    let Some(f) = Format::read(format) else {
        return wrong(format!("`{format}` is no format"));
    };
    if f.width.max(f.precision.unwrap_or(0)) > WIDEST {
        return Err(Refused::Unknown(format!("`{format}` makes texts wider than {WIDEST}")));
    }
    match value {
        Shown::Object(name) => wrong(format!("`{name}` takes no format, `{format}` is given")),
        Shown::Bool(b) if matches!(f.kind, Some('s')) => wrong(format!("`{format}` is for texts, not for {b}")),
        Shown::Bool(b) => f.integer(i128::from(b), format),
        Shown::Integer(v) => f.integer(v, format),
        Shown::Float(v) => f.float(v, format),
        Shown::Text(s) => f.text(&s, format),
    }
}

fn plain(value: Shown) -> String {
    match value {
        Shown::Integer(v) => v.to_string(),
        Shown::Float(v) if v.is_sign_negative() && !v.is_nan() => format!("-{}", shortest(-v)),
        Shown::Float(v) => shortest(v.abs()),
        Shown::Bool(b) => if b { "True" } else { "False" }.to_string(),
        Shown::Text(s) | Shown::Object(s) => s,
    }
}

/// By `str`, `repr` or `ascii`.
fn converted(value: Shown, conversion: char) -> Result<String, Refused> {
    match value {
        Shown::Text(s) if conversion != 's' => {
            if s.chars().any(|c| !(' '..='~').contains(&c)) {
                return Err(Refused::Unknown("only texts of printable ASCII are shown in quotes".to_string()));
            }
            let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
            let mut out = String::from(quote);
            for c in s.chars() {
                if c == '\\' || c == quote {
                    out.push('\\');
                }
                out.push(c);
            }
            out.push(quote);
            Ok(out)
        }
        value => Ok(plain(value)),
    }
}

/// `[[fill]align][sign][#][0][width][grouping][.precision][type]`
struct Format {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    prefix: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

impl Format {
    fn read(format: &str) -> Option<Format> {
        let all: Vec<char> = format.chars().collect();
        let aligns = |c: Option<&char>| c.copied().filter(|c| matches!(c, '<' | '>' | '^' | '='));
        let (fill, align, mut at) = match (aligns(all.get(1)), aligns(all.first())) {
            (Some(a), _) => (all.first().copied(), Some(a), 2),
            (_, Some(a)) => (None, Some(a), 1),
            _ => (None, None, 0),
        };
        let one = |at: &mut usize, of: &[char]| {
            let found = all.get(*at).copied().filter(|c| of.contains(c));
            *at += usize::from(found.is_some());
            found
        };
        let sign = one(&mut at, &['+', '-', ' ']);
        let prefix = one(&mut at, &['#']).is_some();
        let zero = one(&mut at, &['0']).is_some();
        let width = digits(&all, &mut at)?.unwrap_or(0);
        let grouping = one(&mut at, &[',', '_']);
        let precision = match one(&mut at, &['.']) {
            Some(_) => Some(digits(&all, &mut at)??),
            None => None,
        };
        let kind = all.get(at).copied();
        (at + usize::from(kind.is_some()) == all.len()).then_some(Format {
            fill,
            align,
            sign,
            prefix,
            zero,
            width,
            grouping,
            precision,
            kind,
        })
    }

    fn integer(&self, v: i128, format: &str) -> Result<String, Refused> {
        let wrong = |why: &str| Err(Refused::Wrong(format!("`{format}`: {why}")));
        let size = v.unsigned_abs();
        let (digits, prefix, group) = match self.kind {
            None | Some('d') => (size.to_string(), "", 3),
            Some('n') if self.grouping.is_none() => (size.to_string(), "", 3),
            Some('b') => (format!("{size:b}"), "0b", 4),
            Some('o') => (format!("{size:o}"), "0o", 4),
            Some('x') => (format!("{size:x}"), "0x", 4),
            Some('X') => (format!("{size:X}"), "0X", 4),
            Some('c') => {
                let plain = self.sign.is_none() && !self.prefix && self.precision.is_none() && self.grouping.is_none();
                let Some(c) = u32::try_from(v).ok().and_then(char::from_u32).filter(|_| plain) else {
                    return wrong("this is no character");
                };
                let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
                let align = self.align.unwrap_or(if self.zero { '=' } else { '>' });
                return Ok(self.padded("", &c.to_string(), fill, align));
            }
            Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => return self.float(v as f64, format),
            Some(_) => return wrong("an integer has no such form"),
        };
        if self.precision.is_some() {
            return wrong("an integer has no precision");
        }
        let group = match self.grouping {
            Some(',') if !matches!(self.kind, None | Some('d')) => return wrong("commas are for decimals"),
            Some(mark) => Some((mark, group)),
            None => None,
        };
        let head = format!("{}{}", self.sign_of(v < 0), if self.prefix { prefix } else { "" });
        Ok(self.number(&head, digits, "", group))
    }

    fn sign_of(&self, negative: bool) -> &'static str {
        match (negative, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            _ => "",
        }
    }

    /// Source: CPython `format_float_short`.
    fn float(&self, v: f64, format: &str) -> Result<String, Refused> {
        let wrong = |why: &str| Err(Refused::Wrong(format!("`{format}`: {why}")));
        let group = match (self.grouping, self.kind) {
            (Some(_), Some('n')) => return wrong("`n` has groups of its own"),
            (mark, _) => mark.map(|mark| (mark, 3)),
        };
        let (size, p) = (v.abs(), self.precision.unwrap_or(6));
        let percent = matches!(self.kind, Some('%'));
        let text = match self.kind {
            None | Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'n' | '%') if !v.is_finite() => special(v),
            None if self.precision.is_none() => shortest(size),
            None => general(size, p.max(1), true, self.prefix),
            Some('e' | 'E') => with_point(scientific(size, p), self.prefix),
            Some('f' | 'F') => with_point(format!("{size:.p$}"), self.prefix),
            Some('%') => with_point(format!("{:.p$}", size * 100.0), self.prefix),
            Some('g' | 'G' | 'n') => general(size, p.max(1), false, self.prefix),
            Some(_) => return wrong("a float has no such form"),
        };
        let text = if matches!(self.kind, Some('E' | 'F' | 'G')) { text.to_uppercase() } else { text };
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (whole, rest) = text.split_at(if v.is_finite() { end } else { 0 });
        let rest = if percent { format!("{rest}%") } else { rest.to_string() };
        Ok(self.number(self.sign_of(v.is_sign_negative() && !v.is_nan()), whole.to_string(), &rest, group))
    }

    /// `head`, the digits in groups and what follows them, in the field.
    fn number(&self, head: &str, digits: String, rest: &str, group: Option<(char, usize)>) -> String {
        let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
        let align = self.align.unwrap_or(if self.zero { '=' } else { '>' });
        let grouped = |digits: &str| match group {
            Some((mark, every)) => {
                let n = digits.len();
                let mut out = String::new();
                for (i, c) in digits.chars().enumerate() {
                    if i > 0 && (n - i).is_multiple_of(every) {
                        out.push(mark);
                    }
                    out.push(c);
                }
                out
            }
            None => digits.to_string(),
        };
        // Zeros in front of digits in groups are in groups too.
        let mut digits = digits;
        if group.is_some() && align == '=' && fill == '0' {
            while head.len() + grouped(&digits).len() + rest.len() < self.width {
                digits.insert(0, '0');
            }
        }
        self.padded(head, &format!("{}{rest}", grouped(&digits)), fill, align)
    }

    fn text(&self, s: &str, format: &str) -> Result<String, Refused> {
        let wrong = |why: &str| Err(Refused::Wrong(format!("`{format}`: {why}")));
        if !matches!(self.kind, None | Some('s')) {
            return wrong("a text has no such form");
        }
        if self.sign.is_some() || self.prefix || self.grouping.is_some() || self.align == Some('=') {
            return wrong("signs, prefixes, groups and `=` are for numbers");
        }
        let cut: String = s.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
        let fill = self.fill.unwrap_or(if self.zero { '0' } else { ' ' });
        Ok(self.padded("", &cut, fill, self.align.unwrap_or('<')))
    }

    fn padded(&self, head: &str, body: &str, fill: char, align: char) -> String {
        let missing = self.width.saturating_sub(head.chars().count() + body.chars().count());
        let pad = |n: usize| fill.to_string().repeat(n);
        match align {
            '<' => format!("{head}{body}{}", pad(missing)),
            '^' => format!("{}{head}{body}{}", pad(missing / 2), pad(missing - missing / 2)),
            '=' => format!("{head}{}{body}", pad(missing)),
            _ => format!("{}{head}{body}", pad(missing)),
        }
    }
}

fn special(v: f64) -> String {
    if v.is_nan() { "nan" } else { "inf" }.to_string()
}

/// `d.ddde+xx` with `p` digits behind the point.
fn scientific(v: f64, p: usize) -> String {
    let text = format!("{v:.p$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// The fewest digits that are `v`, as Python's `repr` has them.
fn shortest(v: f64) -> String {
    if !v.is_finite() {
        return special(v);
    }
    let text = format!("{v:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..16).contains(&exponent) {
        return scientific(v, digits.len().saturating_sub(2));
    }
    let plain = format!("{v}");
    match plain.contains('.') {
        true => plain,
        false => format!("{plain}.0"),
    }
}

/// `p` digits in all, without zeros at the end unless `all` of them stay. A number that `stays` a float has one behind the point.
fn general(v: f64, p: usize, stays: bool, all: bool) -> String {
    let text = scientific(v, p - 1);
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let at: i64 = exponent.parse().unwrap_or(0);
    let trimmed = |digits: &str| match (all, digits.contains('.')) {
        (true, true) => digits.to_string(),
        (true, false) => format!("{digits}."),
        (false, true) => digits.trim_end_matches('0').trim_end_matches('.').to_string(),
        (false, false) => digits.to_string(),
    };
    if at < -4 || at >= p as i64 - i64::from(stays) {
        return format!("{}e{exponent}", trimmed(digits));
    }
    let decimals = usize::try_from(p as i64 - 1 - at).unwrap_or(0);
    let plain = trimmed(&format!("{v:.decimals$}"));
    match stays && !plain.contains('.') {
        true => format!("{plain}.0"),
        false => plain,
    }
}

/// With `#` there is a point always.
fn with_point(text: String, always: bool) -> String {
    match (always && !text.contains('.'), text.split_once('e')) {
        (false, _) => text,
        (true, Some((digits, exponent))) => format!("{digits}.e{exponent}"),
        (true, None) => format!("{text}."),
    }
}

/// The number at `at`; `Some(None)` where there is none, `None` where it is too long.
fn digits(all: &[char], at: &mut usize) -> Option<Option<usize>> {
    let begin = *at;
    while all.get(*at).is_some_and(char::is_ascii_digit) {
        *at += 1;
    }
    let text: String = all[begin..*at].iter().collect();
    match text.is_empty() {
        true => Some(None),
        false => text.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: Shown, conversion: Option<char>, format: &str) -> String {
        match show(value, conversion, format) {
            Ok(s) => s,
            Err(Refused::Wrong(why)) => format!("wrong: {why}"),
            Err(Refused::Unknown(why)) => format!("unknown: {why}"),
        }
    }

    /// What Python 3.11 prints.
    #[test]
    fn integers() {
        let values = [0, -7, 255, 1234567, -1234567];
        let table: [(&str, [&str; 5]); 28] = [
            ("d", ["0", "-7", "255", "1234567", "-1234567"]),
            ("03d", ["000", "-07", "255", "1234567", "-1234567"]),
            ("5", ["    0", "   -7", "  255", "1234567", "-1234567"]),
            ("<5d", ["0    ", "-7   ", "255  ", "1234567", "-1234567"]),
            (">6", ["     0", "    -7", "   255", "1234567", "-1234567"]),
            ("^7d", ["   0   ", "  -7   ", "  255  ", "1234567", "-1234567"]),
            ("=+5", ["+   0", "-   7", "+ 255", "+1234567", "-1234567"]),
            ("*^9", ["****0****", "***-7****", "***255***", "*1234567*", "-1234567*"]),
            ("*=+9d", ["+*******0", "-*******7", "+*****255", "+*1234567", "-*1234567"]),
            ("+", ["+0", "-7", "+255", "+1234567", "-1234567"]),
            (" d", [" 0", "-7", " 255", " 1234567", "-1234567"]),
            ("x", ["0", "-7", "ff", "12d687", "-12d687"]),
            ("#x", ["0x0", "-0x7", "0xff", "0x12d687", "-0x12d687"]),
            ("#06X", ["0X0000", "-0X007", "0X00FF", "0X12D687", "-0X12D687"]),
            (
                "#010b",
                ["0b00000000", "-0b0000111", "0b11111111", "0b100101101011010000111", "-0b100101101011010000111"],
            ),
            ("#o", ["0o0", "-0o7", "0o377", "0o4553207", "-0o4553207"]),
            (",", ["0", "-7", "255", "1,234,567", "-1,234,567"]),
            ("_", ["0", "-7", "255", "1_234_567", "-1_234_567"]),
            ("_x", ["0", "-7", "ff", "12_d687", "-12_d687"]),
            ("_b", ["0", "-111", "1111_1111", "1_0010_1101_0110_1000_0111", "-1_0010_1101_0110_1000_0111"]),
            ("012,", ["0,000,000,000", "-000,000,007", "0,000,000,255", "0,001,234,567", "-001,234,567"]),
            ("011,", ["000,000,000", "-00,000,007", "000,000,255", "001,234,567", "-01,234,567"]),
            ("010_d", ["00_000_000", "-0_000_007", "00_000_255", "01_234_567", "-1_234_567"]),
            ("+012,", ["+000,000,000", "-000,000,007", "+000,000,255", "+001,234,567", "-001,234,567"]),
            ("<08", ["00000000", "-7000000", "25500000", "12345670", "-1234567"]),
            ("08_x", ["000_0000", "-00_0007", "000_00ff", "012_d687", "-12_d687"]),
            ("^012,d", ["000000000000", "00000-700000", "000025500000", "01,234,56700", "0-1,234,5670"]),
            ("*>08", ["*******0", "******-7", "*****255", "*1234567", "-1234567"]),
        ];
        for (format, all) in table {
            for (v, wanted) in values.into_iter().zip(all) {
                assert_eq!(shown(Shown::Integer(v), None, format), wanted, "{v} as {format}");
            }
        }
        assert_eq!(shown(Shown::Bool(true), None, "3d"), "  1");
        assert_eq!(shown(Shown::Bool(true), Some('s'), "6"), "True  ");
    }

    /// What Python 3.11 prints.
    #[test]
    fn integers_as_floats() {
        let values = [0, -7, 12345, 10_i128.pow(20)];
        let table = [
            (".2f", ["0.00", "-7.00", "12345.00", "100000000000000000000.00"]),
            ("e", ["0.000000e+00", "-7.000000e+00", "1.234500e+04", "1.000000e+20"]),
            (".3g", ["0", "-7", "1.23e+04", "1e+20"]),
            ("%", ["0.000000%", "-700.000000%", "1234500.000000%", "10000000000000000000000.000000%"]),
            ("g", ["0", "-7", "12345", "1e+20"]),
            ("G", ["0", "-7", "12345", "1E+20"]),
            ("#.3g", ["0.00", "-7.00", "1.23e+04", "1.00e+20"]),
            ("+.1e", ["+0.0e+00", "-7.0e+00", "+1.2e+04", "+1.0e+20"]),
            ("010.1f", ["00000000.0", "-0000007.0", "00012345.0", "100000000000000000000.0"]),
            (",.2f", ["0.00", "-7.00", "12,345.00", "100,000,000,000,000,000,000.00"]),
            ("_.1f", ["0.0", "-7.0", "12_345.0", "100_000_000_000_000_000_000.0"]),
            ("n", ["0", "-7", "12345", "100000000000000000000"]),
            ("#.0f", ["0.", "-7.", "12345.", "100000000000000000000."]),
            ("#.0e", ["0.e+00", "-7.e+00", "1.e+04", "1.e+20"]),
            (".0e", ["0e+00", "-7e+00", "1e+04", "1e+20"]),
            ("012,.1f", ["00,000,000.0", "-0,000,007.0", "00,012,345.0", "100,000,000,000,000,000,000.0"]),
        ];
        for (format, all) in table {
            for (v, wanted) in values.into_iter().zip(all) {
                assert_eq!(shown(Shown::Integer(v), None, format), wanted, "{v} as {format}");
            }
        }
        for (format, wanted) in [("c", "A"), ("5c", "    A"), ("<3c", "A  "), ("05c", "0000A"), ("^5c", "  A  ")] {
            assert_eq!(shown(Shown::Integer(65), None, format), wanted, "{format}");
        }
    }

    /// What Python 3.11 prints.
    #[test]
    fn floats() {
        let values = [0.0, -0.5, 6.5, 1_234_567.891, 1e-7, 1e16, 2.5, 0.25];
        let table = [
            ("", ["0.0", "-0.5", "6.5", "1234567.891", "1e-07", "1e+16", "2.5", "0.25"]),
            (".3", ["0.0", "-0.5", "6.5", "1.23e+06", "1e-07", "1e+16", "2.5", "0.25"]),
            (".2f", ["0.00", "-0.50", "6.50", "1234567.89", "0.00", "10000000000000000.00", "2.50", "0.25"]),
            (
                "e",
                [
                    "0.000000e+00",
                    "-5.000000e-01",
                    "6.500000e+00",
                    "1.234568e+06",
                    "1.000000e-07",
                    "1.000000e+16",
                    "2.500000e+00",
                    "2.500000e-01",
                ],
            ),
            ("g", ["0", "-0.5", "6.5", "1.23457e+06", "1e-07", "1e+16", "2.5", "0.25"]),
            (
                "8.1f",
                [
                    "     0.0",
                    "    -0.5",
                    "     6.5",
                    "1234567.9",
                    "     0.0",
                    "10000000000000000.0",
                    "     2.5",
                    "     0.2",
                ],
            ),
            (".0f", ["0", "-0", "6", "1234568", "0", "10000000000000000", "2", "0"]),
            (".1f", ["0.0", "-0.5", "6.5", "1234567.9", "0.0", "10000000000000000.0", "2.5", "0.2"]),
            (
                "%",
                [
                    "0.000000%",
                    "-50.000000%",
                    "650.000000%",
                    "123456789.100000%",
                    "0.000010%",
                    "1000000000000000000.000000%",
                    "250.000000%",
                    "25.000000%",
                ],
            ),
            (",.1f", ["0.0", "-0.5", "6.5", "1,234,567.9", "0.0", "10,000,000,000,000,000.0", "2.5", "0.2"]),
            ("+", ["+0.0", "-0.5", "+6.5", "+1234567.891", "+1e-07", "+1e+16", "+2.5", "+0.25"]),
            ("_", ["0.0", "-0.5", "6.5", "1_234_567.891", "1e-07", "1e+16", "2.5", "0.25"]),
            (".1", ["0e+00", "-0.5", "6e+00", "1e+06", "1e-07", "1e+16", "2e+00", "0.2"]),
            ("#.3", ["0.00", "-0.500", "6.50", "1.23e+06", "1.00e-07", "1.00e+16", "2.50", "0.250"]),
            (
                "012,",
                [
                    "00,000,000.0",
                    "-0,000,000.5",
                    "00,000,006.5",
                    "1,234,567.891",
                    "0,000,001e-07",
                    "0,000,001e+16",
                    "00,000,002.5",
                    "0,000,000.25",
                ],
            ),
            ("n", ["0", "-0.5", "6.5", "1.23457e+06", "1e-07", "1e+16", "2.5", "0.25"]),
            (
                "<9.1e",
                [
                    "0.0e+00  ",
                    "-5.0e-01 ",
                    "6.5e+00  ",
                    "1.2e+06  ",
                    "1.0e-07  ",
                    "1.0e+16  ",
                    "2.5e+00  ",
                    "2.5e-01  ",
                ],
            ),
        ];
        for (format, all) in table {
            for (v, wanted) in values.into_iter().zip(all) {
                assert_eq!(shown(Shown::Float(v), None, format), wanted, "{v} as {format}");
            }
        }
        let (inf, none) = (f64::INFINITY, f64::NAN);
        for (v, format, wanted) in
            [(inf, "06", "000inf"), (-inf, "F", "-INF"), (none, "+.2f", "+nan"), (inf, "%", "inf%"), (-inf, "", "-inf")]
        {
            assert_eq!(shown(Shown::Float(v), None, format), wanted, "{v} as {format}");
        }
    }

    #[test]
    fn texts() {
        let table = [
            ("ab", "5", "ab   "),
            ("ab", ">5s", "   ab"),
            ("ab", "^5", " ab  "),
            ("ab", "*<5", "ab***"),
            ("abcd", ".2", "ab"),
            ("abcd", ">6.3s", "   abc"),
            ("ab", "05", "ab000"),
            ("", "3", "   "),
            ("ab", "0>4", "00ab"),
        ];
        for (s, format, wanted) in table {
            assert_eq!(shown(Shown::Text(s.to_string()), None, format), wanted, "{s} as {format}");
        }
        for (s, wanted) in [("a", "'a'"), ("it's", "\"it's\""), ("say \"x\"", "'say \"x\"'"), ("'\"\\", "'\\'\"\\\\'")]
        {
            assert_eq!(shown(Shown::Text(s.to_string()), Some('r'), ""), wanted);
        }
        assert_eq!(shown(Shown::Object("n".to_string()), Some('r'), ">3"), "  n");
    }

    #[test]
    fn no_formats() {
        let int = || Shown::Integer(5);
        let text = || Shown::Text("a".to_string());
        for (value, format) in [
            (int(), "- d"),
            (int(), ".2d"),
            (int(), ".2"),
            (int(), "s"),
            (int(), ",x"),
            (int(), "."),
            (int(), "dd"),
            (int(), "3.d"),
            (text(), "d"),
            (text(), "=5"),
            (text(), "+5"),
            (text(), ","),
            (Shown::Object("n".to_string()), "3"),
            (Shown::Object("None".to_string()), "s"),
        ] {
            let said = shown(value, None, format);
            assert!(said.starts_with("wrong: "), "{format}: {said}");
        }
        for (value, format) in [(Shown::Integer(-1), "c"), (int(), "+c"), (int(), ",n"), (Shown::Float(1.0), "d")] {
            let said = shown(value, None, format);
            assert!(said.starts_with("wrong: "), "{format}: {said}");
        }
        let said = shown(int(), None, "9999d");
        assert!(said.starts_with("unknown: "), "{said}");
    }
}
