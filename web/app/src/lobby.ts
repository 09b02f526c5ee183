import { explainMediaError, openCamera, openMicrophone } from "@moim/sdk";
import { Device } from "./device.ts";
import { el, icon } from "./dom.ts";
import { AUDIO, type Kind, PRESETS, VIDEO, wantsVideo } from "./kinds.ts";
import { kindOf, type PageOptions, plainName, roomName } from "./options.ts";

/** What someone chose before joining. */
export interface Choice {
  room: string;
  name: string;
  microphone: MediaStreamTrack | null;
  camera: MediaStreamTrack | null;
  kind: Kind;
}

/** Remembers choices between visits; pages without storage simply forget. */
export const memory = {
  get(key: string): string | null {
    try {
      return localStorage.getItem(`moim.${key}`);
    } catch {
      return null;
    }
  },
  set(key: string, value: string): void {
    try {
      localStorage.setItem(`moim.${key}`, value);
    } catch {
      // Private windows may refuse.
    }
  },
};

/** Whether a device is to be used: by the address, else as chosen last time, else yes. */
export function wants(device: "microphone" | "camera", options: PageOptions): boolean {
  return options[device] ?? memory.get(device) !== "off";
}

type Name = "microphone" | "camera";

/** Opens a device. One that fails is reported. */
async function openDevice(
  device: Name,
  options: PageOptions,
  report: (message: string) => void,
): Promise<MediaStreamTrack | null> {
  try {
    return device === "microphone"
      ? await openMicrophone({ processing: options.processing })
      : await openCamera(options.cameraSize);
  } catch (error) {
    report(explainMediaError(device, error));
    return null;
  }
}

/** Takes the devices that are wanted, one by one: two permission questions on top of each other confuse. */
export async function openDevices(
  options: PageOptions,
  kind: Kind,
  report: (message: string) => void,
): Promise<Pick<Choice, Name>> {
  const open = async (device: Name) =>
    wants(device, options) ? await openDevice(device, options, report) : null;
  const microphone = await open("microphone");
  const camera = wantsVideo(kind) ? await open("camera") : null;
  return { microphone, camera };
}

/** The start page: which room, which name, a look in the mirror. */
export function showLobby(
  parent: HTMLElement,
  options: PageOptions,
  report: (message: string) => void,
): Promise<Choice> {
  const touched = new Set<Name>();
  const video = el("video", { autoplay: true, muted: true, playsInline: true, hidden: true });
  const hint = el("p", { class: "hint", textContent: "Camera is off" });
  const toggles = el("div", { class: "toggles" });
  const preview = el("div", { class: "preview" }, video, hint, toggles);
  preview.setAttribute("aria-label", "Preview of your camera");

  const toggle = (name: Name, label: string): Device => {
    const button = el("button", { type: "button", class: "round" });
    const show = () => {
      const on = device.wanted;
      button.replaceChildren(icon(on ? name : `${name}-off`));
      button.setAttribute("aria-label", `${label} ${on ? "on" : "off"}`);
      button.setAttribute("aria-pressed", String(on));
      button.title = `${label} is ${on ? "on" : "off"}`;
      if (name !== "camera") return;
      const { track } = device;
      video.hidden = track === null;
      hint.hidden = track !== null;
      if (track === null) video.srcObject = null;
      else if (!(video.srcObject as MediaStream | null)?.getTracks().includes(track))
        video.srcObject = new MediaStream([track]);
    };
    const device = new Device(() => openDevice(name, options, report), show);
    button.onclick = () => {
      touched.add(name);
      memory.set(name, device.wanted ? "off" : "on");
      void device.set(!device.wanted);
    };
    show();
    toggles.append(button);
    return device;
  };
  const microphone = toggle("microphone", "Microphone");
  const camera = toggle("camera", "Camera");
  /** Opens what was not touched yet and is wanted, one after the other. */
  const openWanted = async (kind: Kind) => {
    for (const [name, device] of [
      ["microphone", microphone],
      ["camera", camera],
    ] as const) {
      if (touched.has(name) || !wants(name, options)) continue;
      if (name === "microphone" || wantsVideo(kind)) await device.set(true);
    }
  };
  // The mirror starts by itself only where the person has already said yes: a permission question before a word
  // of explanation is rude.
  void permitted().then((yes) => (yes ? openWanted({}) : undefined));

  const room = el("input", {
    id: "room",
    name: "room",
    required: true,
    maxLength: 64,
    autocomplete: "off",
    spellcheck: false,
    placeholder: "garden",
    value: options.room ?? "",
    readOnly: options.room !== null,
  });
  const name = el("input", {
    id: "name",
    name: "name",
    required: true,
    maxLength: 64,
    autocomplete: "name",
    placeholder: "Ada",
    value: options.name ?? memory.get("name") ?? "",
  });
  const button = el("button", { type: "submit", class: "primary", textContent: "Join" });
  // Who comes by a link finds the room as it is; only the start page makes new ones.
  const kinds = options.room === null ? kindChooser(kindOf(options)) : null;
  const form = el(
    "form",
    {},
    el("label", { for: "room", textContent: "Room" }),
    room,
    el("label", { for: "name", textContent: "Your name" }),
    name,
    kinds?.element ?? null,
    button,
    el("p", { class: "hint", textContent: "Whoever has the link can come in. No account, no installation." }),
  );
  const heading = options.room === null ? "Meet in a room" : "Come in";
  parent.replaceChildren(
    el(
      "main",
      { class: "lobby" },
      el("header", {}, el("h1", { textContent: "moim" }), el("p", { textContent: heading })),
      el("div", { class: "card" }, preview, form),
    ),
  );
  (options.room === null ? room : name).focus();

  return new Promise((resolve) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      const id = options.room ?? roomName(room.value);
      const typed = plainName(name.value);
      room.setCustomValidity(id === null ? "Letters, digits, dashes and dots make a room name." : "");
      if (id === null || typed === "") {
        form.reportValidity();
        return;
      }
      button.disabled = true;
      memory.set("name", typed);
      const kind = kinds ? kinds.chosen() : kindOf(options);
      void (async () => {
        // Those who never touched the switches are asked now.
        await openWanted(kind);
        // What is still opening is waited for, as it was wished last.
        await Promise.all([microphone, camera].map((device) => device.set(device.wanted)));
        if (!wantsVideo(kind)) await camera.set(false);
        resolve({ room: id, name: typed, microphone: microphone.take(), camera: camera.take(), kind });
      })();
    };
    room.oninput = () => room.setCustomValidity("");
  });
}

