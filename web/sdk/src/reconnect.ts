/** When to try again after the socket was lost. */
export const RECONNECT = { firstMinMs: 200, firstMaxMs: 1000, factor: 1.5, maxMs: 5000 } as const;

/**
 * Delay before attempt `attempt` (from 0), in milliseconds. The jitter stays at the cap, so that a whole room
 * does not come back in one instant.
 * @param random in 0..1
 */
export function reconnectDelayMs(attempt: number, random: number): number {
  const { firstMinMs, firstMaxMs, factor, maxMs } = RECONNECT;
  const growth = factor ** attempt;
  const high = Math.min(firstMaxMs * growth, maxMs);
  const low = Math.min(firstMinMs * growth, high / 2);
  return low + (high - low) * random;
}
