//! Static archives in the common `ar` format (GNU), with a symbol index.

use object::{Object, ObjectSymbol};

/// An archive of `members` (file name, bytes). Deterministic: no times, no owners.
pub fn write(members: &[(&str, &[u8])]) -> Vec<u8> {
    let symbols: Vec<Vec<String>> = members.iter().map(|(_, bytes)| defined(bytes)).collect();
    let names: Vec<u8> = members.iter().flat_map(|(n, _)| format!("{n}/\n").into_bytes()).collect();
    let count: usize = symbols.iter().map(Vec::len).sum();
    let strings: usize = symbols.iter().flatten().map(|s| s.len() + 1).sum();
    let index_size = even(4 + 4 * count + strings);
    let mut at = 8 + 60 + index_size + 60 + even(names.len());
    let mut offsets = vec![];
    for (_, bytes) in members {
        offsets.push(at as u32);
        at += 60 + even(bytes.len());
    }
    let mut out = b"!<arch>\n".to_vec();
    let mut index = (count as u32).to_be_bytes().to_vec();
    for (list, offset) in symbols.iter().zip(&offsets) {
        list.iter().for_each(|_| index.extend(offset.to_be_bytes()));
    }
    for s in symbols.iter().flatten() {
        index.extend(s.as_bytes());
        index.push(0);
    }
    index.resize(index_size, 0);
    member(&mut out, "/", &index);
    member(&mut out, "//", &names);
    let mut name_at = 0;
    for (n, bytes) in members {
        member(&mut out, &format!("/{name_at}"), bytes);
        name_at += n.len() + 2;
    }
    out
}

/// Global symbols that an object defines.
fn defined(bytes: &[u8]) -> Vec<String> {
    let Ok(file) = object::File::parse(bytes) else { return vec![] };
    let global = file.symbols().filter(|s| s.is_global() && s.is_definition());
    global.filter_map(|s| s.name().ok().map(str::to_string)).collect()
}

fn even(n: usize) -> usize {
    n + n % 2
}

fn member(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    out.extend(format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, bytes.len()).as_bytes());
    out.extend(bytes);
    if bytes.len() % 2 == 1 {
        out.push(b'\n');
    }
}
