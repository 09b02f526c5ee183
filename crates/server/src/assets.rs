//! The call page and the console, embedded by `build.rs`.

use axum::body::Bytes;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use include_dir::{Dir, include_dir};

static APP: Dir<'static> = include_dir!("$OUT_DIR/app");

/// Files whose names hold a hash of their content never change.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

/// The pages of a server, which name all they load below its base path.
#[derive(Debug)]
pub(crate) struct Pages {
    index: Bytes,
    console: Bytes,
}

impl Pages {
    /// `base` begins and ends with a slash.
    pub(crate) fn below(base: &str) -> Self {
        let page = |name: &str| {
            let file = APP.get_file(name).and_then(|file| file.contents_utf8());
            Bytes::from(file.unwrap_or_default().replace("\"./", &format!("\"{base}")))
        };
        Self { index: page("index.html"), console: page("console.html") }
    }

    /// The call page itself.
    pub(crate) fn index(&self) -> Response {
        shown(&self.index)
    }

    /// The console.
    pub(crate) fn console(&self) -> Response {
        shown(&self.console)
    }
}

fn shown(page: &Bytes) -> Response {
    let content_type = HeaderValue::from_static(content_type("index.html"));
    ([(CONTENT_TYPE, content_type), (CACHE_CONTROL, REVALIDATE)], page.clone()).into_response()
}

/// An embedded file by its path under `web/app/dist` or `web/console/dist`, or 404. Only embedded files can be
/// reached: the path is looked up in a table, never in a file system.
pub(crate) fn file(path: &str) -> Response {
    let Some(file) = APP.get_file(path) else {
        return (StatusCode::NOT_FOUND, "not found\n").into_response();
    };
    let caching = if path.starts_with("assets/") { IMMUTABLE } else { REVALIDATE };
    let content_type = HeaderValue::from_static(content_type(path));
    ([(CONTENT_TYPE, content_type), (CACHE_CONTROL, caching)], file.contents()).into_response()
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension).unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" | "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "webp" => "image/webp",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "wasm" => "application/wasm",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_are_always_embedded() {
        for name in ["index.html", "console.html"] {
            let page = APP.get_file(name).and_then(|file| file.contents_utf8()).unwrap();
            assert!(page.contains("<html"), "{name}");
        }
        let pages = Pages::below("/");
        for page in [pages.index(), pages.console()] {
            assert_eq!(page.status(), StatusCode::OK);
            assert_eq!(page.headers()[CACHE_CONTROL], "no-cache");
        }
    }

    #[test]
    fn pages_load_what_is_below_the_base_path() {
        let text = |page: &Bytes| String::from_utf8(page.to_vec()).unwrap();
        let (top, below) = (Pages::below("/"), Pages::below("/calls/"));
        for (at_top, at_path) in [(&top.index, &below.index), (&top.console, &below.console)] {
            let (at_top, at_path) = (text(at_top), text(at_path));
            assert!(!at_top.contains("\"./") && !at_path.contains("\"./"));
            assert_eq!(
                at_path.matches("\"/calls/assets/").count(),
                at_top.matches("\"/assets/").count()
            );
            assert!(!at_path.contains("\"/assets/"));
        }
    }

    #[test]
    fn nothing_but_the_page_can_be_reached() {
        for path in ["", "nothing.js", "../../Cargo.toml", "/etc/passwd", "assets/../index.html"] {
            assert_eq!(file(path).status(), StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn content_types() {
        assert_eq!(content_type("assets/index-Ab12.js"), "text/javascript; charset=utf-8");
        assert_eq!(content_type("favicon.svg"), "image/svg+xml");
        assert_eq!(content_type("strange"), "application/octet-stream");
    }
}
