/** Events by name, each with its argument's type. */
export class Emitter<Events> {
  readonly #listeners = new Map<keyof Events, Set<(event: never) => void>>();

  /** Calls `listener` at each such event; returns a function that ends it. */
  on<K extends keyof Events>(name: K, listener: (event: Events[K]) => void): () => void {
    let set = this.#listeners.get(name);
    if (!set) {
      set = new Set();
      this.#listeners.set(name, set);
    }
    set.add(listener);
    return () => set.delete(listener);
  }

  /** A listener that throws must not keep the others from hearing. */
  protected emit<K extends keyof Events>(name: K, event: Events[K]): void {
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      try {
        (listener as (event: Events[K]) => void)(event);
      } catch (error) {
        console.error(`listener of "${String(name)}" failed`, error);
      }
    }
  }
}
