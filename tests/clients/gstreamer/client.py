"""Joins a room, sends a tone and a moving picture, receives one voice and one picture of others:
python3 client.py ws://127.0.0.1:7880 garden Ada"""
import asyncio, base64, hashlib, json, re, sys
import gi, websockets
gi.require_version("Gst", "1.0")
gi.require_version("GstSdp", "1.0")
gi.require_version("GstWebRTC", "1.0")
from gi.repository import Gst, GstSdp, GstWebRTC

URL, ROOM, NAME = sys.argv[1:4]
OPUS = "application/x-rtp,media=audio,encoding-name=OPUS,clock-rate=48000,encoding-params=(string)2,payload=111"
VP8 = "application/x-rtp,media=video,encoding-name=VP8,clock-rate=90000,payload=96,rtcp-fb-nack-pli=true"
SENDS = f"""webrtcbin name=peer bundle-policy=max-bundle
  audiotestsrc is-live=true ! opusenc ! rtpopuspay pt=111 ! {OPUS} ! peer.
  videotestsrc is-live=true ! video/x-raw,width=320,height=240,framerate=15/1
    ! vp8enc deadline=1 keyframe-max-dist=60 ! rtpvp8pay pt=96 mtu=1200 picture-id-mode=15-bit ! {VP8} ! peer."""
# moim's DTLS has ECDSA certificates alone, and webrtcbin makes one of RSA. This command makes another:
# openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=client -keyout key.pem -out cert.pem
CERTIFICATE = open(sys.argv[4]).read() if len(sys.argv) > 4 else None


def fingerprint(pem):
    """Of the certificate alone: webrtcbin 1.22 takes that of certificate and key together."""
    block = re.search("-----BEGIN CERTIFICATE-----(.*?)-----END", pem, re.S).group(1)
    return hashlib.sha256(base64.b64decode(block)).digest().hex(":").upper()


def certify(_bin, _parent, element):
    if CERTIFICATE and element.get_name().startswith("dtlssrtpdec"):
        element.set_property("pem", CERTIFICATE)


async def main():
    Gst.init(None)
    loop, came, answers = asyncio.get_running_loop(), {"audio": 0, "video": 0}, {}
    pipeline = Gst.parse_launch(SENDS)
    peer = pipeline.get_by_name("peer")
    peer.connect("deep-element-added", certify)
    sends = [peer.emit("get-transceiver", index) for index in range(2)]
    for line in sends:
        line.set_property("direction", GstWebRTC.WebRTCRTPTransceiverDirection.SENDONLY)
    for caps in (OPUS, VP8):
        direction = GstWebRTC.WebRTCRTPTransceiverDirection.RECVONLY
        peer.emit("add-transceiver", direction, Gst.Caps.from_string(caps))

    def count(pad, info, kind):
        marker = info.get_buffer().extract_dup(1, 1)[0] & 0x80
        came[kind] += 1 if kind == "audio" or marker else 0
        return Gst.PadProbeReturn.OK

    def incoming(_peer, pad):
        if pad.get_direction() != Gst.PadDirection.SRC:
            return
        kind = pad.get_current_caps().get_structure(0).get_string("media")
        pad.add_probe(Gst.PadProbeType.BUFFER, count, kind)
        sink = Gst.ElementFactory.make("fakesink")
        sink.set_property("sync", False)
        pipeline.add(sink)
        sink.sync_state_with_parent()
        pad.link(sink.get_static_pad("sink"))

    async def promised(signal, *arguments):
        """Lets webrtcbin do something. What it replies lives as long as the promise."""
        promise = Gst.Promise.new()
        peer.emit(signal, *arguments, promise)
        await loop.run_in_executor(None, promise.wait)
        return promise

    peer.connect("pad-added", incoming)
    async with websockets.connect(f"{URL}/socketcluster/") as socket:
        async def ask(event, data):
            cid = len(answers) + 1
            answers[cid] = loop.create_future()
            await socket.send(json.dumps({"event": event, "data": data, "cid": cid}))
            return await answers[cid]

        async def read():
            async for text in socket:
                if text == "":  # The server's ping.
                    await socket.send("")
                    continue
                message = json.loads(text)
                if "error" in message:
                    sys.exit(f"refused: {message['error']}")
                if "rid" in message:
                    answers[message["rid"]].set_result(message.get("data"))

        reading = asyncio.ensure_future(read())
        await ask("#handshake", {"authToken": None})
        await ask("room.join", {"room": ROOM, "name": NAME, "audio": "sfu", "video": "sfu"})
        pipeline.set_state(Gst.State.PLAYING)
        made = await promised("create-offer", None)
        reply = made.get_reply()
        offer = reply.get_value("offer")
        await promised("set-local-description", offer)
        while peer.get_property("ice-gathering-state").value_nick != "complete":
            await asyncio.sleep(0.05)
        sdp = peer.get_property("local-description").sdp.as_text()
        if CERTIFICATE:
            sdp = re.sub(r"(a=fingerprint:sha-256) \S+", r"\1 " + fingerprint(CERTIFICATE), sdp)
        tracks = [
            {"mid": mid, "kind": kind, "name": NAME}
            for mid, kind in zip(re.findall(r"a=mid:(\S+)", sdp), ("audio", "video"))
        ]
        answer = (await ask("room.offer", {"sdp": sdp, "tracks": tracks}))["sdp"]
        _, parsed = GstSdp.SDPMessage.new_from_text(answer)
        kind = GstWebRTC.WebRTCSDPType.ANSWER
        await promised("set-remote-description", GstWebRTC.WebRTCSessionDescription.new(kind, parsed))
        while not reading.done():
            await asyncio.sleep(1)
            state = peer.get_property("connection-state").value_nick
            print(json.dumps({"state": state, **came}), flush=True)


asyncio.run(main())
