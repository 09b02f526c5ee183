//! A server of streams in miniature: it answers every offer alike.

use crate::base::Url;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Its answer: it sends sound and no picture.
pub const ANSWER: &str = "v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=sendonly\r\n\
                          m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:1\r\na=inactive\r\n";

#[derive(Debug, Default)]
pub struct FakeStreams {
    asked: Mutex<Vec<String>>,
    /// So many times to come, a stream that is asked for is not there.
    pub absent: Mutex<u32>,
    /// Whether streams that are asked for are refused.
    pub refuses: Mutex<bool>,
}

impl FakeStreams {
    /// Starts one; it ends with the test's runtime.
    pub async fn start() -> (Arc<Self>, Url) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        let fake = Arc::new(Self::default());
        let server = Arc::clone(&fake);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let server = Arc::clone(&server);
                tokio::spawn(async move {
                    let request = read(&mut stream).await;
                    let answer = server.answer(&request);
                    stream.write_all(answer.as_bytes()).await.expect("write");
                });
            }
        });
        (fake, Url { host: "127.0.0.1".into(), port })
    }

    fn answer(&self, request: &str) -> String {
        let mut words = request.split(' ');
        let (method, path) = (words.next().expect("a method"), words.next().expect("a path"));
        let told = request.contains("a=candidate:");
        let told = if method == "POST" && told { ", with candidates" } else { "" };
        self.asked.lock().expect("asked").push(format!("{method} {path}{told}"));
        let mut absent = self.absent.lock().expect("absent");
        match path.ends_with("whep") {
            true if *self.refuses.lock().expect("refuses") => {
                "HTTP/1.0 403 Forbidden\r\n\r\nnot for you".into()
            }
            true if *absent > 0 => {
                *absent -= 1;
                "HTTP/1.0 404 Not Found\r\n\r\nno stream".into()
            }
            _ => format!("HTTP/1.0 201 Created\r\nLocation: {path}/1\r\n\r\n{ANSWER}"),
        }
    }

    /// What it was asked for since the last call.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().expect("asked"))
    }
}

async fn read(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    loop {
        let mut buffer = [0; 4096];
        let n = stream.read(&mut buffer).await.expect("read");
        text += std::str::from_utf8(&buffer[..n]).expect("text");
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        if n == 0 || body.len() >= length.map_or(0, |length| length.parse().expect("a length")) {
            return text;
        }
    }
}
