/** How the microphone is taken. */
export interface MicrophoneOptions {
  /** Echo cancellation, noise suppression and gain control; off to measure or to play music. Default: on. */
  processing?: boolean;
  deviceId?: string;
}

/** How the camera is taken. */
export interface CameraOptions {
  /** Default: 640 × 360 at up to 30 frames/s. */
  width?: number;
  height?: number;
  frameRate?: number;
  deviceId?: string;
}

/** Takes the microphone. Rejects as `getUserMedia` does; see {@link explainMediaError}. */
export async function openMicrophone(options: MicrophoneOptions = {}): Promise<MediaStreamTrack> {
  const processing = options.processing ?? true;
  const audio: MediaTrackConstraints = {
    echoCancellation: processing,
    noiseSuppression: processing,
    autoGainControl: processing,
    ...(options.deviceId ? { deviceId: options.deviceId } : {}),
  };
  return (await devices().getUserMedia({ audio })).getAudioTracks()[0]!;
}

/** Takes the camera. Rejects as `getUserMedia` does; see {@link explainMediaError}. */
export async function openCamera(options: CameraOptions = {}): Promise<MediaStreamTrack> {
  const video: MediaTrackConstraints = {
    width: { ideal: options.width ?? 640 },
    height: { ideal: options.height ?? 360 },
    frameRate: { max: options.frameRate ?? 30 },
    ...(options.deviceId ? { deviceId: options.deviceId } : {}),
  };
  return (await devices().getUserMedia({ video })).getVideoTracks()[0]!;
}

function devices(): MediaDevices {
  // Browsers hide the interface where the page is neither https nor localhost.
  if (!navigator.mediaDevices?.getUserMedia)
    throw new DOMException("media devices need https:// or localhost", "SecurityError");
  return navigator.mediaDevices;
}

/** Why a device could not be taken and what helps, for people. */
export function explainMediaError(device: "camera" | "microphone", error: unknown): string {
  const name = (error as { name?: string } | null)?.name ?? "";
  switch (name) {
    case "NotAllowedError":
      return `The ${device} is blocked. Allow it in the address bar, then try again.`;
    case "NotFoundError":
      return `No ${device} was found. Plug one in, or go on without.`;
    case "NotReadableError":
      return `The ${device} is in use by another program. Close that one, then try again.`;
    case "OverconstrainedError":
      return `The ${device} cannot do what was asked. Choose another size or device.`;
    case "SecurityError":
      return `Browsers give the ${device} only to pages on https:// or localhost. Open this page by such an address.`;
    default:
      return `The ${device} could not be opened (${name || String(error)}). Try again.`;
  }
}
