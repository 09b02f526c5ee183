import { type AGClientSocket, create } from "socketcluster-client";
import { reconnectDelayMs } from "./reconnect.ts";
import { call, type ErrorCode, errorCode, SOCKET_PATH } from "./wire.ts";

/** A request that failed: refused by the server, or not answered. */
export class MoimError extends Error {
  override name = "MoimError";
  /** @param code the server's, or `disconnected` where no answer came */
  constructor(
    readonly code: ErrorCode | "disconnected" | "ended",
    message: string,
  ) {
    super(message);
  }
}

/** What the socket tells its owner. */
export interface SignalingHooks {
  /** The socket is open, for the first time or again. */
  opened(): void;
  /** The socket was lost; it comes back by itself. */
  lost(): void;
  /** A message came on the channel. */
  event(data: unknown): void;
}

const ANSWER_TIMEOUT_MS = 10_000;
const PROBE_TIMEOUT_MS = 2_000;
const CONNECT_TIMEOUT_MS = 8_000;

/** The realtime socket: calls, one channel, and its own way of coming back. */
export class Signaling {
  readonly #socket: AGClientSocket;
  readonly #hooks: SignalingHooks;
  #attempt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #ended = false;

  /**
   * @param url the server's `http:` or `https:` address
   * @param channel where the room's events come
   */
  constructor(url: string, channel: string, hooks: SignalingHooks) {
    const { hostname, port, protocol } = new URL(url);
    const secure = protocol === "https:" || protocol === "wss:";
    this.#hooks = hooks;
    this.#socket = create({
      hostname,
      port: port === "" ? (secure ? 443 : 80) : Number(port),
      secure,
      path: SOCKET_PATH,
      autoReconnect: false,
      connectTimeout: CONNECT_TIMEOUT_MS,
      ackTimeout: ANSWER_TIMEOUT_MS,
      disconnectOnUnload: false,
    });
    // The server pushes a room's events without a subscription. This one is never sent, since the socket stays
    // unauthenticated; it makes the client keep what comes on the channel, with no race against `room.join`.
    const events = this.#socket.subscribe(channel, { waitForAuth: true });
    void this.#each(events, (data) => hooks.event(data));
    void this.#each(this.#socket.listener("connect"), () => {
      this.#attempt = 0;
      if (!this.#ended) hooks.opened();
    });
    void this.#each(this.#socket.listener("close"), () => this.#closed());
  }

  /** Whether the socket is open. */
  get isOpen(): boolean {
    return this.#socket.state === this.#socket.OPEN;
  }

  /** Calls the server and awaits its answer. Rejects with {@link MoimError}. */
  async call(name: string, data: unknown, timeoutMs = ANSWER_TIMEOUT_MS): Promise<unknown> {
    if (this.#ended) throw new MoimError("ended", `${name}: the room is left`);
    if (!this.isOpen) throw new MoimError("disconnected", `${name}: no connection to the server`);
    try {
      return await this.#socket.invoke(name, data, { ackTimeout: timeoutMs });
    } catch (cause) {
      const { code, message } = cause as { code?: unknown; message?: string };
      const known = safeCode(code);
      throw new MoimError(known ?? "disconnected", message ?? `${name} failed`);
    }
  }

  /** Tells the server something without an answer; without a connection it is lost. */
  tell(name: string, data: unknown): void {
    if (!this.#ended && this.isOpen) void this.#socket.transmit(name, data);
  }

  /** The network changed: finds out at once whether the socket still works. */
  async probe(): Promise<void> {
    if (this.#ended) return;
    if (!this.isOpen) {
      this.#attempt = 0;
      this.#connectNow();
      return;
    }
    try {
      await this.call(call.ping, {}, PROBE_TIMEOUT_MS);
    } catch {
      if (this.isOpen) this.#socket.disconnect(4000, "no answer to a probe");
    }
  }

  /** Ends the socket for good. */
  close(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
    this.#socket.disconnect(1000);
    this.#socket.killAllChannels();
    this.#socket.killAllListeners();
  }

  #closed(): void {
    if (this.#ended) return;
    this.#hooks.lost();
    clearTimeout(this.#timer);
    const delay = reconnectDelayMs(this.#attempt++, Math.random());
    this.#timer = setTimeout(() => this.#connectNow(), delay);
  }

  #connectNow(): void {
    clearTimeout(this.#timer);
    if (!this.#ended && this.#socket.state === this.#socket.CLOSED) this.#socket.connect();
  }

  async #each<T>(stream: AsyncIterable<T>, take: (item: T) => void): Promise<void> {
    for await (const item of stream) take(item);
  }
}

function safeCode(code: unknown): ErrorCode | null {
  try {
    return errorCode(code, "code");
  } catch {
    return null;
  }
}
