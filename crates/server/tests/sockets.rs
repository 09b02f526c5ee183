//! Tokens, channels, calls both ways and the HTTP API, as clients on the wire see them.

use futures_util::{SinkExt, StreamExt};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use server::auth::{Auth, Guests, Secret, TokenRequest, issue};
use server::config::Config;
use server::http::Http;
use server::metrics::Metrics;
use server::socket::{Application, InvokeError, Socket, SocketOptions, Sockets};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use wire::console::{Quality, RoomQuality};
use wire::{ErrorCode, RoomError};

/// Long enough for a loaded machine: reached only where the awaited thing never comes.
const PATIENCE: Duration = Duration::from_secs(20);
const KEY: &str = "ours";
const SECRET: &str = "0123456789abcdef0123456789abcdef";

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come"),
    }
}

/// An application without calls, with two rooms.
struct Bare;

impl Application for Bare {
    async fn call(
        &self,
        _: &Arc<Socket>,
        event: &str,
        _: Option<&RawValue>,
    ) -> Result<Option<Box<RawValue>>, RoomError> {
        Err(RoomError::new(ErrorCode::UnknownEvent, format!("there is no {event} here")))
    }

    fn closed(&self, _: &Arc<Socket>) {}

    fn may_subscribe(&self, _: &Arc<Socket>, _: &str) -> bool {
        false
    }

    fn quality(&self) -> Quality {
        let room = |id: &str| RoomQuality {
            id: id.into(),
            audio: wire::room::AudioTopology::Sfu,
            video: wire::room::VideoTopology::None,
            locked: false,
            people: 1,
            mos_lq: None,
            bottom: Vec::new(),
            history: Vec::new(),
        };
        Quality { at_unix_ms: 1, rooms: vec![room("cellar"), room("garden")] }
    }
}

struct Server {
    address: SocketAddr,
    sockets: Arc<Sockets<Bare>>,
    metrics: Arc<Metrics>,
}

fn options() -> SocketOptions {
    SocketOptions::from(&Config::development().limits)
}

fn start(auth: Auth, options: SocketOptions) -> Server {
    let mut config = Config::development();
    config.http.bind = vec!["127.0.0.1:0".parse().unwrap()];
    let http = Http::bind(&config).unwrap();
    let address = http.addresses()[0];
    let metrics = Arc::new(Metrics::new());
    let sockets = Sockets::new(Arc::new(Bare), options, Arc::new(auth), metrics.clone());
    let serving = http.serve(sockets.clone(), metrics.clone(), std::future::pending());
    tokio::spawn(serving);
    Server { address, sockets, metrics }
}

/// A server of development: everybody may do everything.
fn open() -> Server {
    start(Auth::development(), options())
}

/// A server with a key, where nobody may do anything without a token.
fn locked() -> Server {
    let secret = Secret::new(SECRET).unwrap();
    start(Auth::new([(KEY, &secret)], Guests::None), options())
}

fn token(request: TokenRequest) -> String {
    let identity = "ada".to_owned();
    issue(KEY, &Secret::new(SECRET).unwrap(), &TokenRequest { identity, ..request }).unwrap()
}

fn chat() -> TokenRequest {
    let (subscribe, publish) = (vec!["chat.*".into(), "news".into()], vec!["chat.*".into()]);
    TokenRequest { subscribe, publish, ttl_s: 600, ..TokenRequest::default() }
}

fn admin() -> TokenRequest {
    TokenRequest { admin: true, ttl_s: 600, ..TokenRequest::default() }
}

struct Answer {
    status: u16,
    head: String,
    body: Value,
}

impl Server {
    async fn client(&self, token: Option<&str>) -> Client {
        let url = format!("ws://{}/socketcluster/", self.address);
        let stream = connect_async(url).await.unwrap().0;
        let mut client = Client { stream, id: String::new() };
        let handshake = json!({"event": "#handshake", "data": {"authToken": token}, "cid": 1});
        client.send(handshake.to_string()).await;
        let answer = client.json().await;
        assert_eq!(answer["data"]["isAuthenticated"], token.is_some(), "{answer}");
        client.id = answer["data"]["id"].as_str().unwrap().to_owned();
        client
    }

