//! Looks at a page without a browser, for tests.

use serde_json::Value;

/// Whether every element of the page is closed where it should be.
pub(crate) fn nested(page: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").ok_or("no doctype")?;
    while let Some((_, tag)) = rest.split_once('<') {
        if let Some(comment) = tag.strip_prefix("!--") {
            rest = comment.split_once("-->").ok_or("an open comment")?.1;
            continue;
        }
        let (inside, after) = tag.split_once('>').ok_or("an open tag")?;
        let name = inside.split(' ').next().unwrap_or_default();
        rest = after;
        if let Some(closed) = name.strip_prefix('/') {
            let last = open.pop();
            if last != Some(closed) {
                return Err(format!("</{closed}> inside {last:?}"));
            }
        } else if matches!(name, "script" | "style") {
            // Their text is no markup.
            let end = format!("</{name}>");
            rest = after.split_once(&end).ok_or("an open script")?.1;
        } else if !matches!(name, "meta" | "link") {
            open.push(name);
        }
    }
    match open.is_empty() {
        true => Ok(()),
        false => Err(format!("left open: {open:?}")),
    }
}

/// The specifications of all charts; each must lie beside a place of its own.
pub(crate) fn charts(page: &str) -> Vec<Value> {
    let sources = page.split(" data-chart=\"").skip(1);
    let read = |rest: &str| {
        let (id, rest) = rest.split_once('"').expect("an id in quotes");
        assert_eq!(
            page.matches(&format!("<div class=\"chart\" id=\"{id}\" "))
                .count(),
            1,
            "{id}"
        );
        let text = rest.split_once('>').expect("a tag ends").1;
        let text = text.split_once("</script>").expect("a script ends").0;
        serde_json::from_str(text).expect("a specification is JSON")
    };
    sources.map(read).collect()
}

#[test]
fn a_page_with_an_element_left_open_is_not_well_formed() {
    assert_eq!(
        nested("<!DOCTYPE html><p>a<!-- <b> --><i>b</i></p>"),
        Ok(())
    );
    assert!(nested("<!DOCTYPE html><p>a<i>b</p></i>").is_err());
    assert!(nested("<!DOCTYPE html><p>a").is_err());
}
