import { Emitter } from "./emitter.ts";
import { Epochs } from "./epochs.ts";
import { type CameraOptions, type MicrophoneOptions, openCamera, openMicrophone } from "./media.ts";
import { Losses } from "./losses.ts";
import { OwnTracks } from "./own-tracks.ts";
import { QualityMonitor } from "./quality.ts";
import { People } from "./people.ts";
import { joinArgument } from "./room-state.ts";
import type { JoinOptions, LocalTrack, Participant, RoomEvents, RoomState } from "./room-types.ts";
import { linkName, Routes } from "./routes.ts";
import { type ShownSize, ShownSizes } from "./shown.ts";
import { MoimError, Signaling } from "./signaling.ts";
import { Silence } from "./silence.ts";
import { FIRST_SLOTS, MIX, type SlotDiff, SlotTable } from "./slots.ts";
import type { SentLayer } from "./stats.ts";
import * as wire from "./wire.ts";

const RETRY_MS = 1_000;

/** What the server answers to an offer of somebody whom it gave up, although they are here. */
const GIVEN_UP: ReadonlySet<string> = new Set([
  "offer_conflict",
  "gone",
  "not_joined",
  "unknown_participant",
]);

/** A room that one has joined. */
export class Room extends Emitter<RoomEvents> {
  readonly #people = new People((name, value) => this.emit(name, value));
  readonly #options: JoinOptions;
  readonly #signaling: Signaling;
  readonly #ownsSignaling: boolean;
  readonly #quality: QualityMonitor;
  readonly #own = new OwnTracks(
    (name, value) => this.emit(name, value),
    (argument) => this.#signaling.call(wire.call.mute, argument),
  );
  readonly #silence = new Silence();
  readonly #cleanup: (() => void)[] = [];
  #state: RoomState = "connecting";
  #joined: wire.Joined | null = null;
  #session = "";
  #epochs = new Epochs(0);
  #held: wire.RoomEvent[] | null = [];
  #slots = new SlotTable();
  readonly #shown = new ShownSizes({
    mappings: () => this.#slots.mappings().filter(({ kind }) => kind === "video"),
    tell: (shown) => this.#signaling.call(wire.call.slots, { shown }),
  });
  #routes: Routes | null = null;
  #videos: string[] | null = null;
  #comingBack = false;
  #hand = false;
  /** What the server told of the way to here. */
  #estimateKbps: number | null = null;

  private constructor(options: JoinOptions, shared?: Signaling) {
    super();
    this.#options = options;
    const losses = new Losses();
    this.#quality = new QualityMonitor(performance.now(), (sample) => {
      if (this.#estimateKbps !== null) sample.estimate_kbps = this.#estimateKbps;
      this.#signaling.tell(wire.call.qualitySample, sample);
      const sound = sample.sent.find(({ kind }) => kind === "audio");
      if (sound) this.#routes?.setRedundant(losses.report(sound.remote_loss_pct ?? null));
      this.#lookForSilence(sample);
      this.emit("sample", sample);
    });
    this.#ownsSignaling = shared === undefined;
    this.#signaling = shared ?? new Signaling(options.url ?? window.location.origin, options.token);
    const detach = this.#signaling.attach(wire.roomChannel(options.room), {
      opened: () => this.#opened(),
      lost: () => this.#updateState(),
      event: (data) => this.#received(data),
    });
    this.#cleanup.push(detach);
    this.#listen(window, "online", () => {
      void this.#signaling.probe();
      this.#routes?.restartIce();
    });
    // A closed or reloaded page leaves at once; one that is kept for "back" stays.
    this.#listen(window, "pagehide", (event) => {
      if (!(event as PageTransitionEvent).persisted) this.#signaling.tell(wire.call.leave, {});
    });
  }

  /**
   * Enters a room. Resolves when the server has answered the first offer; media flows soon after.
   * Rejects with {@link MoimError} where the server cannot be reached or refuses.
   * @param shared the connection of a {@link Client}; without it the room has one of its own
   */
  static async join(options: JoinOptions, shared?: Signaling): Promise<Room> {
    const room = new Room(options, shared);
    try {
      await room.#signaling.whenOpen();
      for (const track of [options.microphone, options.camera]) if (track) room.#own.add(track);
      await room.#enter();
    } catch (error) {
      room.#end();
      throw error;
    }
    return room;
  }

  /**
   * Everybody else who is known by name. In a room of many that is not everybody: of an audience the {@link count} is
   * told, and {@link people} reads who they are.
   */
  get participants(): ReadonlyMap<string, Participant> {
    return this.#people.known;
  }

  /** How many people are here, oneself included. */
  get count(): number {
    return this.#people.count;
  }

  /** A page of all people, in order of joining. @param after the last one of the page before */
  async people(after?: string, limit?: number): Promise<wire.PeoplePage> {
    const argument = { ...(after !== undefined && { after }), ...(limit !== undefined && { limit }) };
    return wire.peoplePage(await this.#signaling.call(wire.call.people, argument), "people");
  }

  /** Whether the own hand is raised. */
  get hand(): boolean {
    return this.#hand;
  }

  /** Raises the own hand, or lowers it: everybody is told. */
  async raiseHand(raised: boolean): Promise<void> {
    await this.#signaling.call(wire.call.hand, { raised });
    this.#hand = raised;
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

  /** Whether the token allows to mute and remove others, to lock the room and to change its limit. */
  get canModerate(): boolean {
    return this.#answer.you.can_moderate === true;
  }

  get state(): RoomState {
    return this.#state;
  }

  /** The latest periodic sample. */
  lastSample(): wire.QualitySample | null {
    return this.#quality.last;
  }

  /** The sizes in which the camera was sent in the interval of {@link lastSample}, the smallest first. */
  sentLayers(): readonly SentLayer[] {
    return this.#quality.lastLayers;
  }

  /** Why the picture of a remote track does not flow at the moment, or null. */
  pauseReason(track: string): wire.PauseReason | null {
    return this.#slots.pauseOf(track);
  }

  /** A sample of the time since the last such call (or since joining), apart from the periodic ones. */
  sampleNow(): Promise<wire.QualitySample> {
    return this.#quality.sampleNow();
  }

  /** What is sent of a kind. */
  localTrack(kind: wire.MediaKind): LocalTrack | null {
    return this.#own.of(kind);
  }

  /** The media of a remote track ("mix": the room's mix), or null while it does not come in. */
  mediaTrack(track: string): MediaStreamTrack | null {
    const slot = this.#slots.slotOf(track);
    return slot === null ? null : (this.#routes?.slotTrack(slot) ?? null);
  }

  /** Opens and sends the microphone. */
  async publishMicrophone(options: MicrophoneOptions = {}): Promise<void> {
    await this.publish(await openMicrophone(options));
  }

  /** Opens and sends the camera. */
  async publishCamera(options: CameraOptions = {}): Promise<void> {
    await this.publish(await openCamera(options));
  }

  /** Opens the microphone anew with or without echo cancellation, noise suppression and gain control. */
  async setProcessing(processing: boolean): Promise<void> {
    const old = this.#own.of("audio");
    if (!old) return;
    const { mediaTrack, muted } = old;
    const { deviceId } = mediaTrack.getSettings();
    const track = await openMicrophone(deviceId ? { processing, deviceId } : { processing });
    track.enabled = mediaTrack.enabled;
    await this.publish(track, muted);
  }

  /**
   * Sends a track; what was sent of its kind before is replaced.
   * @param muted whether it begins muted
   */
  async publish(track: MediaStreamTrack, muted = false): Promise<void> {
    await this.#own.publish(track, muted);
  }

  /** Stops sending a kind and releases its device. */
  async unpublish(kind: wire.MediaKind): Promise<void> {
    await this.#own.unpublish(kind);
  }

  /**
   * Mutes or unmutes what is sent of a kind, and everyone is told. Sound goes on as silence. Pictures are not sent at all where
   * they pass the server, so that receivers keep the last one: hide it while `muted`. In a mesh they are black. What a moderator muted
   * only a moderator releases: unmuting it rejects with `not_allowed`.
   */
  async mute(kind: wire.MediaKind, muted: boolean): Promise<void> {
    await this.#own.mute(kind, muted);
  }

  /** Moderators: mutes anyone's track, so that the publisher cannot unmute it, or releases it. */
  async muteOther(track: string, muted: boolean): Promise<void> {
    await this.#signaling.call(wire.call.mute, { track, muted });
  }

  /** Moderators: puts someone out of the room. */
  async remove(participant: string): Promise<void> {
    await this.#signaling.call(wire.call.remove, { participant });
  }

  /** Moderators: lets nobody new in, or again somebody. */
  async lock(locked: boolean): Promise<void> {
    await this.#signaling.call(wire.call.lock, { locked });
  }

  /** Moderators: changes how many may be in the room; who is in it stays. */
  async limit(maxParticipants: number): Promise<void> {
    await this.#signaling.call(wire.call.limit, { max_participants: maxParticipants });
  }

  /** Asks for what is to be in the named slots. */
  async want(want: wire.SlotWant[]): Promise<void> {
    if (want.length > 0) await this.#signaling.call(wire.call.slots, { want });
  }

  /**
   * Receives exactly these remote video tracks, in this order of importance; more slots are negotiated as needed.
   * From the first call on the server no longer fills the slots of video by itself. In a mesh all videos come.
   */
  async showVideos(tracks: readonly string[]): Promise<void> {
    if (this.info.video !== "sfu") return;
    const first = this.#videos === null;
    this.#videos = [...tracks];
    await this.#growSlots(0, tracks.length);
    const plan = this.#slots.plan(this.#videos, "video");
    const inSlot = new Map(this.#slots.mappings().map(({ slot, track }) => [slot, track]));
    const differs = plan.some(({ slot, track }) => (inSlot.get(slot) ?? null) !== track);
    if (first || differs) await this.want(plan);
  }

  /**
   * Says at which size a remote track of video is shown, in pixels of the screen (CSS pixels × `devicePixelRatio`);
   * 0 × 0 while it is not visible. It comes in the size that this needs, and not at all while it is not visible. May be
   * called at each change of the page: the server hears of it a few times a second at most. Without a word the picture
   * comes as large as it is. In a mesh it has no effect.
   */
  setShown(track: string, size: ShownSize): void {
    if (this.info.video === "sfu") this.#shown.set(track, size);
  }

  /**
   * Pins a remote track of video, or unpins it. Where the path does not carry all pictures, pinned ones come first; where
   * the server fills the slots, nobody who speaks takes theirs. A track that has no slot gets none by it. In a mesh it has
   * no effect.
   */
  setPinned(track: string, pinned: boolean): void {
    if (this.info.video === "sfu") this.#shown.pin(track, pinned);
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

  /** Joins and negotiates, with a session and a peer of its own; the first time or after the server forgot us. */
  async #enter(): Promise<void> {
    this.#session = crypto.randomUUID();
    this.#held = [];
    const argument = joinArgument(this.#options, this.#session);
    const joined = wire.joined(await this.#signaling.call(wire.call.join, argument), "joined");
    const again = this.#joined !== null;
    this.#joined = joined;
    this.#epochs = new Epochs(joined.epoch);
    this.#people.begin(joined);
    this.#slots = new SlotTable();
    this.#estimateKbps = null;
    this.#shown.again();
    this.#routes?.close();
    const routes = this.#newRoutes(joined);
    this.#routes = routes;
    this.#quality.start(joined.participant, routes);

    await this.#own.begin(routes, joined.you.can_publish);
    if (joined.you.can_subscribe) routes.addFirstSlots(this.#options.videoSlots ?? FIRST_SLOTS.video);
    if (again) this.emit("rejoined", this);
    this.#release();
    await routes.start();
    await this.#own.joined();
    if (this.#hand) await this.raiseHand(true);
    this.#updateState();
  }

  /** Looks for a new path if nothing comes from the server although something should. Without the socket it cannot. */
  #lookForSilence(sample: wire.QualitySample): void {
    if (!this.#signaling.isOpen || this.#comingBack || this.#joined === null) return;
    const live = [...this.#people.known.values()]
      .flatMap(({ tracks }) => [...tracks.values()])
      .filter(({ muted }) => !muted);
    // A mix brings packets while there is somebody to be heard.
    const heard = live.some(({ kind }) => kind === "audio");
    const due = sample.received.filter(({ track, kind, paused_ratio = 0 }) => {
      if (this.info[kind] === "mesh" || paused_ratio > 0 || this.#slots.pauseOf(track) !== null) return false;
      return track === MIX.track ? heard : live.some(({ id }) => id === track);
    });
    if (this.#silence.broken(due, this.#quality.lastServerBytes, performance.now()))
      this.#routes?.restartServer();
  }

  #newRoutes(joined: wire.Joined): Routes {
    const { redundancy = false, simulcast = true } = this.#options;
    const options = { redundancy, simulcast };
    return new Routes(joined, this.#session, this.#signaling, options, {
      slotAdded: (slot, kind) => this.#slots.add(slot, kind),
      slots: (changes) => this.#slotsChanged(changes),
      sent: (tracks) => this.#quality.setSent(tracks),
      speakers: (speakers) => this.emit("active-speakers", speakers),
      connection: (state) => {
        if (state === "disconnected" || state === "failed") void this.#signaling.probe();
        this.#updateState();
      },
      failed: (error) => {
        if (GIVEN_UP.has(error.code)) void this.#rejoin();
        else this.emit("error", error);
      },
    });
  }

  #opened(): void {
    if (this.#joined) void this.#comeBack();
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
      this.#routes?.retry();
      this.#shown.again();
      this.#updateState();
      this.#own.tellMuted().catch((error: unknown) => console.warn("mute was not told", error));
    } catch (error) {
      this.#comingBack = false;
      const code = error instanceof MoimError ? error.code : "internal";
      // Two pages of one identity would take the seat from each other for ever.
      if (code === "replaced") this.#end("replaced");
      // A moderator decided while the socket was away.
      else if (code === "not_allowed") this.#end("removed");
      else if (code === "gone" || code === "not_joined" || code === "unknown_participant")
        await this.#rejoin();
      else if (code !== "ended" && this.#signaling.isOpen) setTimeout(() => void this.#comeBack(), RETRY_MS);
    }
  }

  async #rejoin(): Promise<void> {
    if (this.#state === "ended" || this.#comingBack) return;
    this.#comingBack = true;
    try {
      void this.#forgetSubscriptions(this.#slots.drop(() => true));
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
        this.#people.joined(event, this.me);
        return;
      case "participant_changed":
        this.#people.changed(event);
        return;
      case "people":
        this.#people.counted(event);
        return;
      case "participant_left":
        this.#participantLeft(event);
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
        this.#shown.forget(event.track);
        void this.#forgetSubscriptions(this.#slots.drop((content) => content.track === event.track));
        this.emit("track-removed", { participant, track });
        return;
      }
      case "active_speakers":
        this.emit("active-speakers", event.speakers);
        return;
      case "slots":
        void this.#slotsChanged(event.slots);
        return;
      case "slots_wanted":
        this.#growSlots(event.audio, this.#videos ? 0 : event.video).catch(() => {});
        return;
      case "track_paused":
        this.#routes?.pause(event.track, event.paused);
        return;
      case "track_layers":
        this.#routes?.setLayer(event.track, event.layer);
        return;
      case "downlink":
        this.#estimateKbps = event.estimate_kbps;
        return;
      case "media_failed":
        this.emit("error", new MoimError("media_failed", event.message));
        return;
      case "room_changed":
        this.#answer.room = event.room;
        this.emit("room-changed", event.room);
        return;
      case "peer_offer":
      case "peer_answer":
      case "peer_candidate":
        this.#routes?.peerEvent(event);
        return;
      case "room_ended":
        this.#end(event.reason);
    }
  }

  #participantLeft(event: Extract<wire.RoomEvent, { type: "participant_left" }>): void {
    const { participant: id, reason } = event;
    const participant = this.#people.left(event);
    if (id === this.me) {
      if (reason === "removed" || reason === "replaced") this.#end(reason);
      // Else the server gave us up although we are here.
      else if (reason !== "left") void this.#rejoin();
      return;
    }
    if (!participant) return;
    for (const track of participant.tracks.keys()) this.#shown.forget(track);
    this.#routes?.left(id);
    void this.#forgetSubscriptions(this.#slots.drop((content) => content.participant === id));
    this.#slots.forget(linkName(id));
    this.emit("participant-left", { participant, reason });
  }

  #trackIs(id: string, track: wire.TrackInfo): void {
    if (id === this.me) this.#own.told(track);
    const participant = this.participants.get(id);
    if (!participant) return;
    const known = participant.tracks.get(track.id);
    participant.tracks.set(track.id, track);
    if (known && known.muted !== track.muted) this.#quality.paused(track.id);
    this.emit(known ? "track-changed" : "track-added", { participant, track });
  }

  /** Resolves when the last figures of what ended are read. */
  #slotsChanged(changes: wire.SlotChange[]): Promise<void> {
    const diff = this.#slots.apply(changes);
    const read = this.#forgetSubscriptions(diff);
    if (diff.mapped.length > 0) {
      this.#quality.mapped(diff.mapped);
      this.#shown.changed();
    }
    for (const mapping of diff.mapped) {
      const mediaTrack = this.#routes?.slotTrack(mapping.slot);
      if (mediaTrack) this.emit("track-subscribed", { ...mapping, mediaTrack });
    }
    for (const pause of diff.paused) {
      this.#quality.rests(pause.track, pause.reason !== null);
      this.emit("track-paused", pause);
    }
    return read;
  }

  async #forgetSubscriptions({ unmapped }: SlotDiff): Promise<void> {
    const read = unmapped.length > 0 ? this.#quality.unmapped(unmapped) : Promise.resolve();
    for (const mapping of unmapped) {
      const mediaTrack = this.#routes?.slotTrack(mapping.slot);
      if (mediaTrack) this.emit("track-unsubscribed", { ...mapping, mediaTrack });
    }
    await read;
  }

  async #growSlots(audio: number, video: number): Promise<void> {
    if (this.#answer.you.can_subscribe) await this.#routes?.growSlots(audio, video);
  }

  #updateState(): void {
    if (this.#state === "ended" || !this.#joined) return;
    const path = this.#routes?.connectionState ?? "new";
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
    this.#shown.end();
    this.#routes?.close();
    if (this.#ownsSignaling) this.#signaling.close();
    if (!this.#joined) return;
    this.#own.stop();
    this.emit("state", "ended");
    this.emit("ended", { reason: reason ?? "ended" });
  }
}