    async fn http(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> Answer {
        let bearer = token.map_or(String::new(), |t| format!("Authorization: Bearer {t}\r\n"));
        self.request(method, path, &format!("Host: {}\r\n{bearer}", self.address), body).await
    }

    async fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        soon("the answer", stream.read_to_string(&mut answer)).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let body = serde_json::from_str(body).unwrap_or(Value::Null);
        Answer { status, head: head.to_ascii_lowercase(), body }
    }
}

struct Client {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    id: String,
}

impl Client {
    async fn send(&mut self, text: impl AsRef<str>) {
        self.stream.send(Message::text(text.as_ref())).await.unwrap();
    }

    /// The next frame that is not a heartbeat.
    async fn json(&mut self) -> Value {
        loop {
            match soon("a frame", self.stream.next()).await {
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

    async fn subscribe(&mut self, channel: &str) -> Value {
        self.call("#subscribe", json!({"channel": channel}), 500).await
    }

    /// The next message of a channel.
    async fn message(&mut self, channel: &str) -> Value {
        let mut frame = self.json().await;
        assert_eq!(frame["event"], "#publish", "{frame}");
        assert_eq!(frame.get("cid"), None);
        assert_eq!(frame["data"]["channel"], channel);
        frame["data"]["data"].take()
    }
}

#[tokio::test]
async fn a_publication_reaches_all_subscribers_in_one_order() {
    let server = open();
    let mut clients = vec![server.client(None).await, server.client(None).await];
    let mut stranger = server.client(None).await;
    for client in &mut clients {
        assert_eq!(client.subscribe("chat").await, json!({"rid": 500}));
        assert_eq!(client.subscribe("chat").await, json!({"rid": 500}), "twice is no fault");
    }
    // Both publish at once, with and without a call id.
    for (who, client) in clients.iter_mut().enumerate() {
        for n in 0..50 {
            let data = json!({"channel": "chat", "data": [who, n]});
            client.send(json!({"event": "#publish", "data": data}).to_string()).await;
        }
        let last = json!({"channel": "chat", "data": [who, 50]});
        client.send(json!({"event": "#publish", "data": last, "cid": 9}).to_string()).await;
    }
    let mut orders = Vec::new();
    for (who, client) in clients.iter_mut().enumerate() {
        let (mut order, mut acknowledged) = (Vec::new(), false);
        while order.len() < 102 || !acknowledged {
            let frame = client.json().await;
            if frame["rid"] == 9 {
                assert!(order.contains(&json!([who, 50])), "the own message comes before the ack");
                acknowledged = true;
            } else {
                order.push(frame["data"]["data"].clone());
            }
        }
        let own: Vec<_> = order.iter().filter(|message| message[0] == who).collect();
        assert!(own.iter().enumerate().all(|(n, message)| message[1] == n), "{own:?}");
        orders.push(order);
    }
    assert_eq!(orders[0], orders[1]);
    assert_eq!(server.metrics.publications.get(), 102);
    assert_eq!(server.metrics.publications_delivered.get(), 204);
    // Who is not subscribed may publish and gets nothing but the answer.
    let publish = json!({"channel": "chat", "data": {"a": null}});
    assert_eq!(stranger.call("#publish", publish, 2).await, json!({"rid": 2}));
    assert_eq!(clients[0].message("chat").await, json!({"a": null}));
    // After #unsubscribe with a bare string and no call id nothing comes any more.
    clients[0].send(r##"{"event":"#unsubscribe","data":"chat"}"##).await;
    clients[0].call("#publish", json!({"channel": "chat", "data": "end"}), 10).await;
    clients[1].message("chat").await;
    assert_eq!(clients[1].message("chat").await, "end");
}

#[tokio::test]
async fn what_is_refused_is_told_with_its_code() {
    let limits = SocketOptions {
        channels_per_socket: 2,
        channel_subscribers: 1,
        message_bytes: 100,
        ..options()
    };
    let secret = Secret::new(SECRET).unwrap();
    let server = start(Auth::new([(KEY, &secret)], Guests::None), limits);
    let (mut guest, mut ada) =
        (server.client(None).await, server.client(Some(&token(chat()))).await);
    let mut other = server.client(Some(&token(chat()))).await;
    assert_eq!(other.subscribe("chat.full").await, json!({"rid": 500}));
    assert_eq!(ada.subscribe("chat.0").await, json!({"rid": 500}));
    let publish = |channel: &str| json!({"channel": channel, "data": 1});
    let channel = |channel: &str| json!({"channel": channel});
    let long = "x".repeat(129);
    for (as_guest, event, data, code) in [
        (true, "#subscribe", channel("chat.1"), "not_allowed"),
        (true, "#publish", publish("chat.1"), "not_allowed"),
        (true, "shop.buy", json!({}), "unknown_event"),
        (false, "#subscribe", channel("other"), "not_allowed"),
        (false, "#subscribe", channel("room:garden"), "not_allowed"),
        (false, "#subscribe", channel("chat.full"), "not_allowed"),
        (false, "#subscribe", channel(""), "bad_request"),
        (false, "#subscribe", channel(&long), "bad_request"),
        (false, "#subscribe", channel("chat.\u{7}"), "bad_request"),
        (false, "#subscribe", json!("chat.1"), "bad_request"),
        (false, "#subscribe", json!({"channel": 7}), "bad_request"),
        (false, "#unsubscribe", json!({"channel": "chat.1"}), "bad_request"),
        (false, "#publish", publish("news"), "not_allowed"),
        (false, "#publish", publish("room:garden"), "not_allowed"),
        (false, "#publish", publish(""), "bad_request"),
        (false, "#publish", json!("chat.1"), "bad_request"),
        (false, "#publish", json!({"channel": "chat.1", "data": "x".repeat(100)}), "too_large"),
        (false, "#nothing", json!({}), "unknown_event"),
        (false, "shop.buy", json!({}), "unknown_event"),
        (false, "#handshake", json!({}), "bad_request"),
    ] {
        let client = if as_guest { &mut guest } else { &mut ada };
        let answer = client.call(event, data.clone(), 7).await;
        assert_eq!(answer["error"]["name"], "RoomError", "{event} {data}");
        assert_eq!(answer["error"]["code"], code, "{event} {data}");
    }
    assert_eq!(server.metrics.drops("signaling", "refused").get(), 6);
    assert_eq!(ada.subscribe("chat.1").await, json!({"rid": 500}));
    let third = ada.subscribe("chat.2").await;
    assert_eq!(third["error"]["code"], "not_allowed");
    assert!(third["error"]["message"].as_str().unwrap().contains("its 2 channels"), "{third}");
    // Nobody else noticed anything, and a place that is given up is free.
    other.send(r##"{"event":"#unsubscribe","data":"chat.full"}"##).await;
    assert_eq!(other.call("ping", json!({}), 3).await["data"]["count"], 1);
    ada.send(r##"{"event":"#unsubscribe","data":"chat.1"}"##).await;
    assert_eq!(ada.subscribe("chat.full").await, json!({"rid": 500}));
    // Who is gone is no longer subscribed.
    ada.stream.close(None).await.unwrap();
    soon("the end", async {
        while server.sockets.find(&ada.id).is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(other.subscribe("chat.full").await, json!({"rid": 500}));
}

#[tokio::test]
async fn what_is_too_large_is_answered_and_counted() {
    let server = open();
    let mut client = server.client(None).await;
    let most = options().frame_bytes;
    for more in [0, 40, 700 << 10] {
        let text = "x".repeat(most + more);
        let answer = client.call("ping", json!(text), 7).await;
        assert_eq!(answer["error"]["code"], "too_large", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(&format!("at most {most} bytes")), "{message}");
    }
    assert_eq!(server.metrics.drops("signaling", "too_large").get(), 3);
    // A publication without a call id has no answer.
    let large = json!({"channel": "news", "data": "x".repeat(most)});
    client.send(json!({"event": "#publish", "data": large}).to_string()).await;
    let told = client.json().await;
    assert_eq!((&told["event"], &told["data"]["lost"]), (&json!("publish.lost"), &json!(1)));
    assert_eq!(told["data"]["error"]["code"], "too_large", "{told}");
    assert_eq!(client.call("ping", json!({}), 8).await["rid"], 8);
}

#[tokio::test]
async fn publications_without_an_answer_that_nobody_got_are_told_once_a_second() {
    let server = open();
    let (mut publisher, mut watcher) = (server.client(None).await, server.client(None).await);
    watcher.subscribe("news").await;
    let sent = 1200;
    let begin = Instant::now();
    for n in 0..sent {
        let data = json!({"channel": "news", "data": n});
        publisher.send(json!({"event": "#publish", "data": data}).to_string()).await;
    }
    // None that is allowed is lost, and the last one says that all before it came.
    let (mut lost, mut told) = (0, 0);
    while lost + server.metrics.publications.get() < sent {
        let event = publisher.json().await;
        assert_eq!(event["event"], "publish.lost", "{event}");
        assert_eq!(event["data"]["error"]["code"], "too_fast", "{event}");
        lost += event["data"]["lost"].as_u64().unwrap();
        told += 1;
    }
    assert_eq!(lost + server.metrics.publications.get(), sent);
    assert!(lost > 100, "{lost}");
    assert!(told <= begin.elapsed().as_secs() + 2, "{told} times in {:?}", begin.elapsed());
}

#[tokio::test]
async fn clients_of_either_protocol_stay_and_hear_their_own_pings() {
    let (ping_interval, ping_timeout) = (Duration::from_millis(100), Duration::from_secs(1));
    let server =
        start(Auth::development(), SocketOptions { ping_interval, ping_timeout, ..options() });
    for (ping, pong, other) in [("", "", "#1"), ("#1", "#2", "")] {
        let mut client = server.client(None).await;
        let (mut own, mut others) = (0, 0);
        // Three times as long as silence may last.
        let end = Instant::now() + 3 * ping_timeout;
        while Instant::now() < end {
            let frame = soon("a ping", client.stream.next()).await.unwrap().unwrap();
            let text = frame.into_text().unwrap_or_else(|_| panic!("{ping:?} is closed"));
            if *text == *ping {
                own += 1;
                client.send(pong).await;
            } else {
                assert_eq!(*text, *other);
                others += 1;
            }
        }
        assert!(own >= 10, "{own} pings {ping:?}");
        assert!(others <= 3, "{others} of the other protocol");
        assert_eq!(server.metrics.drops("signaling", "not_json").get(), 0);
    }
    // Who answers neither is cut.
    let mut silent = server.client(None).await;
    let closed = soon("the end of silence", async {
        loop {
            match silent.stream.next().await {
                Some(Ok(Message::Close(frame))) => return frame.map(|frame| u16::from(frame.code)),
                Some(Ok(_)) => {}
                _ => return None,
            }
        }
    });
    assert_eq!(closed.await, Some(wire::frame::close::NO_PONG));
}

#[tokio::test]
async fn tokens_come_and_go() {
    let server = locked();
    let mut client = server.client(None).await;
    let good = token(chat());
    assert_eq!(client.subscribe("news").await["error"]["code"], "not_allowed");
    let answer = client.call("#authenticate", json!(good), 2).await;
    assert_eq!(answer["data"], json!({"isAuthenticated": true, "authError": null}));
    assert_eq!(client.subscribe("news").await, json!({"rid": 500}));
    assert_eq!(client.subscribe("chat.a").await, json!({"rid": 500}));
    // Another token, with which one of the channels is no longer allowed.
    let less = token(TokenRequest { subscribe: vec!["news".into()], ..chat() });
    client.send(json!({"event": "#authenticate", "data": less, "cid": 3}).to_string()).await;
    let kicked = client.json().await;
    assert_eq!(
        (&kicked["event"], &kicked["data"]["channel"]),
        (&json!("#kickOut"), &json!("chat.a"))
    );
    assert_eq!(client.json().await["rid"], 3);
    // A bad one: the good one before it counts no more.
    for (number, bad) in
        [(4, json!("x.y.z")), (5, json!(null)), (6, json!(7)), (7, json!(format!("{good}x")))]
    {
        let answer = client.json_after_kick("#authenticate", bad, number).await;
        assert_eq!(answer["error"]["name"], "AuthTokenInvalidError", "{answer}");
        assert_eq!(answer["error"]["isBadToken"], true);
        assert_eq!(client.json().await, json!({"event": "#removeAuthToken"}));
    }
    let expired = token(TokenRequest { ttl_s: 0, ..chat() });
    let answer = client.call("#authenticate", json!(expired), 8).await;
    assert_eq!(answer["error"]["name"], "AuthTokenExpiredError");
    assert_eq!(client.json().await["event"], "#removeAuthToken");
    assert_eq!(client.subscribe("news").await["error"]["code"], "not_allowed");
    // The client gives it up by itself.
    client.call("#authenticate", json!(good), 9).await;
    client.subscribe("news").await;
    client.send(r##"{"event":"#removeAuthToken"}"##).await;
    assert_eq!(client.json().await["event"], "#kickOut");
    assert_eq!(client.subscribe("news").await["error"]["code"], "not_allowed");
}

impl Client {
    /// An answer before which subscriptions may end.
    async fn json_after_kick(&mut self, event: &str, data: Value, cid: u64) -> Value {
        self.send(json!({"event": event, "data": data, "cid": cid}).to_string()).await;
        loop {
            let frame = self.json().await;
            if frame["event"] != "#kickOut" {
                return frame;
            }
        }
    }
}

#[tokio::test]
async fn an_expired_token_is_taken_back_at_the_next_packet() {
    let server = locked();
    for sign in ["", r#"{"event":"ping"}"#] {
        let short = token(TokenRequest { ttl_s: 2, ..chat() });
        let mut client = server.client(Some(&short)).await;
        client.subscribe("news").await;
        // Whatever the clocks do in between: heartbeats until the answer to one is the end.
        soon("the end of the token", async {
            loop {
                client.send(sign).await;
                let next = tokio::time::timeout(Duration::from_millis(50), client.stream.next());
                if let Ok(Some(Ok(Message::Text(text)))) = next.await
                    && text.contains("#kickOut")
                {
                    break;
                }
            }
        })
        .await;
        while client.json().await != json!({"event": "#removeAuthToken"}) {}
        let refused = client.json_after_pongs("news").await;
        assert_eq!(refused["error"]["code"], "not_allowed", "{sign}");
    }
}

#[tokio::test]
async fn an_expired_token_is_taken_back_whatever_is_sent_or_not() {
    let server = locked();
    let text = |text: &str| Some(Message::text(text.to_owned()));
    let signs = [
        None,
        Some(Message::Ping(vec![1].into())),
        Some(Message::Pong(vec![1].into())),
        text(r#"{"rid":77}"#),
    ];
    for sign in signs {
        let short = token(TokenRequest { ttl_s: 2, ..chat() });
        let mut client = server.client(Some(&short)).await;
        client.subscribe("news").await;
        soon("the end of the token", async {
            loop {
                if let Some(sign) = &sign {
                    client.stream.send(sign.clone()).await.unwrap();
                }
                let next = tokio::time::timeout(Duration::from_millis(50), client.stream.next());
                match next.await {
                    Ok(Some(Ok(Message::Text(text)))) if text.contains("#kickOut") => break,
                    Ok(None | Some(Err(_))) => panic!("{sign:?}: the socket is closed"),
                    _ => {}
                }
            }
        })
        .await;
        let subscribe = json!({"event": "#subscribe", "data": {"channel": "news"}, "cid": 501});
        client.send(subscribe.to_string()).await;
        soon("a refusal", async {
            loop {
                match client.stream.next().await {
                    Some(Ok(Message::Text(text))) if text.contains("not_allowed") => break,
                    Some(Ok(_)) => {}
                    end => panic!("{sign:?}: {end:?}"),
                }
            }
        })
        .await;
    }
}

impl Client {
    async fn json_after_pongs(&mut self, channel: &str) -> Value {
        let subscribe = json!({"event": "#subscribe", "data": {"channel": channel}, "cid": 501});
        self.send(subscribe.to_string()).await;
        loop {
            let frame = self.json().await;
            if frame["event"] != "pong" {
                return frame;
            }
        }
    }
}

#[tokio::test]
async fn the_server_calls_its_clients() {
    let server = open();
    let mut client = server.client(None).await;
    let socket = server.sockets.find(&client.id).unwrap();
    let call = |data: &str, wait: Duration| {
        let (socket, data) = (socket.clone(), RawValue::from_string(data.into()).unwrap());
        tokio::spawn(async move { socket.invoke("sum", Some(&data), wait).await })
    };
    let first = call("[1,2]", PATIENCE);
    assert_eq!(client.json().await, json!({"event": "sum", "data": [1, 2], "cid": 1}));
    let second = call("[3]", PATIENCE);
    assert_eq!(client.json().await, json!({"event": "sum", "data": [3], "cid": 2}));
    // Answers in another order, and one to a call that never was.
    client.send(r#"[{"rid":2,"error":{"name":"E"}},{"rid":9},{"rid":1,"data":3}]"#).await;
    assert_eq!(soon("3", first).await.unwrap().unwrap().unwrap().get(), "3");
    let error = soon("E", second).await.unwrap().unwrap_err();
    assert!(matches!(&error, InvokeError::Client(raw) if raw.get() == r#"{"name":"E"}"#));
    let late = call("[]", Duration::from_millis(10));
    assert!(matches!(soon("the end", late).await.unwrap(), Err(InvokeError::Timeout)));
    assert_eq!(client.json().await["cid"], 3);
    client.send(r#"{"rid":3}"#).await;
    assert!(socket.transmit("told", None));
    assert_eq!(client.json().await, json!({"event": "told"}));
    // A read call proves that the late answer was read as well.
    assert_eq!(client.call("ping", json!({}), 2).await["data"]["count"], 1);
    assert_eq!(server.metrics.drops("signaling", "late_answer").get(), 2);
    let open_one = call("[]", PATIENCE);
    client.json().await;
    client.stream.close(None).await.unwrap();
    assert!(matches!(soon("the end", open_one).await.unwrap(), Err(InvokeError::Closed)));
    let after = call("[]", PATIENCE);
    assert!(matches!(soon("the end", after).await.unwrap(), Err(InvokeError::Closed)));
    let text = server.metrics.render();
    for (outcome, count) in [("ok", 1), ("error", 1), ("timeout", 1), ("closed", 2)] {
        let line = format!("moim_invocations_total{{outcome=\"{outcome}\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}

#[tokio::test]
async fn calls_that_wait_are_bounded() {
    let server = open();
    let mut client = server.client(None).await;
    let socket = server.sockets.find(&client.id).unwrap();
    let mut calls = Vec::new();
    for _ in 0..server::socket::OPEN_CALLS {
        let socket = socket.clone();
        calls.push(tokio::spawn(async move { socket.invoke("x", None, PATIENCE).await }));
        client.json().await;
    }
    assert!(matches!(socket.invoke("x", None, PATIENCE).await, Err(InvokeError::Busy)));
    // Who no longer waits makes room.
    calls.remove(0).abort();
    let next = tokio::spawn(async move {
        loop {
            match socket.invoke("y", None, PATIENCE).await {
                Err(InvokeError::Busy) => tokio::task::yield_now().await,
                other => return other,
            }
        }
    });
    let told = client.json().await;
    assert_eq!(told["event"], "y");
    client.send(json!({"rid": told["cid"], "data": 1}).to_string()).await;
    assert!(soon("the answer", next).await.unwrap().is_ok());
}

#[tokio::test]
async fn the_api_calls_publishes_and_kicks() {
    let server = locked();
    let root = token(admin());
    let root = Some(root.as_str());
    let mut ada = server.client(Some(&token(chat()))).await;
    ada.subscribe("news").await;
    let list = server.http("GET", "/v1/sockets", root, "").await;
    assert_eq!((list.status, &list.body["count"]), (200, &json!(1)), "{}", list.body);
    let row = json!({"id": ada.id, "identity": "ada", "channels": ["news"]});
    assert_eq!(list.body["sockets"], json!([row]));
    assert_eq!(list.body["next"], Value::Null);

    let path = format!("/v1/sockets/{}/invocations", ada.id);
    let body = r#"{"event":"sum","data":[1,2]}"#;
    let (answer, ()) = tokio::join!(server.http("POST", &path, root, body), async {
        assert_eq!(ada.json().await, json!({"event": "sum", "data": [1, 2], "cid": 1}));
        ada.send(r#"{"rid":1,"data":3}"#).await;
    });
    assert_eq!((answer.status, answer.body), (200, json!({"data": 3})));
    let (answer, ()) = tokio::join!(server.http("POST", &path, root, body), async {
        ada.json().await;
        ada.send(r#"{"rid":2,"error":{"name":"E","message":"no"}}"#).await;
    });
    assert_eq!((answer.status, &answer.body["code"]), (502, &json!("client_error")));
    assert_eq!(answer.body["error"]["name"], "E");
    let impatient = r#"{"event":"sum","timeout_ms":1}"#;
    let answer = server.http("POST", &path, root, impatient).await;
    assert_eq!((answer.status, &answer.body["code"]), (504, &json!("timeout")));
    ada.json().await;

    let messages = format!("/v1/sockets/{}/messages", ada.id);
    let told = server.http("POST", &messages, root, r#"{"event":"hello","data":1}"#).await;
    assert_eq!(told.status, 202);
    assert_eq!(ada.json().await, json!({"event": "hello", "data": 1}));

    let body = r#"{"data": {"headline": "ü"}}"#;
    let published = server.http("POST", "/v1/channels/news/messages", root, body).await;
    assert_eq!((published.status, published.body), (200, json!({"delivered": 1})));
    assert_eq!(ada.message("news").await, json!({"headline": "ü"}));

    let fresh = token(TokenRequest { ttl_s: 900, ..chat() });
    let renewal = json!({ "token": fresh }).to_string();
    let token_path = format!("/v1/sockets/{}/token", ada.id);
    assert_eq!(server.http("PUT", &token_path, root, &renewal).await.status, 204);
    assert_eq!(ada.json().await, json!({"event": "#setAuthToken", "data": {"token": fresh}}));
    let bad = server.http("PUT", &token_path, root, r#"{"token":"x"}"#).await;
    assert_eq!((bad.status, &bad.body["code"]), (422, &json!("bad_token")));

    let kick = format!("/v1/channels/news/subscribers/{}?reason=be%20kind", ada.id);
    assert_eq!(server.http("DELETE", &kick, root, "").await.status, 204);
    let told = json!({"event": "#kickOut", "data": {"channel": "news", "message": "be kind"}});
    assert_eq!(ada.json().await, told);
    assert_eq!(server.http("DELETE", &kick, root, "").await.body["code"], "not_subscribed");
    let published = server.http("POST", "/v1/channels/news/messages", root, body).await;
    assert_eq!(published.body, json!({"delivered": 0}));
}

#[tokio::test]
async fn the_api_lists_in_pages() {
    let server = open();
    let mut clients = Vec::new();
    for _ in 0..5 {
        clients.push(server.client(None).await);
    }
    let mut expected: Vec<&str> = clients.iter().map(|client| client.id.as_str()).collect();
    expected.sort_unstable();
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/sockets?limit=2&after={after}");
        let page = server.http("GET", &path, None, "").await.body;
        assert_eq!(page["count"], 5);
        let rows = page["sockets"].as_array().unwrap();
        assert!(!rows.is_empty() && rows.len() <= 2);
        found.extend(rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(found, expected);
}

#[tokio::test]
async fn the_api_refuses_with_problems() {
    let server = locked();
    let mut ada = server.client(None).await;
    let (root, plain) = (token(admin()), token(chat()));
    let expired = token(TokenRequest { ttl_s: 0, ..admin() });
    let (root, plain, expired) = (Some(&*root), Some(&*plain), Some(&*expired));
    let own = format!("/v1/sockets/{}", ada.id);
    let messages = format!("{own}/messages");
    let nobody = "/v1/sockets/nobody/messages";
    let news = "/v1/channels/news/messages";
    let chat_a = "/v1/channels/chat.a/messages";
    let room = "/v1/channels/room%3Agarden/messages";
    let long = format!("{{\"data\":\"{}\"}}", "x".repeat(70_000));
    let event = r#"{"event":"x"}"#;
    for (method, path, token, body, status, code) in [
        ("GET", "/v1/sockets", None, "", 401, "not_allowed"),
        ("GET", "/v1/sockets", Some("x.y.z"), "", 401, "bad_token"),
        ("GET", "/v1/sockets", expired, "", 401, "bad_token"),
        ("GET", "/v1/sockets", plain, "", 403, "not_allowed"),
        ("GET", "/v1/sockets?limit=many", root, "", 400, "bad_request"),
        ("GET", "/v1/rooms", plain, "", 403, "not_allowed"),
        ("GET", "/v1/quality", None, "", 401, "not_allowed"),
        ("POST", &messages, plain, event, 403, "not_allowed"),
        ("POST", nobody, root, event, 404, "unknown_socket"),
        ("POST", &messages, root, "{", 400, "bad_request"),
        ("POST", &messages, root, r##"{"event":"#publish"}"##, 400, "bad_request"),
        ("POST", &messages, root, r#"{"event":""}"#, 400, "bad_request"),
        ("POST", news, plain, r#"{"data":1}"#, 403, "not_allowed"),
        ("POST", chat_a, plain, "{}", 400, "bad_request"),
        ("POST", chat_a, plain, &long, 400, "bad_request"),
        ("POST", room, root, r#"{"data":1}"#, 400, "bad_request"),
        ("GET", "/v1/nothing", root, "", 404, "path"),
        ("PATCH", "/v1/sockets", root, "", 405, "method"),
    ] {
        let answer = server.http(method, path, token, body).await;
        assert_eq!(answer.status, status, "{method} {path} {}", answer.body);
        assert_eq!(answer.body["code"], code, "{method} {path}");
        assert_eq!(answer.body["status"], status);
        assert!(answer.body["detail"].is_string());
        assert!(answer.head.contains("content-type: application/problem+json"), "{}", answer.head);
    }
    assert_eq!(server.http("POST", chat_a, plain, r#"{"data":1}"#).await.status, 200);
    assert_eq!(ada.call("ping", json!({}), 2).await["data"]["count"], 1, "nobody is affected");
}

#[tokio::test]
async fn a_moderator_sees_the_own_room_only() {
    let server = locked();
    let ids = |answer: &Answer| -> Vec<String> {
        let rooms = answer.body["rooms"].as_array().unwrap();
        rooms.iter().map(|room| room["id"].as_str().unwrap().to_owned()).collect()
    };
    let all = server.http("GET", "/v1/quality", Some(&token(admin())), "").await;
    assert_eq!(ids(&all), ["cellar", "garden"]);
    let claims = json!({"iss": KEY, "sub": "mod", "exp": unix_s() + 600,
        "video": {"room": "garden", "roomAdmin": true}});
    let key = jsonwebtoken::EncodingKey::from_secret(SECRET.as_bytes());
    let one = jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap();
    let one = server.http("GET", "/v1/quality", Some(&one), "").await;
    assert_eq!(ids(&one), ["garden"]);
}

/// In development mode anybody may do anything: pages of others must not reach the API.
#[tokio::test]
async fn pages_of_others_do_not_reach_the_api() {
    let server = open();
    let port = server.address.port();
    for (headers, status) in [
        (format!("Host: 127.0.0.1:{port}\r\n"), 200),
        (format!("Host: localhost:{port}\r\nOrigin: http://localhost:{port}\r\n"), 200),
        (format!("Host: 127.0.0.1:{port}\r\nOrigin: https://evil.example\r\n"), 403),
        (format!("Host: evil.example:{port}\r\n"), 421),
    ] {
        let answer = server.request("GET", "/v1/sockets", &headers, "").await;
        assert_eq!(answer.status, status, "{headers}");
    }
    assert_eq!(server.metrics.drops("http", "origin").get(), 1);
    assert_eq!(server.metrics.drops("http", "host").get(), 1);
}

fn unix_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_secs()
}
