use super::*;

fn messages(text: &str) -> Vec<String> {
    let (_, d) = parse(FileId(0), text);
    d.list.iter().map(|d| format!("{}: {}", line(text, d.span()), d.message)).collect()
}

fn line(text: &str, span: Span) -> usize {
    text[..(span.lo as usize).min(text.len())].matches('\n').count() + 1
}

#[test]
fn nothing_is_no_module() {
    assert_eq!(messages(""), ["1: the text holds no module"]);
}
