//! What Python's `format` makes of a value in a field of a formatted string: `{n:03d}`, `{name!r:>8}`.
//!
//! Source: Python's library reference, "Format Specification Mini-Language".

/// A value that has a text.
pub enum Shown {
    Integer(i128),
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
        Shown::Text(s) => f.text(&s, format),
    }
}

fn plain(value: Shown) -> String {
    match value {
        Shown::Integer(v) => v.to_string(),
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
            Some('b') => (format!("{size:b}"), "0b", 4),
            Some('o') => (format!("{size:o}"), "0o", 4),
            Some('x') => (format!("{size:x}"), "0x", 4),
            Some('X') => (format!("{size:X}"), "0X", 4),
            Some(k @ ('c' | 'n' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%')) => {
                return Err(Refused::Unknown(format!("`{format}`: integers as `{k}` have no text here")))
            }
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
        let sign = match (v < 0, self.sign) {
            (true, _) => "-",
            (false, Some('+')) => "+",
            (false, Some(' ')) => " ",
            _ => "",
        };
        let head = format!("{sign}{}", if self.prefix { prefix } else { "" });
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
            while head.len() + grouped(&digits).len() < self.width {
                digits.insert(0, '0');
            }
        }
        Ok(self.padded(&head, &grouped(&digits), fill, align))
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
        for (value, format) in [(int(), ".2f"), (int(), "c"), (int(), "9999d")] {
            let said = shown(value, None, format);
            assert!(said.starts_with("unknown: "), "{format}: {said}");
        }
    }
}
