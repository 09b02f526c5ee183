import type { AGClientSocket } from "socketcluster-client";
import { Room } from "./room.ts";
import type { JoinOptions } from "./room-types.ts";
import { Signaling } from "./signaling.ts";

/**
 * A connection with the server that outlives rooms: its socket is the application's own (channels, calls), and
 * rooms are joined over it, one at a time. It comes back by itself after a loss, and channels are subscribed again.
 */
export class Client {
  readonly #signaling: Signaling;
  readonly #token: string | undefined;

  /**
   * @param options.url the server's address; default: where this page comes from
   * @param options.token a JWT with grants, for the socket and for rooms
   */
  constructor(options: { url?: string; token?: string } = {}) {
    this.#token = options.token;
    this.#signaling = new Signaling(options.url ?? window.location.origin, options.token);
  }

  /** The socket, in socketcluster-client's own words: `subscribe`, `transmitPublish`, `invoke`, `transmit` … */
  get socket(): AGClientSocket {
    return this.#signaling.socket;
  }

  /** Enters a room over this connection; see {@link Room.join}. */
  join(options: Omit<JoinOptions, "url">): Promise<Room> {
    const withToken = this.#token === undefined ? options : { token: this.#token, ...options };
    return Room.join(withToken, this.#signaling);
  }

  /** Ends the connection for good; a room joined over it should be left before. */
  close(): void {
    this.#signaling.close();
  }
}
