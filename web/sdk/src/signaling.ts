import { type AGClientSocket, create } from "socketcluster-client";
import { reconnectDelayMs } from "./reconnect.ts";
import { call, type ErrorCode, errorCode, SOCKET_PATH } from "./wire.ts";

/** A request that failed: refused by the server, or not answered. */
export class MoimError extends Error {
  override name = "MoimError";
  /** @param code the server's, or `disconnected` where no answer came */
  constructor(
    readonly code: ErrorCode | "disconnected" | "ended" | "media_failed",
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
const FIRST_CONNECT_MS = 10_000;

/** The realtime socket: calls, the channels of rooms, and its own way of coming back. */
export class Signaling {
  /** The socket itself, for what applications do with it. */
  readonly socket: AGClientSocket;
  readonly #rooms = new Map<string, SignalingHooks>();
  readonly #waiting = new Set<() => void>();
  #attempt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #ended = false;

  /**
   * @param url the server's `http:` or `https:` address, with its base path if it has one
   * @param token a JWT that the socket authenticates with, at each handshake
   */
  constructor(url: string, token?: string) {
    const { hostname, pathname, port, protocol } = new URL(url);
    const secure = protocol === "https:" || protocol === "wss:";
    this.socket = create({
      hostname,
      port: port === "" ? (secure ? 443 : 80) : Number(port),
      secure,
      path: pathname.replace(/\/*$/, "") + SOCKET_PATH,
      autoConnect: false,
      autoReconnect: false,
      connectTimeout: CONNECT_TIMEOUT_MS,
      ackTimeout: ANSWER_TIMEOUT_MS,
      disconnectOnUnload: false,
      authEngine: tokenInMemory(token ?? null),
    });
    // The server pushes a room's events to its people without a subscription; the client would drop what comes on
    // a channel that it did not subscribe. So they are taken where frames are decoded.
    const plain = this.socket.codec;
    this.socket.codec = {
      encode: (packet: unknown) => plain.encode(packet),
      decode: (frame: unknown) => {
        const decoded = plain.decode(frame);
        for (const packet of Array.isArray(decoded) ? decoded : [decoded]) this.#taken(packet);
        return decoded;
      },
    };
    void this.#each(this.socket.listener("connect"), () => {
      this.#attempt = 0;
      for (const open of [...this.#waiting]) open();
      if (!this.#ended) for (const hooks of [...this.#rooms.values()]) hooks.opened();
    });
    void this.#each(this.socket.listener("close"), () => this.#closed());
    this.socket.connect();
  }

  /** Hands on what comes on a room's channel, and how the socket does; returns a function that ends it. */
  attach(channel: string, hooks: SignalingHooks): () => void {
    this.#rooms.set(channel, hooks);
    return () => {
      if (this.#rooms.get(channel) === hooks) this.#rooms.delete(channel);
    };
  }

  /** Whether the socket is open. */
  get isOpen(): boolean {
    return this.socket.state === this.socket.OPEN;
  }

  /** Resolves when the socket is open, for the first time; rejects where the server does not answer. */
  whenOpen(): Promise<void> {
    if (this.isOpen) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const open = () => {
        clearTimeout(timer);
        this.#waiting.delete(open);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#waiting.delete(open);
        reject(new MoimError("disconnected", "the server does not answer: is it running and reachable?"));
      }, FIRST_CONNECT_MS);
      this.#waiting.add(open);
    });
  }

  /** Calls the server and awaits its answer. Rejects with {@link MoimError}. */
  async call(name: string, data: unknown, timeoutMs = ANSWER_TIMEOUT_MS): Promise<unknown> {
    if (this.#ended) throw new MoimError("ended", `${name}: the room is left`);
    if (!this.isOpen) throw new MoimError("disconnected", `${name}: no connection to the server`);
    try {
      return await this.socket.invoke(name, data, { ackTimeout: timeoutMs });
    } catch (cause) {
      const { code, message } = cause as { code?: unknown; message?: string };
      const known = safeCode(code);
      throw new MoimError(known ?? "disconnected", message ?? `${name} failed`);
    }
  }

  /** Tells the server something without an answer; without a connection it is lost. */
  tell(name: string, data: unknown): void {
    if (!this.#ended && this.isOpen) void this.socket.transmit(name, data);
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
      if (this.isOpen) this.socket.disconnect(4000, "no answer to a probe");
    }
  }

  /** Ends the socket for good. */
  close(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
    this.socket.disconnect(1000);
    this.socket.killAllChannels();
    this.socket.killAllListeners();
  }

  #closed(): void {
    if (this.#ended) return;
    for (const hooks of [...this.#rooms.values()]) hooks.lost();
    clearTimeout(this.#timer);
    const delay = reconnectDelayMs(this.#attempt++, Math.random());
    this.#timer = setTimeout(() => this.#connectNow(), delay);
  }

  #connectNow(): void {
    clearTimeout(this.#timer);
    if (!this.#ended && this.socket.state === this.socket.CLOSED) this.socket.connect();
  }

  #taken(packet: unknown): void {
    const { event, data } = (packet ?? {}) as {
      event?: unknown;
      data?: { channel?: unknown; data?: unknown };
    };
    if (event !== "#publish" || typeof data?.channel !== "string") return;
    this.#rooms.get(data.channel)?.event(data.data);
  }

  async #each<T>(stream: AsyncIterable<T>, take: (item: T) => void): Promise<void> {
    for await (const item of stream) take(item);
  }
}

/** Keeps the token for this socket alone: storage of the page would share it with every other tab. */
function tokenInMemory(token: string | null) {
  let kept: unknown = token;
  return {
    saveToken: async (_name: string, fresh: object | string) => {
      kept = fresh;
      return fresh;
    },
    removeToken: async () => {
      const old = kept as string | null;
      kept = null;
      return old;
    },
    loadToken: async () => kept as string | null,
  };
}

function safeCode(code: unknown): ErrorCode | null {
  try {
    return errorCode(code, "code");
  } catch {
    return null;
  }
}
