//! The page's static files (`web/` at the root of the project), embedded in the program without a build step.

/// A file of the page.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Its path below the page.
    pub path: &'static str,
    /// What browsers are told that it is.
    pub kind: &'static str,
    /// The contents of the file.
    pub bytes: &'static [u8],
}

/// The page.
pub const PAGE: &str = include_str!("../../../web/index.html");

/// The media type of scripts.
pub const SCRIPT: &str = "text/javascript; charset=utf-8";
/// The media type of styles.
pub const STYLE: &str = "text/css; charset=utf-8";

macro_rules! asset {
    ($path:literal, $kind:expr) => {
        Asset { path: $path, kind: $kind, bytes: include_bytes!(concat!("../../../web/", $path)) }
    };
}

/// What all pages of Keyhush load.
pub static SHARED: [Asset; 7] = [
    asset!("chart.js", SCRIPT),
    asset!("components.css", STYLE),
    asset!("components.js", SCRIPT),
    asset!("icon.svg", "image/svg+xml"),
    asset!("uplot/uPlot.iife.min.js", SCRIPT),
    asset!("uplot/uPlot.min.css", STYLE),
    asset!("uplot/LICENSE", "text/plain; charset=utf-8"),
];

/// What this page alone loads.
static OWN: [Asset; 3] = [asset!("board.css", STYLE), asset!("board.js", SCRIPT), asset!("source.js", SCRIPT)];

/// Everything that the page loads.
pub fn assets() -> impl Iterator<Item = &'static Asset> {
    OWN.iter().chain(&SHARED)
}

/// What browsers let the page do: load files from its own folder, and send requests to its own server.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'";

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// The most bytes of the page and all that it loads, each file compressed by itself as a server would send it.
    const MOST: usize = 60_000;

    #[test]
    fn the_page_is_small() {
        let size = |bytes: &[u8]| {
            let mut gz = GzEncoder::new(Vec::new(), Compression::best());
            gz.write_all(bytes).unwrap();
            gz.finish().unwrap().len()
        };
        let all = assets().map(|asset| asset.bytes).chain([PAGE.as_bytes()]);
        let total: usize = all.map(size).sum();
        assert!((1000..MOST).contains(&total), "{total} bytes compressed; {MOST} are the most");
    }

    /// Everything that the page names is there, and nothing of it comes from elsewhere.
    #[test]
    fn the_page_loads_what_is_here_and_nothing_else() {
        let named = |attribute: &str| {
            let parts: Vec<&str> = PAGE.split(&format!("{attribute}=\"")).skip(1).collect();
            parts.into_iter().filter_map(|rest| rest.split('"').next()).collect::<Vec<_>>()
        };
        let files: Vec<&str> = [named("src"), named("href")].concat();
        let files: Vec<&str> = files.into_iter().filter(|file| !file.starts_with('#')).collect();
        assert!(files.len() >= 8, "{files:?}");
        for file in &files {
            assert!(assets().any(|asset| asset.path == *file), "{file} is not embedded");
        }
        assert!(!PAGE.contains("style=") && !PAGE.contains("<script>"), "the policy would refuse it");
        for asset in assets().filter(|asset| !asset.path.starts_with("uplot/")) {
            let text = String::from_utf8_lossy(asset.bytes).replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("://"), "{} names another place", asset.path);
        }
    }
}
