/** So many percent of own sound lost ask for copies of it, and so few no longer do. */
const MANY_PCT = { from: 2, until: 1 };
/** Reports are few packets each: so many of them make a share, the more so before copies end. */
const REPORTS = { from: 2, until: 10 };

/** Whether what the server says of own sound asks for redundancy: it loses many packets on their way there. */
export class Losses {
  readonly #told: number[] = [];
  #many = false;

  /** The server reports that so many percent were lost; null without a report. Returns whether many are. */
  report(lossPct: number | null): boolean {
    if (lossPct !== null) this.#told.push(lossPct);
    if (this.#told.length > REPORTS.until) this.#told.shift();
    const wanted = this.#many ? REPORTS.until : REPORTS.from;
    if (this.#told.length >= wanted) {
      const latest = this.#told.slice(-wanted);
      const mean = latest.reduce((sum, pct) => sum + pct, 0) / wanted;
      this.#many = mean >= (this.#many ? MANY_PCT.until : MANY_PCT.from);
    }
    return this.#many;
  }
}
