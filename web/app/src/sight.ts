import type { ShownSize } from "@moim/sdk";

/** What is known of how an element can be seen. */
export interface View {
  /** In CSS pixels. */
  width: number;
  height: number;
  /** Whether any of it is within the part of the page that is shown. */
  inView: boolean;
  /** Whether the page itself is shown, and not in a tab behind others. */
  pageShown: boolean;
  /** Pixels of the screen to a CSS pixel. */
  ratio: number;
}

/** The size of an element in pixels of the screen; 0 × 0 where nobody can see it. */
export function shownSize({ width, height, inView, pageShown, ratio }: View): ShownSize {
  if (!inView || !pageShown) return { width: 0, height: 0 };
  return { width: Math.round(width * ratio), height: Math.round(height * ratio) };
}

interface Seen {
  tell: (size: ShownSize) => void;
  /** Null until the browser has said it. */
  inView: boolean | null;
  /** What was told last. */
  last: string;
}

/** Watches at which sizes elements can be seen, and tells each change. */
export class Sight {
  readonly #seen = new Map<Element, Seen>();
  readonly #sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) this.#look(target);
  });
  /** Elements that are scrolled away, and those that are not in the page. */
  readonly #views = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const seen = this.#seen.get(target);
      if (seen) seen.inView = isIntersecting;
      this.#look(target);
    }
  });
  readonly #lookAtAll = () => {
    for (const element of this.#seen.keys()) this.#look(element);
  };

  constructor() {
    document.addEventListener("visibilitychange", this.#lookAtAll);
    // Another zoom, or another screen: the ratio changes, and perhaps no size.
    window.addEventListener("resize", this.#lookAtAll);
  }

  /** @param tell hears the size as soon as it is known, and at each change */
  watch(element: Element, tell: (size: ShownSize) => void): void {
    this.#seen.set(element, { tell, inView: null, last: "" });
    this.#sizes.observe(element);
    this.#views.observe(element);
    this.#look(element);
  }

  unwatch(element: Element): void {
    this.#seen.delete(element);
    this.#sizes.unobserve(element);
    this.#views.unobserve(element);
  }

  end(): void {
    this.#sizes.disconnect();
    this.#views.disconnect();
    document.removeEventListener("visibilitychange", this.#lookAtAll);
    window.removeEventListener("resize", this.#lookAtAll);
  }

  #look(element: Element): void {
    const seen = this.#seen.get(element);
    const pageShown = document.visibilityState === "visible";
    // A page in the background is not laid out, so its elements' places are not known there.
    if (!seen || (pageShown && seen.inView === null)) return;
    const size = shownSize({
      width: element.clientWidth,
      height: element.clientHeight,
      inView: seen.inView === true,
      pageShown,
      ratio: window.devicePixelRatio,
    });
    const now = `${size.width} ${size.height}`;
    if (seen.last === now) return;
    seen.last = now;
    seen.tell(size);
  }
}
