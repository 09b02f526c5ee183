#!/usr/bin/env python3
"""Records what sizes a camera's packets have in Chromium: media/chromium-camera.json.

Two browsers with Chromium's own fake camera meet in a room of a server of ours, in a network
namespace of their own; the lengths of the packets that one of them sends are noted as they pass
`lo`. Nothing of what is in them is kept. The result is committed: run this only to change it.

  cargo build --release && scripts/in-namespace.sh scripts/record-camera.py
"""

import json
import os
import socket
import struct
import subprocess
import tempfile
import time

SECONDS = 10
TAG = 16  # of AES-GCM
PACKET_OUTGOING = 4
VIDEO_SECONDS = SECONDS + 25
SCENARIO = f"""
name: record-camera
serve: {{ cpus: shared }}
duration: {VIDEO_SECONDS}s
rooms: [{{ audio: sfu, video: sfu, people: {{ chromium: 2 }} }}]
"""


def rtp(datagram):
    """(ssrc, timestamp, length of the payload) of an SRTP packet; None of anything else."""
    if len(datagram) < 12 + TAG or datagram[0] >> 6 != 2 or 64 <= datagram[1] & 0x7F < 96:
        return None
    timestamp, ssrc = struct.unpack_from("!II", datagram, 4)
    header = 12 + 4 * (datagram[0] & 0x0F)
    if datagram[0] & 0x10:
        header += 4 + 4 * struct.unpack_from("!H", datagram, header + 2)[0]
    return ssrc, timestamp, len(datagram) - header - TAG


def udp(packet):
    """What an IPv4 packet carries by UDP."""
    if packet[0] >> 4 != 4 or packet[9] != 17:
        return None
    return packet[4 * (packet[0] & 0x0F) + 8 :]


def main():
    moim = os.environ.get("MOIM_BIN") or os.path.join(
        os.environ.get("CARGO_TARGET_DIR", "target"), "release", "moim"
    )
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    tap.bind(("lo", 0x0800))
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    tap.settimeout(1)
    streams = {}
    with tempfile.TemporaryDirectory() as work:
        scenario = os.path.join(work, "record-camera.yaml")
        with open(scenario, "w", encoding="utf-8") as file:
            file.write(SCENARIO)
        load = subprocess.Popen([moim, "load", scenario, "--runs", work])
        end = time.monotonic() + VIDEO_SECONDS + 60
        while load.poll() is None and time.monotonic() < end:
            try:
                packet, (_, _, kind, _, _) = tap.recvfrom(65536)
            except TimeoutError:
                continue
            payload = udp(packet) if kind != PACKET_OUTGOING else None
            found = rtp(payload) if payload else None
            if found:
                ssrc, timestamp, length = found
                streams.setdefault(ssrc, []).append((time.monotonic(), timestamp, length))
        load.terminate()
        load.wait()

    # Sound has one packet a timestamp, and small ones; of two cameras the first is taken, and of
    # its copy at the other browser nothing: that has another SSRC and comes later.
    cameras = [p for p in streams.values() if max(length for _, _, length in p) > 700 and len(p) > 100]
    camera = min(cameras, key=lambda packets: packets[0][0])
    begin = camera[0][0]
    frames = {}
    for at, timestamp, length in camera:
        if at - begin < SECONDS:
            frames.setdefault(timestamp, []).append(length)
    rate = round((len(frames) - 1) / ((max(frames) - min(frames)) / 90_000))
    packets = sum(map(len, frames.values()))
    kbit = sum(map(sum, frames.values())) * 8 / SECONDS / 1000
    print(f"{len(frames)} frames at {rate} a second, {packets} packets, {kbit:.0f} kbit/s")
    lines = ",\n".join("    " + json.dumps(sizes) for _, sizes in sorted(frames.items()))
    with open("media/chromium-camera.json", "w", encoding="utf-8") as file:
        file.write(f'{{\n  "frames_per_second": {rate},\n  "payload_bytes": [\n{lines}\n  ]\n}}\n')


if __name__ == "__main__":
    main()
