// The eyes of a page: its camera's picture says when it was taken, by a time code, and the pictures of others that the
// page shows are read. Before any script of the page's own.
//
// The code is written into the frames of the browser's own fake camera, in a worker, straight into their plane of
// luma: so the camera costs what it costs, its frames come as they come, and nothing is drawn, scaled or turned into
// another colour space, as it would be with a canvas. A copy of a frame of 360p is 0.35 MB.
//
// It is read where the page shows it (requestVideoFrameCallback: when the frame is on the screen), some times a second
// a picture, and of the frame only the strip with the code is copied.
//
// The code: 36 blocks in two rows at the bottom, black or white, 20 bits of the wall clock in ms and their CRC-16. A
// block of a picture of 180 lines is 17 × 15 pixels: larger than what an encoder leaves blurred.
(() => {
  const code = `
    const COLUMNS = 18, ROWS = 2, OF_HEIGHT = 12, TIME_BITS = 20, CRC_BITS = 16, BLACK = 32, WHITE = 224;
    /** The strip's first line, of a picture of so many lines: an even one, as chroma has half of them. */
    const stripTop = (height) => (height - Math.floor((ROWS * height) / OF_HEIGHT)) & ~1;
    const crc = (time) => {
      let sum = 0xffff;
      for (let bit = TIME_BITS - 1; bit >= 0; bit--) {
        const flip = ((sum >> 15) ^ (time >> bit)) & 1;
        sum = ((sum << 1) & 0xffff) ^ (flip ? 0x1021 : 0);
      }
      return sum;
    };
    const bitsOf = (time) => [
      ...Array.from({ length: TIME_BITS }, (_, nth) => (time >> nth) & 1),
      ...Array.from({ length: CRC_BITS }, (_, nth) => (crc(time) >> nth) & 1),
    ];
    /** Each block's edges in a strip of luma: left, right, top, bottom. */
    const blocks = (width, height) =>
      Array.from({ length: COLUMNS * ROWS }, (_, nth) => {
        const [column, row] = [nth % COLUMNS, Math.floor(nth / COLUMNS)];
        const across = (one) => Math.round((one * width) / COLUMNS);
        const down = (one) => Math.round((one * height) / ROWS);
        return [across(column), across(column + 1), down(row), down(row + 1)];
      });
    const write = (luma, stride, width, height, time) => {
      const bits = bitsOf(time % 2 ** TIME_BITS);
      for (const [nth, [left, right, top, bottom]] of blocks(width, height).entries())
        for (let line = top; line < bottom; line++)
          luma.fill(bits[nth] ? WHITE : BLACK, line * stride + left, line * stride + right);
    };
    /** The time in a strip, or null where there is none. */
    const read = (luma, stride, width, height) => {
      let time = 0, sum = 0;
      for (const [nth, [left, right, top, bottom]] of blocks(width, height).entries()) {
        // Its middle: edges are blurred.
        let all = 0, count = 0;
        for (let down = 3; down <= 5; down++)
          for (let across = 3; across <= 5; across++, count++) {
            const line = top + Math.floor(((bottom - top) * down) / 8);
            all += luma[line * stride + left + Math.floor(((right - left) * across) / 8)];
          }
        const bit = all / count > (BLACK + WHITE) / 2 ? 1 : 0;
        if (nth < TIME_BITS) time |= bit << nth;
        else sum |= bit << (nth - TIME_BITS);
      }
      return sum === crc(time) ? time : null;
    };`;
  const stamp = `${code}
    const transform = async (frame, sink) => {
      const now = Date.now();
      const { timestamp, format, displayWidth, displayHeight } = frame;
      const { width, height } = frame.visibleRect;
      const data = new Uint8Array(frame.allocationSize());
      const layout = await frame.copyTo(data);
      frame.close();
      const top = stripTop(height), [{ offset, stride }] = layout;
      write(data.subarray(offset + top * stride), stride, width, height - top, now);
      const size = { codedWidth: width, codedHeight: height, displayWidth, displayHeight };
      sink.enqueue(new VideoFrame(data, { timestamp, format, layout, ...size, transfer: [data.buffer] }));
    };
    onmessage = ({ data: { readable, writable } }) =>
      readable.pipeThrough(new TransformStream({ transform })).pipeTo(writable).catch((error) => postMessage(String(error)));`;

  /** A camera's track whose frames say when they were taken. */
  const stamped = (camera) => {
    const { readable } = new MediaStreamTrackProcessor({ track: camera });
    const track = new MediaStreamTrackGenerator({ kind: "video" });
    const worker = new Worker(URL.createObjectURL(new Blob([stamp], { type: "text/javascript" })));
    worker.onmessage = ({ data }) => console.error(`no time code: ${data}`);
    worker.onerror = ({ message }) => console.error(`no time code: ${message}`);
    const { writable } = track;
    worker.postMessage({ readable, writable }, [readable, writable]);
    const stop = track.stop.bind(track);
    track.stop = () => (stop(), camera.stop());
    // The page chooses the sizes that it sends by the camera's.
    track.getSettings = () => camera.getSettings();
    return track;
  };
  const devices = navigator.mediaDevices;
  if (!devices) return;
  const open = devices.getUserMedia.bind(devices);
  devices.getUserMedia = async (wanted) => {
    const stream = await open(wanted);
    const cameras = stream.getVideoTracks().map(stamped);
    return new MediaStream([...stream.getAudioTracks(), ...cameras]);
  };

  const { read, stripTop } = new Function(`${code}; return { read, stripTop };`)();
  const LOOK_MS = 250;
  const seen = [];
  const looking = new WeakSet();
  /** Whose track a video element shows, by its id in the room; null of the page's own. */
  const trackOf = (video) => {
    const room = window.moim?.room;
    const shown = video.srcObject?.getVideoTracks()[0];
    for (const { tracks } of room?.participants.values() ?? [])
      for (const { id, kind } of tracks.values())
        if (kind === "video" && room.mediaTrack(id) === shown) return id;
    return null;
  };
  const look = async (video, { expectedDisplayTime }) => {
    const shown = Date.now() + expectedDisplayTime - performance.now();
    const track = trackOf(video);
    const frame = new VideoFrame(video);
    const { x, y, width, height } = frame.visibleRect;
    const top = stripTop(height);
    const rect = { x, y: y + top, width, height: height - top };
    const data = new Uint8Array(frame.allocationSize({ rect }));
    const [{ offset, stride }] = await frame.copyTo(data, { rect }).finally(() => frame.close());
    const time = read(data.subarray(offset), stride, width, height - top);
    const wraps = 2 ** 20;
    const ms = time === null ? NaN : (((shown - time) % wraps) + wraps) % wraps;
    // One from the future: the element had the next frame already when it was asked for this one.
    const known = ms < wraps / 2 ? Math.round(10 * ms) / 10 : null;
    if (track && seen.length < 1000) seen.push({ track, ms: known });
  };
  // Pictures of others that were shown since the last call, those that were looked at: how long each was under way
  // from the camera in ms, null where it had no readable code.
  window.moimEyes = { take: () => seen.splice(0) };
  setInterval(() => {
    for (const video of document.querySelectorAll("video")) {
      if (looking.has(video) || trackOf(video) === null) continue;
      looking.add(video);
      video.requestVideoFrameCallback((_, frame) => {
        looking.delete(video);
        look(video, frame).catch((error) => console.error(`no time code: ${error}`));
      });
    }
  }, LOOK_MS);
})();
