import {
  explainMediaError,
  type MediaKind,
  type MoimError,
  openCamera,
  openMicrophone,
  type Participant,
  type QualitySample,
  type Room,
  type Subscription,
  type TrackInfo,
  type LocalTrack,
} from "@moim/sdk";
import { BASE } from "./base.ts";
import { el, type IconName, icon } from "./dom.ts";
import { kindTitle } from "./kinds.ts";
import { memory } from "./lobby.ts";
import { explainRoomError, type Notices } from "./notices.ts";
import type { PageOptions } from "./options.ts";
import { PeoplePanel } from "./people-panel.ts";
import { QualityPanel } from "./quality-panel.ts";
import { Tile, TileGrid } from "./tiles.ts";

/** The call page of a joined room. */
export class CallPage {
  readonly element: HTMLElement;
  readonly grid = new TileGrid((tile) => this.#tellShown(tile));
  /** Resolves when the call is over. */
  readonly ended: Promise<string>;
  readonly #room: Room;
  readonly #options: PageOptions;
  readonly #notices: Notices;
  readonly #audio = new Map<string, HTMLAudioElement>();
  readonly #panel = new QualityPanel(() => this.#toggle("quality"));
  readonly #people: PeoplePanel;
  readonly #banner = el("p", { class: "banner", role: "status", hidden: true });
  readonly #hear = el("button", { class: "primary hear", type: "button", hidden: true });
  readonly #kind = el("span", { class: "count" });
  readonly #count = el("span", { class: "count" });
  readonly #buttons: Record<"microphone" | "camera" | "hand" | "quality" | "people", HTMLButtonElement>;
  /** Own tracks of which it is known that they ended. */
  readonly #released = new WeakSet<MediaStreamTrack>();
  #self: Tile;

  constructor(room: Room, name: string, options: PageOptions, notices: Notices) {
    this.#room = room;
    this.#options = options;
    this.#notices = notices;
    this.#buttons = {
      microphone: control("microphone", "Microphone", () => this.#switch("audio")),
      camera: control("camera", "Camera", () => this.#switch("video")),
      hand: control("hand", "Hand", () => this.#try(() => this.#raiseHand(!this.#room.hand))),
      people: control("people", "People", () => this.#toggle("people")),
      quality: control("quality", "Quality", () => this.#toggle("quality")),
    };
    this.#buttons.camera.hidden = room.info.video === "none";
    this.#people = new PeoplePanel(room, options.processing, {
      close: () => this.#toggle("people"),
      copyLink: () => void this.#copyLink(),
      setProcessing: (on) => this.#try(() => room.setProcessing(on)),
      attempt: (act) => this.#try(act),
    });
    this.#hear.textContent = "Click to hear the others";
    this.#hear.onclick = () => this.#playAll();
    const leave = control("leave", "Leave", () => void room.leave());
    leave.classList.add("leave");
    const bar = el(
      "nav",
      { class: "bar", "aria-label": "Call" },
      this.#buttons.microphone,
      this.#buttons.camera,
      this.#buttons.hand,
      this.#buttons.people,
      this.#buttons.quality,
      leave,
    );
    const head = el(
      "header",
      { class: "head" },
      el("h1", { textContent: room.info.id }),
      this.#kind,
      this.#count,
    );
    const stage = el("div", { class: "stage" }, this.grid.element, this.#people.element, this.#panel.element);
    this.element = el("main", { class: "call" }, head, this.#banner, stage, this.#hear, bar);

    this.#self = new Tile(room.me, true, name);
    this.ended = new Promise((resolve) => room.on("ended", ({ reason }) => resolve(reason)));
    this.#follow();
    this.#fill();
  }

  /** Releases what the page holds. */
  close(): void {
    for (const track of [...this.#audio.keys()]) this.#silence(track);
    this.grid.end();
  }

  #follow(): void {
    const room = this.#room;
    room.on("state", () => this.#showState());
    room.on("participant-joined", (participant) => {
      this.#notices.say(`${participant.name} came in`);
      this.#addTile(participant);
      this.#countPeople();
    });
    room.on("participant-named", (participant) => {
      this.#addTile(participant);
      this.#showHandOf(participant);
    });
    room.on("people", () => this.#countPeople());
    room.on("participant-changed", (participant) => {
      this.grid.get(participant.id)?.setName(participant.name);
      this.#showHandOf(participant);
    });
    room.on("participant-left", ({ participant, reason }) => {
      const how = { left: "left", removed: "was put out by a moderator" }[reason as string];
      this.#notices.say(`${participant.name} ${how ?? "lost the connection"}`);
      this.grid.remove(participant.id);
      this.#countPeople();
      if (this.grid.pinned === participant.id) this.#pin(null);
      else this.#chooseVideos();
    });
    for (const name of ["track-added", "track-changed", "track-removed"] as const)
      room.on(name, ({ participant }) => {
        const tile = this.grid.get(participant.id);
        if (tile && name === "track-added") this.#tellShown(tile);
        this.#showMuted(participant);
        this.#people.update();
        this.#chooseVideos();
      });
    room.on("room-changed", (info) => {
      this.#notices.say(
        info.locked
          ? "The room is locked"
          : `The room is open for up to ${info.limits.max_participants} people`,
      );
      this.#people.update();
    });
    room.on("local-changed", (kind) => {
      this.#showSelf();
      this.#tellGone(kind);
    });
    room.on("silenced", ({ kind, silenced }) => {
      const what = kind === "audio" ? "microphone" : "camera";
      this.#notices.say(`A moderator switched your ${what} ${silenced ? "off" : "on again"}`);
      this.#showSelf();
    });
    room.on("track-subscribed", (subscription) => this.#attach(subscription));
    room.on("track-unsubscribed", (subscription) => this.#detach(subscription));
    room.on("track-paused", ({ participant, reason }) =>
      this.grid.get(participant)?.setPaused(reason !== null),
    );
    room.on("active-speakers", (speakers) => this.grid.speak(speakers));
    room.on("sample", (sample) => {
      if (!this.#panel.element.hidden) this.#showQuality(sample);
    });
    room.on("rejoined", () => {
      this.#notices.say("Back in the room");
      this.#people.showKnown();
      this.#fill();
    });
    room.on("error", (error: MoimError) => this.#notices.error(explainRoomError(error)));
  }

  /** All tiles anew, from what the room knows. */
  #fill(): void {
    const name = this.#self.name;
    this.grid.clear();
    this.#self = new Tile(this.#room.me, true, name);
    this.grid.add(this.#self);
    this.#showHand();
    for (const participant of this.#room.participants.values()) {
      this.#addTile(participant);
      for (const track of participant.tracks.values()) {
        const mediaTrack = this.#room.mediaTrack(track.id);
        if (mediaTrack)
          this.#attach({
            participant: participant.id,
            track: track.id,
            kind: track.kind,
            slot: "",
            mediaTrack,
          });
      }
    }
    this.#pin(this.grid.pinned !== null && this.grid.get(this.grid.pinned) ? this.grid.pinned : null);
    const mix = this.#room.mediaTrack("mix");
    if (mix) this.#attach({ participant: "", track: "mix", kind: "audio", slot: "", mediaTrack: mix });
    this.#showSelf();
    this.#showState();
    this.#countPeople();
    this.#chooseVideos();
  }

  #addTile(participant: Participant): void {
    const known = this.grid.get(participant.id);
    if (known && !known.isAudience) return;
    const tile = known ?? new Tile(participant.id, false, participant.name);
    tile.isAudience = false;
    tile.setHand(participant.hand);
    if (this.#room.info.video !== "none")
      tile.onPin(() => this.#pin(this.grid.pinned === participant.id ? null : participant.id));
    if (!known) this.grid.add(tile);
    this.#showMuted(participant);
  }

  #showHandOf(participant: Participant): void {
    if (participant.hand) this.#notices.say(`${participant.name} raises their hand`);
    this.grid.get(participant.id)?.setHand(participant.hand);
    this.grid.refresh();
    this.#people.update();
  }

  #nameOf(id: string): string {
    if (id === "") return "Everyone, mixed";
    return this.#room.participants.get(id)?.name ?? this.grid.get(id)?.name ?? "Someone who left";
  }

  /** The server sends each picture in the size that its tile needs, and none that nobody can see. */
  #tellShown({ participant, shown }: Tile): void {
    const tracks = this.#room.participants.get(participant)?.tracks.values() ?? [];
    for (const { id, kind } of tracks) {
      if (kind !== "video") continue;
      this.#room.setPinned(id, participant === this.grid.pinned);
      if (shown) this.#room.setShown(id, shown);
    }
  }

  /** Somebody's picture is the large one, and is kept if the path does not carry all; or nobody's. */
  #pin(participant: string | null): void {
    this.grid.pin(participant);
    for (const tile of this.grid.all()) this.#tellShown(tile);
    this.#chooseVideos();
  }

  #showQuality(sample: QualitySample): void {
    this.#panel.update(sample, {
      nameOf: (id) => this.#nameOf(id),
      pauseReason: (track) => this.#room.pauseReason(track),
      layers: this.#room.sentLayers(),
    });
  }

  #showMuted(participant: Participant): void {
    const tracks = [...participant.tracks.values()];
    const tile = this.grid.get(participant.id);
    tile?.setMuted(!tracks.some((track) => track.kind === "audio" && !track.muted));
    tile?.setVideoMuted(!tracks.some((track) => track.kind === "video" && !track.muted));
  }

  /** With a limit on videos: asks for as many of the others' as allowed, and keeps those that are shown. */
  #chooseVideos(): void {
    const { show } = this.#options;
    if (show === null) return;
    const videos = [...this.#room.participants.values()].flatMap((participant) =>
      [...participant.tracks.values()]
        .filter((track) => track.kind === "video")
        .map((track) => ({ track, pinned: participant.id === this.grid.pinned })),
    );
    const rank = ({ track, pinned }: { track: TrackInfo; pinned: boolean }) =>
      (pinned ? -4 : 0) + (track.muted ? 2 : 0) + (this.#room.mediaTrack(track.id) ? 0 : 1);
    const wanted = videos
      .sort((a, b) => rank(a) - rank(b))
      .slice(0, show)
      .map(({ track }) => track.id);
    this.#room.showVideos(wanted).catch((error: unknown) => console.warn("choice of videos failed", error));
  }

  #attach({ participant, track, kind, mediaTrack, rtpTimestamp }: Subscription): void {
    if (kind === "video") {
      this.grid.get(participant)?.setMedia(mediaTrack, rtpTimestamp);
      this.grid.refresh();
      return;
    }
    this.#silence(track);
    const audio = el("audio", { autoplay: true, srcObject: new MediaStream([mediaTrack]) });
    this.#audio.set(track, audio);
    this.#play(audio);
  }

  #detach({ participant, track, kind, mediaTrack }: Subscription): void {
    if (kind === "audio") {
      if (this.#room.mediaTrack(track) === null) this.#silence(track);
      return;
    }
    const current = this.#room.mediaTrack(track);
    if (current !== mediaTrack) this.grid.get(participant)?.setMedia(current);
    this.grid.refresh();
  }

  #silence(track: string): void {
    const audio = this.#audio.get(track);
    if (audio) audio.srcObject = null;
    this.#audio.delete(track);
  }

