import { type Quality, quality as qualityShape } from "@moim/sdk/wire";
import { type Reading, read } from "./server.ts";

/** How often the figures are asked for. */
export const POLL_MS = 3_000;
const TIMEOUT_MS = 5_000;

/** What one question brought. */
export type Asked =
  | { state: "figures"; quality: Quality }
  /** The server wants a token, or a better one. */
  | { state: "token"; problem: string }
  | { state: "failed"; problem: string };

function headersOf(token: string): Record<string, string> {
  return token === "" ? {} : { authorization: `Bearer ${token}` };
}

/** Reads the server's metrics once: "hidden" if they are not for whoever asks, "failed" if they do not come. */
export async function askServer(
  token: string,
  get: typeof fetch = fetch,
): Promise<Reading | "hidden" | "failed"> {
  try {
    const headers = headersOf(token);
    const answer = await get("metrics", { headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (answer.ok) return read(await answer.text(), performance.now());
    return answer.status === 401 || answer.status === 403 ? "hidden" : "failed";
  } catch {
    return "failed";
  }
}

/** Asks for the figures once. */
export async function ask(token: string, get: typeof fetch = fetch): Promise<Asked> {
  try {
    const headers = headersOf(token);
    const answer = await get("v1/quality", { headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (answer.ok) return { state: "figures", quality: qualityShape(await answer.json(), "quality") };
    const said = await problemOf(answer);
    if (answer.status === 401 || answer.status === 403) return { state: "token", problem: said };
    return { state: "failed", problem: said };
  } catch (error) {
    const name = (error as Error).name;
    const silent = name === "TypeError" || name === "TimeoutError" || name === "AbortError";
    return { state: "failed", problem: silent ? "The server does not answer." : String(error) };
  }
}

/** What the server says is wrong (RFC 9457), or its status. */
async function problemOf(answer: Response): Promise<string> {
  try {
    const { detail, title } = (await answer.json()) as { detail?: unknown; title?: unknown };
    for (const text of [detail, title]) if (typeof text === "string" && text !== "") return text;
  } catch {
    // No problem document.
  }
  return `The server answered with status ${answer.status}.`;
}
