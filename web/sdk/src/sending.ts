import { type Layer, layersOf, shape, toldLayers, type Wanted } from "./layers.ts";
import type { MediaKind, OfferedTrack } from "./wire.ts";

/** A change of what is sent that the browser refuses is tried so often, at this interval. */
const MOST_TRIES = 5;
const AGAIN_MS = 500;

/** A line that sends an own track, and which of its layers. A stopped line is kept for the next track of its kind. */
export class SendingLine {
  readonly transceiver: RTCRtpTransceiver;
  readonly kind: MediaKind;
  name: string;
  /** In how many sizes it can send, settled when it begins; 0 for its own size alone. */
  readonly most: number;
  /** All sizes are within one stream. */
  readonly #within: boolean;
  /** Whether a track is meant to flow. */
  active = true;
  /** The id in the room, once answered. */
  id: string | null = null;
  #track: MediaStreamTrack | null;
  /** What the last offer said of the layers. */
  #told = "";
  /** The last change of the encodings. */
  #work: Promise<void> = Promise.resolve();
  /** Changes that the browser refused in a row. */
  #refused = 0;
  readonly #wanted: (id: string) => Wanted;

  /**
   * @param sizes how many there can be, and whether all are within one stream
   * @param wanted what others want of a track that has an id in the room
   */
  constructor(
    transceiver: RTCRtpTransceiver,
    track: MediaStreamTrack,
    name: string,
    sizes: { most: number; within: boolean },
    wanted: (id: string) => Wanted,
  ) {
    this.transceiver = transceiver;
    this.kind = track.kind as MediaKind;
    this.name = name;
    this.most = sizes.most;
    this.#within = sizes.within && sizes.most > 0;
    this.#track = track;
    this.#wanted = wanted;
  }

  get mid(): string | null {
    return this.transceiver.mid;
  }

  /** Whether the layers are others than the last offer said. */
  get isNews(): boolean {
    return JSON.stringify(this.#layers()) !== this.#told;
  }

  /** What an offer says of this line. */
  offered(): OfferedTrack {
    const { mid, kind, name } = this;
    const layers = this.#layers();
    this.#told = JSON.stringify(layers);
    const music = this.#track?.contentHint === "music" ? { content_hint: "music" as const } : {};
    return { mid: mid!, kind, name, ...music, ...(layers.length > 0 ? { layers } : {}) };
  }

  /** Sends another track, on a line that was stopped too, or none. */
  async replace(track: MediaStreamTrack | null): Promise<void> {
    this.#track = track;
    await this.transceiver.sender.replaceTrack(track);
    await this.update();
  }

  /** Sends what is wanted now, in the sizes that fit the track. Changes of one sender follow each other. */
  update(): Promise<void> {
    this.#refused = 0;
    return this.#change();
  }

  #change(): Promise<void> {
    this.#work = this.#work.then(async () => {
      const { sender } = this.transceiver;
      if (!this.#track) return;
      try {
        const parameters = sender.getParameters();
        const layers = this.#chosen(parameters.encodings.length);
        const wanted = this.id === null ? { rests: false, layer: layers.length } : this.#wanted(this.id);
        // A muted camera would go on as black frames, and libwebrtc pads those of several sizes up to what they might take.
        const rests = wanted.rests || (this.kind === "video" && !this.#track.enabled);
        const changed = shape(parameters.encodings, layers, { ...wanted, rests }, this.#within);
        if (changed) await sender.setParameters(parameters);
      } catch (error) {
        // The connection was closed meanwhile, or the browser cannot, or not while it negotiates: what is sent stays as it was.
        console.warn("change of what is sent left out", error);
        if (++this.#refused < MOST_TRIES) setTimeout(() => void this.#change(), AGAIN_MS);
      }
    });
    return this.#work;
  }

  #chosen(encodings: number): Layer[] {
    return this.#track ? layersOf(this.#track, this.#within ? this.most : encodings, this.#within) : [];
  }

  /** The layers as an offer tells them: those within a stream are told by the stream. */
  #layers() {
    if (this.#within) return [];
    const { encodings } = this.transceiver.sender.getParameters();
    return toldLayers(this.#chosen(encodings.length), encodings);
  }
}