/** The presets with a sentence each, and under them an own choice. */
function kindChooser(asked: Kind): { element: HTMLElement; chosen(): Kind } {
  const own = asked.audio !== undefined || asked.video !== undefined;
  const preset = own ? null : (asked.preset ?? memory.get("preset") ?? "small_call");
  const radio = (value: string, title: string, sentence: string) => {
    const input = el("input", { type: "radio", name: "kind", value, id: `kind-${value}` });
    input.checked = value === preset || (own && value === "own");
    const label = el("label", { for: input.id }, el("strong", { textContent: title }), ` ${sentence}`);
    return el("div", { class: "kind" }, input, label);
  };
  const select = <T extends string>(
    id: string,
    title: string,
    all: readonly { value: T; title: string; sentence: string }[],
    chosen: T | undefined,
  ) => {
    const options = all.map((one) =>
      el("option", { value: one.value, textContent: `${one.title}: ${one.sentence}` }),
    );
    const box = el("select", { id }, ...options);
    box.value = chosen ?? all[0]!.value;
    return { box, label: el("label", { for: id, textContent: title }) };
  };
  const audio = select("own-audio", "Audio", AUDIO, asked.audio);
  const video = select("own-video", "Video", VIDEO, asked.video);
  const choice = el("div", { class: "own" }, audio.label, audio.box, video.label, video.box);
  const element = el(
    "fieldset",
    { class: "kinds" },
    el("legend", { textContent: "Kind of room" }),
    ...PRESETS.map((one) => radio(one.value, one.title, one.sentence)),
    radio("own", "Own choice", "Choose how sound and pictures travel, each by itself."),
    choice,
  );
  const value = () => element.querySelector<HTMLInputElement>("input:checked")?.value ?? "small_call";
  const show = () => {
    choice.hidden = value() !== "own";
  };
  element.onchange = show;
  show();
  return {
    element,
    chosen() {
      const name = value();
      if (name === "own")
        return {
          audio: audio.box.value as NonNullable<Kind["audio"]>,
          video: video.box.value as NonNullable<Kind["video"]>,
        };
      memory.set("preset", name);
      return { preset: name as NonNullable<Kind["preset"]> };
    },
  };
}

async function permitted(): Promise<boolean> {
  try {
    const states = await Promise.all(
      ["microphone", "camera"].map((name) => navigator.permissions.query({ name: name as PermissionName })),
    );
    return states.every((status) => status.state === "granted");
  } catch {
    return false;
  }
}
