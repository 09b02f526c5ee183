/** A media line of a description. */
export interface Line {
  mid: string;
  /** Whether the describing side sends on it. */
  sends: boolean;
  /** Whether the describing side receives on it. */
  receives: boolean;
}

/** The media lines of an SDP text, by their mids (RFC 8866, 6.7 for directions; sendrecv where none is given). */
export function linesOf(sdp: string): Line[] {
  const sections = sdp.split(/^m=/m).slice(1);
  return sections.flatMap((section) => {
    const mid = /^a=mid:(\S+)/m.exec(section)?.[1];
    if (mid === undefined) return [];
    const direction = /^a=(sendrecv|sendonly|recvonly|inactive)\s*$/m.exec(section)?.[1] ?? "sendrecv";
    return [
      {
        mid,
        sends: direction === "sendrecv" || direction === "sendonly",
        receives: direction === "sendrecv" || direction === "recvonly",
      },
    ];
  });
}
