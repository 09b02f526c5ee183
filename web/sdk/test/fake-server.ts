import type { AddressInfo } from "node:net";
import { type WebSocket, WebSocketServer } from "ws";
import type { RoomEvent } from "../src/wire.ts";

type Handler = (data: never, socket: WebSocket) => unknown;

/** Refuses a call. */
export class Refusal extends Error {
  constructor(readonly code: string) {
    super(`refused: ${code}`);
  }
}

/** A server that speaks the socket protocol on 127.0.0.1 and answers calls from a table. */
export class FakeServer {
  /** Calls and transmits as they came. */
  readonly calls: { event: string; data: unknown; transmitted: boolean }[] = [];
  /** Tokens of handshakes. */
  readonly tokens: string[] = [];
  readonly handlers = new Map<string, Handler>();
  readonly #server: WebSocketServer;

  private constructor(server: WebSocketServer) {
    this.#server = server;
    server.on("connection", (socket) => socket.on("message", (text) => this.#received(socket, String(text))));
  }

  static async start(): Promise<FakeServer> {
    const server = new WebSocketServer({ host: "127.0.0.1", port: 0, path: "/socketcluster/" });
    await new Promise((resolve) => server.once("listening", resolve));
    return new FakeServer(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** How often a call came. */
  count(event: string): number {
    return this.calls.filter((call) => call.event === event).length;
  }

  /** The argument of the last such call. */
  last<T>(event: string): T {
    return this.calls.filter((call) => call.event === event).at(-1)?.data as T;
  }

  /** How many sockets are open. */
  get open(): number {
    return this.#server.clients.size;
  }

  /** Tells everyone an event of the room. */
  push(event: RoomEvent, channel = "room:garden"): void {
    for (const socket of this.#server.clients)
      socket.send(JSON.stringify({ event: "#publish", data: { channel, data: event } }));
  }

  /** Cuts all sockets. */
  cut(): void {
    for (const socket of this.#server.clients) socket.terminate();
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #received(socket: WebSocket, text: string): void {
    if (text === "") return;
    const { event, data, cid } = JSON.parse(text);
    const answer = (body: object) => socket.send(JSON.stringify({ rid: cid, ...body }));
    if (event === "#handshake") {
      if (data.authToken) this.tokens.push(data.authToken);
      answer({ data: { id: "x".repeat(20), pingTimeout: 30_000, isAuthenticated: false } });
      return;
    }
    this.calls.push({ event, data, transmitted: cid === undefined });
    try {
      const handler = this.handlers.get(event);
      if (!handler) throw new Refusal("unknown_event");
      answer({ data: handler(data as never, socket) });
    } catch (error) {
      const { code, message } = error as Refusal;
      answer({ error: { name: "RoomError", code, message } });
    }
  }
}
