//! The files of the dashboard (`web/`), embedded in the program without a build step.

use board::web::{Asset, SCRIPT, SHARED, STYLE};

macro_rules! asset {
    ($path:literal, $kind:expr) => {
        Asset { path: $path, kind: $kind, bytes: include_bytes!(concat!("../../../../web/", $path)) }
    };
}

/// The page.
static PAGE: Asset =
    Asset { path: "", kind: "text/html; charset=utf-8", bytes: include_bytes!("../../../../web/dashboard.html") };

static OWN: [Asset; 4] = [
    asset!("access.js", SCRIPT),
    asset!("dashboard.css", STYLE),
    asset!("dashboard.js", SCRIPT),
    asset!("operations.js", SCRIPT),
];

/// The page, and everything that it loads.
pub(crate) fn assets() -> impl Iterator<Item = &'static Asset> {
    [&PAGE].into_iter().chain(&OWN).chain(&SHARED)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// The most bytes of the page and all that it loads, each file compressed by itself as a server would send it.
    const MOST: usize = 60_000;

    #[test]
    fn the_page_is_small() {
        let size = |asset: &Asset| {
            let mut gz = GzEncoder::new(Vec::new(), Compression::best());
            gz.write_all(asset.bytes).unwrap();
            gz.finish().unwrap().len()
        };
        let total: usize = assets().map(size).sum();
        assert!((10_000..MOST).contains(&total), "{total} bytes compressed; {MOST} are the most");
    }

    /// Everything that the page names is there, and nothing of it comes from elsewhere.
    #[test]
    fn the_page_loads_what_is_here_and_nothing_else() {
        let page = str::from_utf8(PAGE.bytes).unwrap();
        let named = |attribute: &str| {
            let rests = page.split(&format!("{attribute}=\"")).skip(1).map(str::to_owned).collect::<Vec<_>>();
            rests.into_iter().filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect::<Vec<_>>()
        };
        let files: Vec<String> = [named("src"), named("href")].concat();
        let files: Vec<String> = files.into_iter().filter(|file| !file.starts_with('#')).collect();
        assert!(files.len() >= 9, "{files:?}");
        for file in &files {
            assert!(assets().any(|asset| asset.path == *file), "{file} is not embedded");
        }
        assert!(
            !page.contains("style=") && !page.contains("<script>") && !page.contains("onclick"),
            "the policy refuses it"
        );
        for asset in assets().filter(|asset| !asset.path.starts_with("uplot/")) {
            let text = String::from_utf8_lossy(asset.bytes).replace("http://www.w3.org/2000/svg", "");
            assert!(
                !text.contains("://") && !text.contains("innerHTML"),
                "{} names another place, or makes markup",
                asset.path
            );
        }
    }
}
