//! HTTP and sockets as a client on the wire sees them.

use futures_util::{SinkExt, StreamExt};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use server::auth::Auth;
use server::config::Config;
use server::http::{Http, HttpError};
use server::metrics::Metrics;
use server::socket::{Application, Socket, SocketOptions, Sockets};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use wire::{ErrorCode, RoomError};

/// Long enough for a loaded machine: reached only where the awaited thing never comes.
const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come"),
    }
}

/// An application that echoes, waits, publishes and fails as it is told.
#[derive(Default)]
struct Tester {
    sockets: Mutex<Vec<Arc<Socket>>>,
    closed: AtomicUsize,
    running: AtomicUsize,
    overlaps: AtomicUsize,
    refused: Notify,
}

impl Application for Tester {
    async fn call(
        &self,
        socket: &Arc<Socket>,
        event: &str,
        data: Option<&RawValue>,
    ) -> Result<Option<Box<RawValue>>, RoomError> {
        let data: Value =
            data.map_or(Value::Null, |data| serde_json::from_str(data.get()).unwrap());
        match event {
            "echo" => Ok(Some(serde_json::value::to_raw_value(&data).unwrap())),
            "nothing" => Ok(None),
            "keep" => {
                socket.set_state(data.to_string());
                self.sockets.lock().unwrap().push(socket.clone());
                Ok(None)
            }
            "kept" => {
                let kept = socket.state_of::<String>().map(|kept| kept.to_string());
                Ok(kept.map(|kept| RawValue::from_string(kept).unwrap()))
            }
            "yielding" => {
                if self.running.fetch_add(1, SeqCst) > 0 {
                    self.overlaps.fetch_add(1, SeqCst);
                }
                tokio::task::yield_now().await;
                self.running.fetch_sub(1, SeqCst);
                Ok(None)
            }
            "publish" => {
                socket.publish("room:x", &data.to_string());
                Ok(None)
            }
            "flood" => {
                // Until the bound is reached; a client that reads would make this endless, so
                // there is an end to it.
                let message = format!("\"{}\"", "x".repeat(10_000));
                for _ in 0..100_000 {
                    if !socket.publish("room:x", &message) {
                        self.refused.notify_one();
                        break;
                    }
                    // The writer runs, until the system's buffers are full too.
                    tokio::task::yield_now().await;
                }
                Ok(None)
            }
            "panic" => panic!("asked to"),
            _ => Err(RoomError::new(ErrorCode::UnknownEvent, format!("no such event: {event}"))),
        }
    }

    fn closed(&self, _: &Arc<Socket>) {
        self.closed.fetch_add(1, SeqCst);
    }

    fn may_subscribe(&self, _: &Arc<Socket>, channel: &str) -> bool {
        channel == "room:x"
    }
}

struct Running {
    address: SocketAddr,
    tester: Arc<Tester>,
    sockets: Arc<Sockets<Tester>>,
    metrics: Arc<Metrics>,
    end: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), HttpError>>,
}

fn options() -> SocketOptions {
    SocketOptions::from(&Config::development().limits)
}

fn config() -> Config {
    let mut config = Config::development();
    config.http.bind = vec!["127.0.0.1:0".parse().unwrap()];
    config
}

fn start(config: &Config, options: SocketOptions) -> Running {
    let http = Http::bind(config).unwrap();
    let address = http.addresses()[0];
    let (tester, metrics) = (Arc::new(Tester::default()), Arc::new(Metrics::new()));
    let auth = Arc::new(Auth::development());
    let sockets = Sockets::new(tester.clone(), options, auth, metrics.clone());
    let (end, ended) = oneshot::channel();
    let serving = http.serve(sockets.clone(), metrics.clone(), async {
        let _ = ended.await;
    });
    let serving = tokio::spawn(serving);
    Running { address, tester, sockets, metrics, end, serving }
}

impl Running {
    fn drops(&self, reason: &str) -> u64 {
        self.metrics.drops("signaling", reason).get()
    }

    async fn raw(&self) -> Client {
        let url = format!("ws://{}/socketcluster/", self.address);
        Client(connect_async(url).await.unwrap().0)
    }

    async fn client(&self) -> Client {
        let mut client = self.raw().await;
        client.send(r##"{"event":"#handshake","data":{"authToken":null},"cid":1}"##).await;
        let answer = client.json().await;
        assert_eq!(answer["rid"], 1);
        client
    }

    /// GET: status line, headers, body.
    async fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        soon("the answer", stream.read_to_string(&mut answer)).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), body.to_owned())
    }
}

struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    async fn send(&mut self, text: impl AsRef<str>) {
        self.0.send(Message::text(text.as_ref())).await.unwrap();
    }

    /// The next frame that is not a heartbeat.
    async fn json(&mut self) -> Value {
        loop {
            match soon("a frame", self.0.next()).await {
                Some(Ok(Message::Text(text))) if text.is_empty() => {}
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                other => panic!("{other:?} instead of a text frame"),
            }
        }
    }

    async fn call(&mut self, event: &str, data: Value, cid: u64) -> Value {
        self.send(json!({"event": event, "data": data, "cid": cid}).to_string()).await;
        let answer = self.json().await;
        assert_eq!(answer["rid"], cid, "{answer}");
        answer
    }

    /// The close code, whatever comes before it.
    async fn close_code(&mut self) -> u16 {
        loop {
            match soon("a close", self.0.next()).await {
                Some(Ok(Message::Close(Some(frame)))) => return frame.code.into(),
                Some(Ok(_)) => {}
                other => panic!("{other:?} instead of a close frame"),
            }
        }
    }
}

#[tokio::test]
async fn the_handshake_gives_an_id() {
    let server = start(&config(), options());
    let mut client = server.raw().await;
    client.send("").await;
    client.send(r##"[{"event":"#handshake","cid":1},{"event":"echo","data":7,"cid":2}]"##).await;
    let answer = client.json().await;
    assert_eq!(answer["rid"], 1);
    assert_eq!(answer["data"]["id"].as_str().unwrap().len(), 20);
    assert_eq!(answer["data"]["pingTimeout"], 30_000);
    assert_eq!(answer["data"]["isAuthenticated"], false);
    assert_eq!(answer["data"].get("authError"), None);
    assert_eq!(client.json().await, json!({"rid": 2, "data": 7}));
    assert_eq!((server.metrics.sockets.get(), server.sockets.open()), (1, 1));
    let second = client.call("#handshake", json!({}), 3).await;
    assert_eq!(second["error"]["code"], "bad_request");
}

#[tokio::test]
async fn a_stale_token_is_taken_back() {
    let server = start(&config(), options());
    let mut client = server.raw().await;
    client.send(r##"{"event":"#handshake","data":{"authToken":"x.y.z"},"cid":1}"##).await;
    let answer = client.json().await;
    assert_eq!(answer["data"]["authError"]["name"], "AuthTokenInvalidError");
    assert_eq!(client.json().await, json!({"event": "#removeAuthToken"}));
    client.send(r##"{"event":"#authenticate","data":"x.y.z","cid":2}"##).await;
    assert_eq!(client.json().await["error"]["name"], "AuthTokenInvalidError");
    assert_eq!(client.json().await["event"], "#removeAuthToken");
}

#[tokio::test]
async fn anything_before_the_handshake_closes() {
    let server = start(&config(), options());
    for first in [r#"{"event":"echo","cid":1}"#, "{", "[7]", r#"{"rid":1}"#] {
        let mut client = server.raw().await;
        client.send(first).await;
        assert_eq!(client.close_code().await, 4009, "{first}");
    }
    let mut client = server.raw().await;
    client.0.send(Message::binary(vec![1])).await.unwrap();
    assert_eq!(client.close_code().await, 4009);
    let mut client = server.raw().await;
    client.send(r##"{"event":"#handshake","data":7,"cid":1}"##).await;
    assert_eq!(client.close_code().await, 4008);
    assert_eq!(server.tester.closed.load(SeqCst), 0, "the application never knew them");
}

#[tokio::test]
async fn silence_closes() {
    let short = Duration::from_millis(50);
    let server = start(&config(), SocketOptions { handshake_timeout: short, ..options() });
    assert_eq!(server.raw().await.close_code().await, 4005);
    let server = start(&config(), SocketOptions { ping_timeout: short, ..options() });
    assert_eq!(server.client().await.close_code().await, 4001);
    assert!(server.metrics.render().contains("moim_sockets_closed_total{code=\"4001\"} 1"));
}

#[tokio::test]
async fn empty_frames_are_the_heartbeat() {
    let options = SocketOptions {
        ping_interval: Duration::from_millis(20),
        ping_timeout: Duration::from_secs(2),
        ..options()
    };
    let server = start(&config(), options);
    let mut client = server.client().await;
    // Answered for longer than the timeout, the socket lives.
    for _ in 0..120 {
        let beat = soon("a heartbeat", client.0.next()).await.unwrap().unwrap();
        assert_eq!(beat, Message::text(""));
        client.send("").await;
    }
    assert_eq!(client.call("echo", json!(1), 2).await["data"], 1);
}

#[tokio::test]
async fn calls_and_transmits() {
    let server = start(&config(), options());
    let mut client = server.client().await;
    assert_eq!(
        client.call("echo", json!({"a": [1, "ü"]}), 2).await["data"],
        json!({"a": [1, "ü"]})
    );
    assert_eq!(client.call("nothing", Value::Null, 3).await, json!({"rid": 3}));
    // A transmit has no answer: the next frame is that of the next call.
    client.send(r#"{"event":"echo","data":1}"#).await;
    client.send(r#"{"event":"no.such","data":1}"#).await;
    let error = client.call("no.such", json!({}), 4).await["error"].take();
    assert_eq!(error["name"], "RoomError");
    assert_eq!(error["code"], "unknown_event");
    assert_eq!(error["message"], "no such event: no.such");
    let text = server.metrics.render();
    assert!(text.contains("moim_calls_total{outcome=\"ok\"} 3"), "{text}");
    assert!(text.contains("moim_calls_total{outcome=\"unknown_event\"} 2"), "{text}");
    assert!(text.contains("moim_call_seconds_count 5"), "{text}");
}

#[tokio::test]
async fn arrays_are_answered_in_order_one_after_the_other() {
    let server = start(&config(), options());
    let mut client = server.client().await;
    let packets: Vec<Value> = (0..50).map(|n| json!({"event": "yielding", "cid": n + 2})).collect();
    client.send(Value::from(packets).to_string()).await;
    for n in 0..50 {
        assert_eq!(client.json().await["rid"], n + 2);
    }
    assert_eq!(server.tester.overlaps.load(SeqCst), 0);
}

#[tokio::test]
async fn state_stays_with_its_socket() {
    let server = start(&config(), options());
    let (mut one, mut two) = (server.client().await, server.client().await);
    one.call("keep", json!("one"), 2).await;
    two.call("keep", json!("two"), 2).await;
    assert_eq!(one.call("kept", Value::Null, 3).await["data"], "one");
    assert_eq!(two.call("kept", Value::Null, 3).await["data"], "two");
    let kept = server.tester.sockets.lock().unwrap().clone();
    assert_ne!(kept[0].id(), kept[1].id());
    assert_eq!(kept[0].remote().ip(), server.address.ip());
}

#[tokio::test]
async fn pings_are_counted_for_the_whole_server() {
    let server = start(&config(), options());
    let (mut one, mut two) = (server.client().await, server.client().await);
    assert_eq!(one.call("ping", Value::Null, 2).await["data"], json!({"count": 1}));
    assert_eq!(two.call("ping", json!({"x": 1}), 2).await["data"], json!({"count": 2}));
    one.send(r#"{"event":"ping"}"#).await;
    assert_eq!(one.json().await, json!({"event": "pong", "data": {"count": 3}}));
}

#[tokio::test]
async fn channels() {
    let server = start(&config(), options());
    let mut client = server.client().await;
    // Without a subscription too, and once with it.
    for cid in [2, 4] {
        client
            .send(json!({"event": "publish", "data": {"epoch": cid}, "cid": cid}).to_string())
            .await;
        let data = json!({"channel": "room:x", "data": {"epoch": cid}});
        assert_eq!(client.json().await, json!({"event": "#publish", "data": data}));
        assert_eq!(client.json().await, json!({"rid": cid}));
        let subscribed = client.call("#subscribe", json!({"channel": "room:x"}), cid + 1).await;
        assert_eq!(subscribed, json!({"rid": cid + 1}));
    }
    let refused = client.call("#subscribe", json!({"channel": "room:y"}), 6).await;
    assert_eq!(refused["error"]["code"], "not_allowed");
    let wrong = client.call("#subscribe", json!("room:x"), 7).await;
    assert_eq!(wrong["error"]["code"], "bad_request");
    client.send(r##"{"event":"#unsubscribe","data":"room:x"}"##).await;
    assert_eq!(client.call("#unsubscribe", json!("room:x"), 8).await, json!({"rid": 8}));
    let publish = client.call("#publish", json!({"channel": "room:x", "data": 1}), 9).await;
    assert_eq!(publish["error"]["code"], "not_allowed");
    client.send(r##"{"event":"#other"}"##).await;
    let unknown = client.call("#other", json!(1), 10).await;
    assert_eq!(unknown["error"]["code"], "unknown_event");
}

#[tokio::test]
async fn bad_frames_are_told_counted_and_at_last_closed() {
    let server = start(&config(), options());
    let (mut bad, mut good) = (server.client().await, server.client().await);
    bad.send(r#"{"event":5,"cid":9}"#).await;
    let told = bad.json().await;
    assert_eq!((&told["rid"], &told["error"]["code"]), (&json!(9), &json!("bad_request")));
    bad.send("{nonsense").await;
    bad.0.send(Message::binary(vec![0; 10])).await.unwrap();
    bad.send(format!("\"{}\"", "x".repeat(300_000))).await;
    bad.send(r#"[{"event":"echo","data":1,"cid":10},{"x":1}]"#).await;
    assert_eq!(bad.json().await, json!({"rid": 10, "data": 1}));
    assert_eq!(bad.call("echo", json!(2), 11).await["data"], 2, "the socket lives");
    assert_eq!(server.drops("bad_shape"), 2);
    assert_eq!(server.drops("not_json"), 1);
    assert_eq!(server.drops("binary"), 1);
    assert_eq!(server.drops("too_large"), 1);
    for _ in 5..20 {
        bad.send("]").await;
    }
    assert_eq!(bad.close_code().await, 4100);
    assert_eq!(server.drops("not_json"), 16);
    assert_eq!(good.call("echo", json!(3), 2).await["data"], 3, "nobody else is affected");
}

#[tokio::test]
async fn what_cannot_be_read_closes_at_once() {
    let server = start(&config(), options());
    let mut client = server.client().await;
    // The server may close before all is sent.
    let _ = client.0.send(Message::text("x".repeat(2 << 20))).await;
    assert_eq!(client.close_code().await, 1009);
    assert_eq!(server.drops("too_large"), 1);

    let mut client = server.client().await;
    let opcode = tungstenite::protocol::frame::coding::OpCode::Data(
        tungstenite::protocol::frame::coding::Data::Text,
    );
    let frame = tungstenite::protocol::frame::Frame::message(vec![0xff, 0xfe], opcode, true);
    client.0.send(Message::Frame(frame)).await.unwrap();
    assert_eq!(client.close_code().await, 1007);
    assert_eq!(server.drops("not_utf8"), 1);
}

#[tokio::test]
async fn too_many_packets_a_second_are_refused() {
    let server = start(&config(), SocketOptions { requests_per_second: 1, ..options() });
    let mut client = server.client().await;
    let packets: Vec<Value> = (0..20).map(|n| json!({"event": "ping", "cid": n + 2})).collect();
    client.send(Value::from(packets).to_string()).await;
    let mut refused = 0;
    for n in 0..20 {
        let answer = client.json().await;
        assert_eq!(answer["rid"], n + 2, "every call is answered");
        if answer["error"]["code"] == "too_fast" {
            refused += 1;
        } else {
            assert!(answer["data"]["count"].is_u64(), "{answer}");
        }
    }
    assert!((15..=18).contains(&refused), "2 at once and 1 a second pass: {refused} were refused");
    assert_eq!(server.drops("too_fast"), refused);
}

#[tokio::test]
async fn a_slow_consumer_is_closed_and_counted() {
    let options = SocketOptions {
        outbox_bytes: 256 << 10,
        close_grace: Duration::from_millis(200),
        ..options()
    };
    let server = start(&config(), options);
    let mut good = server.client().await;
    let mut slow = server.client().await;
    slow.send(r#"{"event":"flood"}"#).await;
    soon("the bound", server.tester.refused.notified()).await;
    assert!(server.drops("slow_consumer") > 0);
    soon("the end", async {
        while server.tester.closed.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(good.call("echo", json!(1), 2).await["data"], 1);
    soon("the count", async {
        while !server.metrics.render().contains("moim_sockets_closed_total{code=\"4101\"} 1") {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_panic_in_a_call_ends_that_socket_only() {
    let server = start(&config(), options());
    let (mut bad, mut good) = (server.client().await, server.client().await);
    bad.send(r#"{"event":"panic"}"#).await;
    let end = soon("the end", bad.0.next()).await;
    assert!(matches!(end, None | Some(Err(_))), "{end:?}");
    assert_eq!(server.tester.closed.load(SeqCst), 1);
    assert_eq!(good.call("echo", json!(1), 2).await["data"], 1);
    assert_eq!(server.metrics.sockets.get(), 1);
}

#[tokio::test]
async fn the_application_is_told_of_the_end() {
    let server = start(&config(), options());
    let mut client = server.client().await;
    client.call("keep", json!(1), 2).await;
    client.0.close(None).await.unwrap();
    soon("the end", async {
        while server.sockets.open() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(server.tester.closed.load(SeqCst), 1);
    assert_eq!(server.metrics.sockets.get(), 0);
    assert!(server.metrics.render().contains("moim_sockets_closed_total{code=\"peer\"} 1"));
    let socket = server.tester.sockets.lock().unwrap()[0].clone();
    assert!(!socket.publish("room:x", "1"), "nothing is taken after the end");
    assert_eq!(server.drops("closed"), 1);
    assert!(socket.state_of::<String>().is_none());
}

#[tokio::test]
async fn the_application_can_close() {
    let server = start(&config(), options());
    let mut client = server.client().await;
    client.call("keep", json!(1), 2).await;
    let socket = server.tester.sockets.lock().unwrap()[0].clone();
    assert!(socket.publish("room:x", "\"last\""));
    socket.close(4200, "enough");
    assert_eq!(client.json().await["data"]["data"], "last", "what waits is written first");
    assert_eq!(client.close_code().await, 4200);
}

#[tokio::test]
async fn ending_closes_all_sockets() {
    let server = start(&config(), options());
    let mut clients = vec![server.client().await, server.client().await];
    let before_handshake = server.raw().await;
    clients.push(before_handshake);
    server.end.send(()).unwrap();
    for client in &mut clients {
        assert_eq!(client.close_code().await, 4102);
        // The protocol's close is a reply to ours.
        while soon("the end", client.0.next()).await.is_some() {}
    }
    soon("the server's end", server.serving).await.unwrap().unwrap();
    assert_eq!(server.sockets.open(), 0);
    assert_eq!(server.tester.closed.load(SeqCst), 2);
    assert!(TcpStream::connect(server.address).await.is_err(), "the port is free again");
}

async fn status_of_upgrade(server: &Running, origin: Option<&str>) -> u16 {
    let mut request =
        format!("ws://{}/socketcluster/", server.address).into_client_request().unwrap();
    if let Some(origin) = origin {
        request.headers_mut().insert("origin", origin.parse().unwrap());
    }
    match connect_async(request).await {
        Ok((_, response)) => response.status().as_u16(),
        Err(tungstenite::Error::Http(response)) => response.status().as_u16(),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let server = start(&config(), options());
    let own = format!("http://{}", server.address);
    let by_name = format!("http://localhost:{}", server.address.port());
    assert_eq!(status_of_upgrade(&server, None).await, 101);
    assert_eq!(status_of_upgrade(&server, Some(&own)).await, 101);
    assert_eq!(status_of_upgrade(&server, Some(&by_name)).await, 101);
    assert_eq!(status_of_upgrade(&server, Some("https://evil.example")).await, 403);
    assert_eq!(status_of_upgrade(&server, Some("null")).await, 403);
    assert_eq!(server.metrics.drops("http", "origin").get(), 2);

    let mut config = config();
    config.development = false;
    config.origins = vec!["https://call.example.org".into()];
    let server = start(&config, options());
    let own = format!("http://{}", server.address);
    assert_eq!(status_of_upgrade(&server, Some(&own)).await, 101);
    assert_eq!(status_of_upgrade(&server, Some("https://call.example.org")).await, 101);
    assert_eq!(status_of_upgrade(&server, Some("https://evil.example")).await, 403);
}

#[tokio::test]
async fn sockets_are_bounded() {
    let server = start(&config(), SocketOptions { sockets: 1, ..options() });
    let mut first = server.client().await;
    assert_eq!(status_of_upgrade(&server, None).await, 503);
    first.0.close(None).await.unwrap();
    soon("the place", async {
        while server.sockets.open() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(status_of_upgrade(&server, None).await, 101);
    assert_eq!(server.metrics.drops("http", "sockets_full").get(), 1);
}

#[tokio::test]
async fn pages_and_metrics() {
    let server = start(&config(), options());
    for path in ["/", "/room/lobby", "/room/lobby?name=Ann&join=1"] {
        let (head, body) = server.get(path).await;
        assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
        assert!(head.contains("content-type: text/html; charset=utf-8"), "{head}");
        assert!(head.contains("cache-control: no-cache"), "{head}");
        assert!(head.contains("content-security-policy: default-src 'self'"), "{head}");
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
        assert!(body.to_ascii_lowercase().contains("moim"), "{body}");
    }
    for path in ["/assets/none.js", "/none.txt", "/room/", "/a/b/c", "/assets/%2e%2e/index.html"] {
        assert!(server.get(path).await.0.starts_with("http/1.1 404"), "{path}");
    }
    let (head, body) = server.get("/healthz").await;
    assert!(head.starts_with("http/1.1 200") && body == "ok\n", "{head}");
    // A socket's path without an upgrade.
    assert!(server.get("/socketcluster/").await.0.starts_with("http/1.1 4"));

    server.client().await;
    let (head, body) = server.get("/metrics").await;
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("moim_sockets_opened_total 1\n"), "{body}");
    assert!(body.contains("\nmoim_rooms 0\n"), "{body}");
    for line in body.lines() {
        let value = line.rsplit(' ').next().unwrap();
        assert!(line.starts_with("# ") || value.parse::<f64>().is_ok(), "{line}");
    }
}

#[tokio::test]
async fn a_port_in_use_is_told_with_the_cure() {
    let server = start(&config(), options());
    let mut second = config();
    second.http.bind = vec![server.address];
    let told = Http::bind(&second).unwrap_err().to_string();
    assert!(told.contains(&format!("cannot listen on {}", server.address)), "{told}");
    assert!(told.contains("set http.bind to another"), "{told}");
}

#[tokio::test]
async fn ipv6_and_several_addresses() {
    let mut both = config();
    both.http.bind.push("[::1]:0".parse().unwrap());
    let Ok(http) = Http::bind(&both) else {
        assert!(std::net::TcpListener::bind("[::1]:0").is_err(), "IPv6 works on this machine");
        return;
    };
    assert_eq!(http.addresses().len(), 2);
    drop(http);
    let mut six = config();
    six.http.bind = vec!["[::1]:0".parse().unwrap()];
    let server = start(&six, options());
    assert_eq!(server.client().await.call("echo", json!(6), 2).await["data"], 6);
}

#[tokio::test]
async fn a_bad_certificate_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&cert, "no certificate").unwrap();
    std::fs::write(&key, "no key").unwrap();
    let mut config = config();
    config.tls = Some(server::config::TlsConfig { cert, key });
    let server = start(&config, options());
    let told = soon("the end", server.serving).await.unwrap().unwrap_err().to_string();
    assert!(told.contains("cert.pem") && told.contains("must be PEM files"), "{told}");
}

/// Random and mutated frames: sockets live or are closed, the server goes on.
#[tokio::test]
async fn mutated_frames_never_harm() {
    const SEEDS: [&str; 4] = [
        r#"{"event":"echo","data":{"a":[1,2]},"cid":2}"#,
        r##"[{"event":"#subscribe","data":{"channel":"room:x"},"cid":3},{"event":"ping"}]"##,
        r##"{"event":"#handshake","data":{"authToken":"a"},"cid":1}"##,
        r##"{"event":"#unsubscribe","data":"room:x"}"##,
    ];
    let generous =
        SocketOptions { bad_frames: u32::MAX, requests_per_second: 1_000_000, ..options() };
    let server = start(&config(), generous);
    let mut client = server.client().await;
    let mut state = 42u64;
    let mut next = |bound: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    for round in 0..2000 {
        let mut bytes = SEEDS[round % SEEDS.len()].as_bytes().to_vec();
        for _ in 0..1 + next(4) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = next(128) as u8,
                1 => bytes.insert(at, b"{}[]\",:\\0"[next(9)]),
                _ => drop(bytes.drain(at..(at + next(5)).min(bytes.len()))),
            }
            if bytes.is_empty() {
                bytes.push(b'0');
            }
        }
        client.send(String::from_utf8_lossy(&bytes)).await;
    }
    client.send(r#"{"event":"echo","data":"end","cid":99999}"#).await;
    while client.json().await != json!({"rid": 99999, "data": "end"}) {}
    assert!(server.drops("not_json") + server.drops("bad_shape") > 500);
}

/// Many packets that wait at once: nothing is lost or reordered.
#[tokio::test]
async fn a_burst_arrives_whole() {
    let server = start(&config(), options());
    let mut client = server.client().await;
    client.call("keep", json!(1), 2).await;
    let socket = server.tester.sockets.lock().unwrap()[0].clone();
    for n in 0..2000 {
        assert!(socket.publish("room:x", &n.to_string()));
    }
    for n in 0..2000 {
        assert_eq!(client.json().await["data"]["data"], n);
    }
}
