import { Emitter } from "./emitter.ts";
import { Epochs } from "./epochs.ts";
import { type CameraOptions, type MicrophoneOptions, openCamera, openMicrophone } from "./media.ts";
import { Peer } from "./peer.ts";
import { QualityMonitor } from "./quality.ts";
import { MoimError, Signaling } from "./signaling.ts";
import { FIRST_SLOTS, type SlotDiff, SlotTable, slotsToAdd } from "./slots.ts";
import * as wire from "./wire.ts";

/** How to enter a room. */
export interface JoinOptions {
  /** The server's address; default: where this page comes from. */
  url?: string;
  room: string;
  /** The name that others see. */
  name: string;
  /** Topologies and codec: the first who joins decides. */
  audio?: wire.AudioTopology;
  video?: wire.VideoTopology;
  videoCodec?: wire.VideoCodec;
  /** A JWT with grants. */
  token?: string;
  /** Slots of video in the first offer; default 12. */
  videoSlots?: number;
  /** Media to send from the start; saves an offer. */
  microphone?: MediaStreamTrack | null;
  camera?: MediaStreamTrack | null;
}

/** Where a room stands. `reconnecting`: the socket or the media path is lost and being found again. */
export type RoomState = "connecting" | "connected" | "reconnecting" | "ended";

/** Someone else in the room. */
export interface Participant {
  readonly id: string;
  name: string;
  readonly tracks: Map<string, wire.TrackInfo>;
}

/** A remote track that began or ceased to come in. */
export interface Subscription {
  participant: string;
  track: string;
  kind: wire.MediaKind;
  slot: string;
  mediaTrack: MediaStreamTrack;
  /** First RTP timestamp of this content, where the slot carried another track before and it is known. */
  rtpTimestamp?: number;
}

/** The events of a room, by name. */
export interface RoomEvents {
  state: RoomState;
  "participant-joined": Participant;
  "participant-changed": Participant;
  "participant-left": { participant: Participant; reason: wire.LeaveReason };
  "track-added": { participant: Participant; track: wire.TrackInfo };
  "track-changed": { participant: Participant; track: wire.TrackInfo };
  "track-removed": { participant: Participant; track: wire.TrackInfo };
  "track-subscribed": Subscription;
  "track-unsubscribed": Subscription;
  "active-speakers": wire.Speaker[];
  /** Everything was joined anew (the server had forgotten us): own id and participants are new. */
  rejoined: Room;
  sample: wire.QualitySample;
  error: MoimError;
  ended: { reason: string };
}

interface Published {
  track: MediaStreamTrack;
  muted: boolean;
  /** What the others were told. */
  toldMuted: boolean;
}

const FIRST_CONNECT_MS = 10_000;
const RETRY_MS = 1_000;

/** The names under which own tracks are published. */
const SOURCE = { audio: "microphone", video: "camera" } as const;

/** A room that one has joined. */
export class Room extends Emitter<RoomEvents> {
  /** Everybody else. */
  readonly participants = new Map<string, Participant>();
  readonly #options: JoinOptions;
  readonly #signaling: Signaling;
  readonly #quality: QualityMonitor;
  readonly #published = new Map<wire.MediaKind, Published>();
  readonly #cleanup: (() => void)[] = [];
  #state: RoomState = "connecting";
  #joined: wire.Joined | null = null;
  #session = "";
  #epochs = new Epochs(0);
  #held: wire.RoomEvent[] | null = [];
  #slots = new SlotTable();
  #peer: Peer | null = null;
  #videos: string[] | null = null;
  #openedFirst: (() => void) | null = null;
  #comingBack = false;

