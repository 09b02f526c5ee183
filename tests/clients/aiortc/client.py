"""Joins a room, sends a tone and a picture, receives one voice and one picture of others.
python3 client.py ws://127.0.0.1:7880 garden Ada"""
import asyncio, fractions, itertools, json, math, struct, sys
import av, websockets
from aiortc import MediaStreamTrack, RTCBundlePolicy, RTCConfiguration, RTCPeerConnection
from aiortc import RTCSessionDescription, VideoStreamTrack

URL, ROOM, NAME = sys.argv[1:4]
RATE, SAMPLES = 48000, 960

class Tone(MediaStreamTrack):
    kind = "audio"
    times = None
    async def recv(self):
        loop = asyncio.get_running_loop()
        self.times = self.times or (loop.time(), itertools.count())
        nth = next(self.times[1])
        await asyncio.sleep(max(0, self.times[0] + nth * SAMPLES / RATE - loop.time()))
        tone = [int(8000 * math.sin(6.2832 * 440 * (nth * SAMPLES + i) / RATE)) for i in range(SAMPLES)]
        frame = av.AudioFrame(format="s16", layout="mono", samples=SAMPLES)
        frame.planes[0].update(struct.pack(f"{SAMPLES}h", *tone))
        frame.pts, frame.sample_rate, frame.time_base = nth * SAMPLES, RATE, fractions.Fraction(1, RATE)
        return frame

async def count(track, came):
    while True:
        await track.recv()
        came[track.kind] += 1

async def main():
    # Without this policy, aiortc waits for a second line of a kind on a transport that it closed.
    peer = RTCPeerConnection(RTCConfiguration(bundlePolicy=RTCBundlePolicy.MAX_BUNDLE))
    came, answers = {"audio": 0, "video": 0}, {}
    peer.on("track", lambda track: asyncio.ensure_future(count(track, came)))
    async with websockets.connect(f"{URL}/socketcluster/") as socket:
        async def ask(event, data):
            cid = len(answers) + 1
            answers[cid] = asyncio.get_running_loop().create_future()
            await socket.send(json.dumps({"event": event, "data": data, "cid": cid}))
            return await answers[cid]
        async def read():
            async for text in socket:
                if text == "":  # The server's ping.
                    await socket.send("")
                    continue
                message = json.loads(text)
                if "rid" in message:
                    if "error" in message: sys.exit(f"refused: {message['error']}")
                    answers[message["rid"]].set_result(message.get("data"))
        reading = asyncio.ensure_future(read())
        await ask("#handshake", {"authToken": None})
        await ask("room.join", {"room": ROOM, "name": NAME, "audio": "sfu", "video": "sfu"})
        # What this client sends, each on a line of its own; then lines to receive on.
        sends = [peer.addTransceiver(track, direction="sendonly") for track in (Tone(), VideoStreamTrack())]
        for kind in ("audio", "video"):
            peer.addTransceiver(kind, direction="recvonly")
        await peer.setLocalDescription(await peer.createOffer())
        tracks = [{"mid": line.mid, "kind": line.sender.kind, "name": NAME} for line in sends]
        answer = await ask("room.offer", {"sdp": peer.localDescription.sdp, "tracks": tracks})
        await peer.setRemoteDescription(RTCSessionDescription(answer["sdp"], "answer"))
        while not reading.done():
            await asyncio.sleep(1)
            print(json.dumps({"state": peer.connectionState, **came}), flush=True)

asyncio.run(main())