  /** Browsers refuse sound before the first click on a page that is new to them. */
  #play(audio: HTMLAudioElement): void {
    audio.play().catch((error: DOMException) => {
      if (error.name === "NotAllowedError") this.#hear.hidden = false;
    });
  }

  #playAll(): void {
    this.#hear.hidden = true;
    for (const audio of this.#audio.values()) this.#play(audio);
  }

  #showSelf(): void {
    const show = (kind: MediaKind, button: HTMLButtonElement, name: "microphone" | "camera") => {
      const local = this.#room.localTrack(kind);
      const on = local !== null && !local.muted && !local.silenced;
      button.querySelector("svg")?.replaceWith(icon(on ? name : `${name}-off`));
      button.setAttribute("aria-pressed", String(on));
      button.classList.toggle("off", !on);
      button.title = `${name === "camera" ? "Camera" : "Microphone"} is ${on ? "on" : "off"}`;
      return on;
    };
    const camera = this.#room.localTrack("video");
    this.#self.setMuted(!show("audio", this.#buttons.microphone, "microphone"));
    this.#self.setMedia(camera?.mediaTrack ?? null);
    this.#self.setVideoMuted(!show("video", this.#buttons.camera, "camera"));
  }

  async #raiseHand(raised: boolean): Promise<void> {
    await this.#room.raiseHand(raised);
    this.#showHand();
  }

  #showHand(): void {
    const raised = this.#room.hand;
    this.#self.setHand(raised);
    const button = this.#buttons.hand;
    button.setAttribute("aria-pressed", String(raised));
    button.title = raised ? "Lower your hand" : "Raise your hand: everybody sees it";
  }

  async #switch(kind: MediaKind): Promise<void> {
    const device = kind === "audio" ? "microphone" : "camera";
    const button = this.#buttons[device];
    const local = this.#room.localTrack(kind);
    button.disabled = true;
    try {
      const on = local !== null && !local.muted && !local.silenced;
      if (local && (on || local.mediaTrack.readyState === "live")) await this.#room.mute(kind, on);
      else await this.#publish(device);
      if (on && device === "camera") this.#release(local);
      memory.set(device, on ? "off" : "on");
    } catch (error) {
      this.#notices.error(explainRoomError(error as MoimError));
    } finally {
      button.disabled = false;
      this.#showSelf();
    }
  }

  /** A camera that is off is released: its light goes out. */
  #release(camera: LocalTrack): void {
    this.#released.add(camera.mediaTrack);
    camera.mediaTrack.stop();
  }

  /** Says that a device is gone that nobody released: it was unplugged, or the system took it. */
  #tellGone(kind: MediaKind): void {
    const track = this.#room.localTrack(kind)?.mediaTrack;
    if (track?.readyState !== "ended" || this.#released.has(track)) return;
    this.#released.add(track);
    const device = kind === "audio" ? "microphone" : "camera";
    this.#notices.error(
      `Your ${device} is gone: it was unplugged, or something else took it. Switch it on to open it again.`,
    );
  }

  async #publish(device: "microphone" | "camera"): Promise<void> {
    if (!this.#room.canPublish) {
      this.#notices.error("You may only watch and listen here. Ask whoever invited you for another link.");
      return;
    }
    let track: MediaStreamTrack;
    try {
      track =
        device === "microphone"
          ? await openMicrophone({ processing: this.#options.processing })
          : await openCamera(this.#options.cameraSize);
    } catch (error) {
      this.#notices.error(explainMediaError(device, error));
      return;
    }
    await this.#room.publish(track);
  }

  /** Does what may be refused, and says so. */
  #try(act: () => Promise<void>): void {
    act().catch((error: unknown) => {
      const text =
        error instanceof DOMException
          ? explainMediaError("microphone", error)
          : explainRoomError(error as MoimError);
      this.#notices.error(text);
      this.#people.update();
    });
  }

  /** Opens a panel and closes the other, or closes it. */
  #toggle(name: "people" | "quality"): void {
    const panels = { people: this.#people.element, quality: this.#panel.element };
    const open = panels[name].hidden;
    for (const key of ["people", "quality"] as const) {
      panels[key].hidden = key !== name || !open;
      this.#buttons[key].setAttribute("aria-pressed", String(key === name && open));
    }
    const sample = this.#room.lastSample();
    if (open && name === "people") this.#people.update();
    if (open && name === "quality" && sample) this.#showQuality(sample);
    if (!open) this.#buttons[name].focus();
  }

  async #copyLink(): Promise<void> {
    const link = `${location.origin}${BASE}room/${encodeURIComponent(this.#room.info.id)}`;
    try {
      await navigator.clipboard.writeText(link);
      this.#notices.say("Link copied");
    } catch {
      this.#notices.error(`The browser does not let this page copy. The link is ${link}`);
    }
  }

  #showState(): void {
    const { state } = this.#room;
    const text = { connecting: "Connecting…", reconnecting: "Connection lost: reconnecting…" };
    this.#banner.hidden = state === "connected" || state === "ended";
    this.#banner.textContent = state === "connecting" || state === "reconnecting" ? text[state] : "";
  }

  #countPeople(): void {
    this.#kind.textContent = kindTitle(this.#room.info);
    const { count } = this.#room;
    this.#count.textContent = count === 1 ? "only you" : `${count} people`;
    this.grid.setPeople(count);
    this.#people.update();
  }
}

function control(name: IconName, label: string, act: () => void): HTMLButtonElement {
  const button = el(
    "button",
    { type: "button", class: "control" },
    icon(name),
    el("span", { textContent: label }),
  );
  button.onclick = act;
  return button;
}
