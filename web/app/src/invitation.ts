/** Where a page keeps its token: this tab alone, until it is closed. */
type Kept = Pick<Storage, "getItem" | "setItem" | "removeItem">;

/** What of the address is read, and how it is replaced without a new entry of the history. */
interface Address {
  pathname: string;
  search: string;
  hash: string;
}

const KEY = "moim.token";

/**
 * The token that the page was opened with. It leaves the address bar once it is read. Whoever shares the address, or the screen,
 * must not hand on their own right to the room. A reload finds it in the tab's own storage. If the browser has none for this page, the
 * token stays in the address. Else a reload would lose it.
 */
export function takeToken(
  address: Address,
  replace: (path: string) => void,
  storage: () => Kept,
): string | null {
  const fragment = new URLSearchParams(address.hash.replace(/^#/, ""));
  const shown = fragment.get("token");
  if (shown === null) return kept(address.pathname, storage);
  if (!keepToken(address.pathname, shown || null, storage)) return shown || null;
  fragment.delete("token");
  const rest = fragment.toString();
  replace(address.pathname + address.search + (rest === "" ? "" : `#${rest}`));
  return shown || null;
}

/** Keeps the token for the page of a path, or forgets it; false where the browser lets nothing be kept. */
export function keepToken(path: string, token: string | null, storage: () => Kept): boolean {
  try {
    const kept = storage();
    if (token === null) kept.removeItem(KEY);
    else kept.setItem(KEY, JSON.stringify({ path, token }));
    return true;
  } catch {
    return false;
  }
}

function kept(path: string, storage: () => Kept): string | null {
  try {
    const found: unknown = JSON.parse(storage().getItem(KEY) ?? "null");
    const { path: of, token } = (found ?? {}) as { path?: unknown; token?: unknown };
    return of === path && typeof token === "string" ? token : null;
  } catch {
    return null;
  }
}