  private constructor(options: JoinOptions) {
    super();
    this.#options = options;
    this.#quality = new QualityMonitor(performance.now(), (sample) => {
      this.#signaling.tell(wire.call.qualitySample, sample);
      this.emit("sample", sample);
    });
    const url = options.url ?? window.location.origin;
    this.#signaling = new Signaling(url, wire.roomChannel(options.room), {
      opened: () => this.#opened(),
      lost: () => this.#updateState(),
      event: (data) => this.#received(data),
    });
    this.#listen(window, "online", () => {
      void this.#signaling.probe();
      this.#peer?.restartIce();
    });
    // A closed or reloaded page leaves at once; one that is kept for "back" stays.
    this.#listen(window, "pagehide", (event) => {
      if (!(event as PageTransitionEvent).persisted) this.#signaling.tell(wire.call.leave, {});
    });
  }

  /**
   * Enters a room. Resolves when the server has answered the first offer; media flows soon after.
   * Rejects with {@link MoimError} where the server cannot be reached or refuses.
   */
  static async join(options: JoinOptions): Promise<Room> {
    const room = new Room(options);
    try {
      await room.#connect();
      if (options.microphone) room.#published.set("audio", published(options.microphone));
      if (options.camera) room.#published.set("video", published(options.camera));
      await room.#enter();
    } catch (error) {
      room.#end();
      throw error;
    }
    return room;
  }

  /** The room's id, topologies, codec and limits. */
  get info(): wire.RoomInfo {
    return this.#answer.room;
  }

  /** The own participant id. */
  get me(): string {
    return this.#answer.participant;
  }

  /** Whether the token allows to send media. */
  get canPublish(): boolean {
    return this.#answer.you.can_publish;
  }

  get state(): RoomState {
    return this.#state;
  }

  /** The latest periodic sample. */
  lastSample(): wire.QualitySample | null {
    return this.#quality.last;
  }

  /** A sample of the time since the last such call (or since joining), apart from the periodic ones. */
  sampleNow(): Promise<wire.QualitySample> {
    return this.#quality.sampleNow();
  }

  /** What is sent of a kind. */
  localTrack(kind: wire.MediaKind): { mediaTrack: MediaStreamTrack; muted: boolean } | null {
    const published = this.#published.get(kind);
    return published ? { mediaTrack: published.track, muted: published.muted } : null;
  }

  /** The media of a remote track, or null while no slot carries it. */
  mediaTrack(track: string): MediaStreamTrack | null {
    const slot = this.#slots.slotOf(track);
    return slot === null ? null : (this.#peer?.slotTrack(slot) ?? null);
  }

  /** Opens and sends the microphone. */
  async publishMicrophone(options: MicrophoneOptions = {}): Promise<void> {
    await this.publish(await openMicrophone(options));
  }

  /** Opens and sends the camera. */
  async publishCamera(options: CameraOptions = {}): Promise<void> {
    await this.publish(await openCamera(options));
  }

  /** Sends a track; what was sent of its kind before is replaced. */
  async publish(track: MediaStreamTrack): Promise<void> {
    const kind = track.kind as wire.MediaKind;
    const old = this.#published.get(kind);
    this.#published.set(kind, { ...published(track), toldMuted: old?.toldMuted ?? false });
    if (old) {
      old.track.stop();
      await this.#peer?.replace(SOURCE[kind], track);
      await this.#tellMuted();
      return;
    }
    if (!this.#peer || !this.canPublish) return;
    await this.#peer.send(track, SOURCE[kind]);
    await this.#peer.negotiate();
  }

  /** Stops sending a kind and releases its device. */
  async unpublish(kind: wire.MediaKind): Promise<void> {
    const published = this.#published.get(kind);
    if (!published) return;
    this.#published.delete(kind);
    published.track.stop();
    await this.#peer?.stopSending(SOURCE[kind]);
    await this.#peer?.negotiate();
  }

  /** Mutes or unmutes what is sent of a kind: silence or black at once, and everyone is told. */
  async mute(kind: wire.MediaKind, muted: boolean): Promise<void> {
    const published = this.#published.get(kind);
    if (!published || published.muted === muted) return;
    published.muted = muted;
    published.track.enabled = !muted;
    await this.#tellMuted();
  }

  /** Asks for what is to be in the named slots. */
  async want(want: wire.SlotWant[]): Promise<void> {
    if (want.length > 0) await this.#signaling.call(wire.call.slots, { want });
  }

  /**
   * Receives exactly these remote video tracks, in this order of importance; more slots are negotiated as needed.
   * From the first call on the server no longer fills the slots of video by itself.
   */
  async showVideos(tracks: readonly string[]): Promise<void> {
    const first = this.#videos === null;
    this.#videos = [...tracks];
    await this.#growSlots(0, tracks.length);
    const plan = this.#slots.plan(this.#videos, "video");
    const inSlot = new Map(this.#slots.mappings().map(({ slot, track }) => [slot, track]));
    const differs = plan.some(({ slot, track }) => (inSlot.get(slot) ?? null) !== track);
    if (first || differs) await this.want(plan);
  }

  /** Leaves for good. */
  async leave(): Promise<void> {
    if (this.#state === "ended") return;
    try {
      await this.#signaling.call(wire.call.leave, {}, RETRY_MS);
    } catch {
      // Without a connection the server finds out by itself.
    }
    this.#end("left");
  }

  get #answer(): wire.Joined {
    if (!this.#joined) throw new MoimError("not_joined", "the room is not joined yet");
    return this.#joined;
  }

  #listen(target: EventTarget, name: string, listener: (event: Event) => void): void {
    target.addEventListener(name, listener);
    this.#cleanup.push(() => target.removeEventListener(name, listener));
  }

  #connect(): Promise<void> {
    if (this.#signaling.isOpen) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () =>
          reject(new MoimError("disconnected", "the server does not answer: is it running and reachable?")),
        FIRST_CONNECT_MS,
      );
      this.#openedFirst = () => {
        clearTimeout(timer);
        this.#openedFirst = null;
        resolve();
      };
    });
  }

  /** Joins and negotiates, with a session and a peer of its own; the first time or after the server forgot us. */
  async #enter(): Promise<void> {
    this.#session = crypto.randomUUID();
    this.#held = [];
    const { room, name, audio, video, videoCodec, token } = this.#options;
    const argument: wire.Join = { room, name, session: this.#session };
    if (audio) argument.audio = audio;
    if (video) argument.video = video;
    if (videoCodec) argument.video_codec = videoCodec;
    if (token) argument.token = token;
    const joined = wire.joined(await this.#signaling.call(wire.call.join, argument), "joined");
    const again = this.#joined !== null;
    this.#joined = joined;
    this.#epochs = new Epochs(joined.epoch);
    this.participants.clear();
    for (const info of joined.participants) this.participants.set(info.id, participantOf(info));
    this.#slots = new SlotTable();
    this.#peer?.close();
    const peer = this.#newPeer(joined);
    this.#peer = peer;
    this.#quality.start(joined.participant, peer);

    if (joined.you.can_publish)
      for (const [kind, { track }] of this.#published) await peer.send(track, SOURCE[kind]);
    if (joined.you.can_subscribe) {
      const { max_audio_slots, max_video_slots } = joined.room.limits;
      const videos = joined.room.video === "none" ? 0 : (this.#options.videoSlots ?? FIRST_SLOTS.video);
      peer.addSlots("audio", Math.min(FIRST_SLOTS.audio, max_audio_slots));
      peer.addSlots("video", Math.min(videos, max_video_slots));
    }
    if (again) this.emit("rejoined", this);
    this.#release();
    await peer.negotiate();
    for (const published of this.#published.values()) published.toldMuted = false;
    await this.#tellMuted();
    this.#updateState();
  }

  #newPeer(joined: wire.Joined): Peer {
    const session = this.#session;
    return new Peer(joined.ice_servers, joined.room.video_codec, {
      offer: async (sdp, tracks) =>
        wire.answer(await this.#signaling.call(wire.call.offer, { sdp, tracks, session }), "answer"),
      slotAdded: (mid, kind) => this.#slots.add(mid, kind),
      negotiated: (tracks) => this.#quality.setSent(tracks),
      connection: (state) => {
        if (state === "disconnected" || state === "failed") void this.#signaling.probe();
        this.#updateState();
      },
      failed: (error) => {
        if (error.code === "offer_conflict" || error.code === "gone") void this.#rejoin();
        else this.emit("error", error);
      },
    });
  }

  #opened(): void {
    if (this.#openedFirst) this.#openedFirst();
    else if (this.#joined) void this.#comeBack();
  }

  /** After a lost socket or a gap: asks for what was missed, or joins anew. The media path is left alone. */
  async #comeBack(): Promise<void> {
    if (this.#comingBack) return;
    this.#comingBack = true;
    this.#held ??= [];
    try {
      const argument = {
        room: this.info.id,
        participant: this.me,
        session: this.#session,
        seen: this.#epochs.seen,
      };
      const answer = await this.#signaling.call(wire.call.resume, argument);
      const { epoch, events } = wire.resumed(answer, "resumed");
      for (const event of events) if (this.#epochs.take(event) !== "old") this.#apply(event);
      this.#epochs.seen = Math.max(this.#epochs.seen, epoch);
      this.#comingBack = false;
      this.#release();
      this.#peer?.retry();
      this.#updateState();
      this.#tellMuted().catch((error: unknown) => console.warn("mute was not told", error));
    } catch (error) {
      this.#comingBack = false;
      const code = error instanceof MoimError ? error.code : "internal";
      if (code === "gone" || code === "not_joined" || code === "unknown_participant") await this.#rejoin();
      else if (code !== "ended" && this.#signaling.isOpen) setTimeout(() => void this.#comeBack(), RETRY_MS);
    }
  }

  async #rejoin(): Promise<void> {
    if (this.#state === "ended" || this.#comingBack) return;
    this.#comingBack = true;
    try {
      this.#forgetSubscriptions(this.#slots.drop(() => true));
      this.#videos = null; // the tracks are new: the page hears "rejoined" and chooses again
      await this.#enter();
      this.#comingBack = false;
      this.#updateState();
    } catch (error) {
      this.#comingBack = false;
      const failure = error instanceof MoimError ? error : new MoimError("internal", String(error));
      if (failure.code === "ended") return;
      if (failure.code === "disconnected" || failure.code === "too_fast") {
        if (this.#signaling.isOpen) setTimeout(() => void this.#rejoin(), RETRY_MS);
        return;
      }
      this.emit("error", failure);
      this.#end(failure.message);
    }
  }

  /** Applies what came while the order was being restored. */
  #release(): void {
    const held = this.#held ?? [];
    this.#held = null;
    for (const event of held) this.#handle(event);
  }

  #received(data: unknown): void {
    let event: wire.RoomEvent;
    try {
      event = wire.roomEvent(data, "event");
    } catch (error) {
      console.warn("event left out", error);
      return;
    }
    if (this.#held) this.#held.push(event);
    else this.#handle(event);
  }

  #handle(event: wire.RoomEvent): void {
    if (this.#held) {
      this.#held.push(event);
      return;
    }
    const verdict = this.#epochs.take(event);
    if (verdict === "apply") this.#apply(event);
    else if (verdict === "gap") {
      this.#held = [event];
      void this.#comeBack();
    }
  }

  #apply(event: wire.RoomEvent): void {
    switch (event.type) {
      case "participant_joined":
        if (event.participant.id === this.me || this.participants.has(event.participant.id)) return;
        this.participants.set(event.participant.id, participantOf(event.participant));
        this.emit("participant-joined", this.participants.get(event.participant.id)!);
        return;
      case "participant_changed": {
        const participant = this.participants.get(event.participant.id);
        if (!participant) return;
        participant.name = event.participant.name;
        this.emit("participant-changed", participant);
        return;
      }
      case "participant_left":
        this.#participantLeft(event.participant, event.reason);
        return;
      case "track_added":
      case "track_changed":
        this.#trackIs(event.participant, event.track);
        return;
      case "track_removed": {
        const participant = this.participants.get(event.participant);
        const track = participant?.tracks.get(event.track);
        if (!participant || !track) return;
        participant.tracks.delete(event.track);
        this.#forgetSubscriptions(this.#slots.drop((content) => content.track === event.track));
        this.emit("track-removed", { participant, track });
        return;
      }
      case "active_speakers":
        this.emit("active-speakers", event.speakers);
        return;
      case "slots":
        this.#slotsChanged(event.slots);
        return;
      case "slots_wanted":
        this.#growSlots(event.audio, this.#videos ? 0 : event.video).catch(() => {});
        return;
      case "room_ended":
        this.#end(event.reason);
    }
  }

  #participantLeft(id: string, reason: wire.LeaveReason): void {
    if (id === this.me) {
      // The server gave us up although we are here.
      if (reason !== "left") void this.#rejoin();
      return;
    }
    const participant = this.participants.get(id);
    if (!participant) return;
    this.participants.delete(id);
    this.#forgetSubscriptions(this.#slots.drop((content) => content.participant === id));
    this.emit("participant-left", { participant, reason });
  }

  #trackIs(id: string, track: wire.TrackInfo): void {
    const participant = this.participants.get(id);
    if (!participant) return;
    const known = participant.tracks.get(track.id);
    participant.tracks.set(track.id, track);
    if (known && known.muted !== track.muted) this.#quality.paused(track.id);
    this.emit(known ? "track-changed" : "track-added", { participant, track });
  }

  #slotsChanged(changes: wire.SlotChange[]): void {
    const diff = this.#slots.apply(changes);
    this.#forgetSubscriptions({ ...diff, mapped: [] });
    if (diff.mapped.length > 0) this.#quality.mapped(diff.mapped);
    for (const mapping of diff.mapped) {
      const mediaTrack = this.#peer?.slotTrack(mapping.slot);
      if (mediaTrack) this.emit("track-subscribed", { ...mapping, mediaTrack });
    }
  }

  #forgetSubscriptions({ unmapped }: SlotDiff): void {
    if (unmapped.length > 0) this.#quality.unmapped(unmapped);
    for (const mapping of unmapped) {
      const mediaTrack = this.#peer?.slotTrack(mapping.slot);
      if (mediaTrack) this.emit("track-unsubscribed", { ...mapping, mediaTrack });
    }
  }

  async #growSlots(audio: number, video: number): Promise<void> {
    const peer = this.#peer;
    if (!peer || !this.#answer.you.can_subscribe) return;
    const { max_audio_slots, max_video_slots } = this.info.limits;
    const moreAudio = slotsToAdd(peer.slotCount("audio"), audio, max_audio_slots);
    const moreVideo = slotsToAdd(peer.slotCount("video"), video, max_video_slots);
    if (moreAudio + moreVideo === 0) return;
    peer.addSlots("audio", moreAudio);
    peer.addSlots("video", moreVideo);
    await peer.negotiate();
  }

  /** Tells the others what is muted; without a connection they are told after coming back. */
  async #tellMuted(): Promise<void> {
    for (const [kind, published] of this.#published) {
      const { muted, toldMuted } = published;
      const track = this.#peer?.sentTracks().find((sent) => sent.kind === kind)?.id;
      if (muted === toldMuted || !track) continue;
      try {
        await this.#signaling.call(wire.call.mute, { track, muted });
        published.toldMuted = muted;
      } catch (error) {
        if (!(error instanceof MoimError && error.code === "disconnected")) throw error;
      }
    }
  }

  #updateState(): void {
    if (this.#state === "ended" || !this.#joined) return;
    const path = this.#peer?.connectionState ?? "new";
    const healthy = this.#signaling.isOpen && path === "connected" && !this.#comingBack;
    let state: RoomState = healthy ? "connected" : "reconnecting";
    if (!healthy && this.#state === "connecting") state = "connecting";
    if (state === this.#state) return;
    this.#state = state;
    this.emit("state", state);
  }

  #end(reason?: string): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    for (const undo of this.#cleanup) undo();
    this.#quality.stop();
    this.#peer?.close();
    this.#signaling.close();
    if (!this.#joined) return;
    for (const { track } of this.#published.values()) track.stop();
    this.emit("state", "ended");
    this.emit("ended", { reason: reason ?? "ended" });
  }
}

function published(track: MediaStreamTrack): Published {
  return { track, muted: false, toldMuted: false };
}

function participantOf(info: wire.ParticipantInfo): Participant {
  return { id: info.id, name: info.name, tracks: new Map(info.tracks.map((track) => [track.id, track])) };
}
