// A record as the lab would write it, of more people than this machine can host: for the page that shows it.

import { closeSync, mkdirSync, openSync, readFileSync, readdirSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { random } from "./evidence.mjs";

const SAMPLE_S = 3;

/**
 * Writes the record of `people` who stay `seconds` in a mixed room, each with a sample every 3 s. They come in the first
 * quarter (300 s at most); a few have a bad path; from 60 % of the time on everybody loses 2 %. Meta, summary and machine are
 * those of a real run in `model`.
 */
export function synthetic(model, into, { people, seconds }) {
  const next = random(people);
  const read = (name) => readFileSync(join(model, name), "utf8");
  const json = (name) => JSON.parse(read(name));
  mkdirSync(into, { recursive: true });
  const write = (name, text) => writeFileSync(join(into, name), text);
  const all = Array.from({ length: people }, (_, at) => ({
    name: `bot-${at + 1}`,
    participant: `p-${2 * at}`,
    comes_s: Math.floor(next() * Math.min(300, seconds / 4)),
    // Nearly all have a good path.
    bad: next() ** 12,
  }));
  const meta = json("meta.json");
  const [person] = meta.people;
  meta.people = all.map(({ name, participant }) => ({ ...person, name, participant }));
  write("meta.json", JSON.stringify({ ...meta, name: `synthetic-${people}`, duration_s: seconds }));
  write("summary.json", JSON.stringify({ ...json("summary.json"), people, subscriptions: people, duration_s: seconds }));
  const machine = read("machine.jsonl").split("\n").filter(Boolean).map((line) => JSON.parse(line));
  const row = (second) => ({ ...machine[second % machine.length], t_ms: 1000 * (second + 1) });
  write("machine.jsonl", Array.from({ length: seconds }, (_, second) => `${JSON.stringify(row(second))}\n`).join(""));
  const joined = all.map(({ name, comes_s }) => ({ t_ms: 1000 * comes_s, text: "connected", person: name, level: "info" }));
  const fault = { t_ms: 600 * seconds, text: "the server's link loses 2 %", level: "error" };
  const events = [...joined.sort((a, b) => a.t_ms - b.t_ms), fault];
  write("events.jsonl", events.map((event) => `${JSON.stringify(event)}\n`).join(""));
  const file = openSync(join(into, "samples.jsonl"), "w");
  for (let at_s = SAMPLE_S; at_s <= seconds; at_s += SAMPLE_S) {
    const there = all.filter(({ comes_s }) => at_s >= comes_s + SAMPLE_S);
    const lines = there.map((one) => `${JSON.stringify(sample(one, at_s, at_s > 0.6 * seconds, next))}\n`);
    writeSync(file, lines.join(""));
  }
  closeSync(file);
}

/** What somebody hears of the mix in 3 s. */
function sample({ name, participant, bad }, at_s, isLossy, next) {
  const packets = 150;
  const share = 0.001 + 0.1 * bad + (isLossy ? 0.02 : 0);
  const lost = Math.round(packets * share * 2 * next());
  const mos_lq = 4.3 - 0.03 * lost;
  return {
    t_ms: 1000 * at_s + Math.floor(300 * next()),
    person: name,
    kind: "bot",
    sample: {
      participant,
      at_ms: 1000 * at_s,
      interval_ms: 1000 * SAMPLE_S,
      rtt_ms: 8 + 4 * next() + 60 * bad,
      available_outgoing_kbps: null,
      srtp_cipher: null,
      join_to_first_audio_ms: null,
      join_to_first_frame_ms: null,
      sent: [],
      received: [
        {
          participant: "",
          track: "mix",
          kind: "audio",
          codec: "opus",
          packets_received: packets - lost,
          packets_lost: lost,
          jitter_ms: 2 + 3 * next() + 20 * bad,
          gap_ms: 5 + 10 * next() + 60 * bad,
          transit_ms: 15 + 5 * next() + 60 * bad,
          mouth_to_ear_ms: 70 + 20 * next() + 120 * bad,
          bitrate_kbps: 31,
          mos_lq,
          mos_cq: mos_lq - 0.1 * next() - bad,
        },
      ],
    },
  };
}

/** The one record in a directory. */
export const recordIn = (dir) => join(dir, readdirSync(dir).sort()[0]);
