import { participantOf } from "./room-state.ts";
import type { Participant, RoomEvents } from "./room-types.ts";
import type * as wire from "./wire.ts";

type Emit = <Name extends keyof RoomEvents>(name: Name, value: RoomEvents[Name]) => void;
type Event<Type extends wire.RoomEvent["type"]> = Extract<wire.RoomEvent, { type: Type }>;

/** Who is in a room, as far as the server tells: of an audience, their number. */
export class People {
  /** Those who are known by name, but oneself. */
  readonly known = new Map<string, Participant>();
  readonly #emit: Emit;
  #count = 1;

  constructor(emit: Emit) {
    this.#emit = emit;
  }

  /** How many people are here, oneself included. */
  get count(): number {
    return this.#count;
  }

  /** A room was joined: nothing that was known before holds. */
  begin(joined: wire.Joined): void {
    this.known.clear();
    for (const info of joined.participants) this.known.set(info.id, participantOf(info));
    this.#count = joined.count;
  }

  /** Somebody came, or is known by name from now on. */
  joined({ participant: info, count, from_audience = false }: Event<"participant_joined">, me: string): void {
    this.#count = count;
    if (info.id === me || this.known.has(info.id)) return;
    const participant = participantOf(info);
    this.known.set(info.id, participant);
    this.#emit(from_audience ? "participant-named" : "participant-joined", participant);
    for (const track of participant.tracks.values()) this.#emit("track-added", { participant, track });
  }

  changed({ participant: { id, name, hand = false } }: Event<"participant_changed">): void {
    const participant = this.known.get(id);
    if (!participant) return;
    Object.assign(participant, { name, hand });
    this.#emit("participant-changed", participant);
  }

  /** Somebody is gone; the one who is, if they were known by name. */
  left({ participant: id, count }: Event<"participant_left">): Participant | undefined {
    this.#count = count;
    const participant = this.known.get(id);
    this.known.delete(id);
    return participant;
  }

  /** People of the audience came or left. */
  counted({ count, joined, left }: Event<"people">): void {
    const changed = this.#count !== count || joined + left > 0;
    this.#count = count;
    if (changed) this.#emit("people", { count, joined, left });
  }
}
