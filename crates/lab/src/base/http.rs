//! Small HTTP requests: enough to ask a server for its health and its metrics, and to make rooms.

use crate::base::Url;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status, such as `200`.
    pub status: String,
    /// The lines before the body.
    head: String,
    /// The body.
    pub body: String,
}

impl Answer {
    /// A header's value; `name` in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let (_, value) = headers.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(value.trim())
    }
}

/// An answer may be so long.
const MAX_BYTES: u64 = 4 << 20;

/// Gets a page as text. HTTP/1.0, so that the answer is not chunked.
///
/// # Errors
/// No connection, no answer in time, another status than 200, or no text.
pub async fn get(url: &Url, path: &str, timeout: Duration) -> io::Result<String> {
    get_with(url, path, None, timeout).await
}

/// The same with a token, where the server wants one (`Authorization: Bearer`).
///
/// # Errors
/// As of [`get`].
pub async fn get_with(
    url: &Url,
    path: &str,
    token: Option<&str>,
    timeout: Duration,
) -> io::Result<String> {
    let bearer = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let (what, headers) = (format!("GET {path}"), bearer.unwrap_or_default());
    match ask(url, &what, &headers, "", timeout).await? {
        Answer { status, body, .. } if status == "200" => Ok(body),
        Answer { status, .. } => Err(io::Error::other(format!("status {status}"))),
    }
}

/// Gets a page with a status of any kind.
///
/// # Errors
/// No connection, no answer in time, or no text.
pub async fn answer(url: &Url, path: &str, timeout: Duration) -> io::Result<Answer> {
    ask(url, &format!("GET {path}"), "", "", timeout).await
}

/// Posts something: its type, and itself.
///
/// # Errors
/// No connection, no answer in time, or no text.
pub async fn post(
    url: &Url,
    path: &str,
    (kind, body): (&str, &str),
    timeout: Duration,
) -> io::Result<Answer> {
    let length = body.len();
    let headers = format!("Content-Type: {kind}\r\nContent-Length: {length}\r\n");
    ask(url, &format!("POST {path}"), &headers, body, timeout).await
}

/// Deletes something.
///
/// # Errors
/// No connection, no answer in time, or no text.
pub async fn delete(url: &Url, path: &str, timeout: Duration) -> io::Result<Answer> {
    ask(url, &format!("DELETE {path}"), "", "", timeout).await
}

/// Asks for something by method and path.
async fn ask(
    url: &Url,
    what: &str,
    headers: &str,
    body: &str,
    timeout: Duration,
) -> io::Result<Answer> {
    let request = async {
        let mut stream = TcpStream::connect(url.authority()).await?;
        let host = url.authority();
        let text = format!("{what} HTTP/1.0\r\nHost: {host}\r\n{headers}\r\n{body}");
        stream.write_all(text.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MAX_BYTES).read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    let answer = tokio::time::timeout(timeout, request)
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))??;
    let text = String::from_utf8(answer).map_err(io::Error::other)?;
    let (head, body) =
        text.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("the answer is not HTTP"))?;
    let status = head.lines().next().and_then(|line| line.split_whitespace().nth(1));
    let status = status.unwrap_or("unknown").to_owned();
    Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn body_status_and_silence() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        let url = Url { host: "127.0.0.1".into(), port };
        tokio::spawn(async move {
            let mut held = Vec::new();
            for answer in
                ["HTTP/1.1 200 OK\r\nA: b\r\n\r\nhello\n", "HTTP/1.1 404 No\r\nA: b\r\n\r\n", "x"]
            {
                let (mut stream, _) = listener.accept().await.expect("accept");
                let mut buffer = [0u8; 512];
                let n = stream.read(&mut buffer).await.expect("read");
                assert!(buffer[..n].starts_with(b"GET /metrics HTTP/1.0\r\n"));
                stream.write_all(answer.as_bytes()).await.expect("write");
            }
            let (stream, _) = listener.accept().await.expect("accept");
            held.push(stream);
            std::future::pending::<()>().await;
        });
        let long = Duration::from_secs(10);
        assert_eq!(get(&url, "/metrics", long).await.expect("200"), "hello\n");
        let absent = answer(&url, "/metrics", long).await.expect("404");
        assert_eq!((absent.status.as_str(), absent.header("a")), ("404", Some("b")));
        assert!(get(&url, "/metrics", long).await.is_err(), "not HTTP");
        let error = get(&url, "/metrics", Duration::from_millis(50)).await.expect_err("silence");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
