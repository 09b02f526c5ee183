// Firefox (Debian's firefox-esr), driven by WebDriver BiDi (https://w3c.github.io/webdriver-bidi/) over its own WebSocket.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import WebSocket from "ws";
import { keepPeers, markJoin, scratch, until } from "./world.mjs";

/** A camera and a microphone that nobody is asked for. */
const PREFERENCES = {
  "media.navigator.streams.fake": true,
  "media.navigator.permission.disabled": true,
  "media.peerconnection.ice.obfuscate_host_addresses": false,
  "media.autoplay.default": 0,
  "media.autoplay.blocking_policy": 0,
  // Nothing is fetched: codecs and lists that Firefox would look for on the net.
  "media.gmp-manager.updateEnabled": false,
  "app.update.enabled": false,
  "datareporting.policy.dataSubmissionEnabled": false,
  "network.captive-portal-service.enabled": false,
  "network.connectivity-service.enabled": false,
  "services.settings.server": "data:,",
  "browser.shell.checkDefaultBrowser": false,
  "remote.prefs.recommended": true,
};

/** A session: calls by id, each answered once. */
class Session {
  #socket;
  #waiting = new Map();
  #next = 1;

  constructor(socket) {
    this.#socket = socket;
    socket.on("message", (data) => {
      const { id, result, error, message } = JSON.parse(data);
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error) waiting?.reject(new Error(`${error}: ${message}`));
      else waiting?.resolve(result);
    });
    socket.on("close", () => {
      for (const { reject } of this.#waiting.values()) reject(new Error("Firefox has ended"));
    });
  }

  call(method, params = {}) {
    const id = this.#next++;
    this.#socket.send(JSON.stringify({ id, method, params }));
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }
}

/** Starts Firefox without a window; ends it after the test. */
async function launch(t) {
  const profile = scratch();
  const lines = Object.entries(PREFERENCES).map(
    ([key, value]) => `user_pref("${key}", ${JSON.stringify(value)});`,
  );
  writeFileSync(join(profile, "user.js"), lines.join("\n"));
  const args = [
    "--headless",
    "--no-remote",
    "--profile",
    profile,
    "--remote-debugging-port",
    "0",
    "about:blank",
  ];
  const child = spawn("firefox-esr", args, {
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...process.env, HOME: profile, MOZ_DISABLE_AUTO_SAFE_MODE: "1" },
  });
  let log = "";
  child.stderr.on("data", (data) => (log += data));
  const ended = once(child, "exit");
  t.after(async () => {
    child.kill("SIGTERM");
    await ended;
  });
  const url = await until(
    "Firefox",
    () => {
      if (child.exitCode !== null) throw new Error(`Firefox ended: ${log}`);
      return /WebDriver BiDi listening on (ws:\S+)/.exec(log)?.[1];
    },
    60,
  );
  const socket = new WebSocket(`${url}/session`);
  await once(socket, "open");
  const session = new Session(socket);
  await session.call("session.new", { capabilities: {} });
  return session;
}

/** In a page, before its own code: keeps the errors of the page. */
const KEEP_ERRORS = `() => {
  window.errors = [];
  window.addEventListener("error", (event) => window.errors.push(String(event.error ?? event.message)));
  window.addEventListener("unhandledrejection", (event) => window.errors.push(String(event.reason)));
}`;

/** Opens the call page in Firefox and joins. What it returns works where a person of `world.mjs` does. */
export async function enterByFirefox(t, url, room, name, query = {}) {
  const session = await launch(t);
  const { contexts } = await session.call("browsingContext.getTree");
  const { context } = contexts[0];
  for (const functionDeclaration of [KEEP_ERRORS, String(keepPeers), String(markJoin)])
    await session.call("script.addPreloadScript", { functionDeclaration });
  const options = new URLSearchParams({ name, join: "1", processing: "off", ...query });
  await session.call("browsingContext.navigate", {
    context,
    url: `${url}/room/${room}?${options}`,
    wait: "complete",
  });
  /** The value of a function of the page's, by way of JSON. */
  const evaluate = async (of, argument) => {
    const call = `Promise.resolve((${of})(${JSON.stringify(argument) ?? ""})).then((value) => JSON.stringify(value) ?? "null")`;
    const { type, result, exceptionDetails } = await session.call("script.evaluate", {
      expression: call,
      target: { context },
      awaitPromise: true,
    });
    if (type !== "success") throw new Error(exceptionDetails?.text ?? "the page threw");
    return JSON.parse(result.value);
  };
  await until(`${name} to connect`, async () => {
    const state = await evaluate(() => window.moim?.state());
    if (state?.error) throw new Error(JSON.stringify(state));
    return state?.state === "connected";
  });
  return { name, page: { evaluate }, errors: () => evaluate(() => window.errors) };
}
