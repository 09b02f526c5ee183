/** Columns and rows of the tiles. */
export interface Grid {
  columns: number;
  /** Width of a tile, in pixels. */
  width: number;
}

const ASPECT = 16 / 9;
/** Tiles are never made smaller than this; the page scrolls instead. */
const MIN_WIDTH = 150;

/**
 * The widths of one large tile and of the others in a row below it, all 16:9. The row has a fifth of the height, or more
 * rows if the tiles would be too small; the page scrolls then.
 * @param others the other tiles
 * @param width,height,gap in pixels
 */
export function bestStage(
  others: number,
  width: number,
  height: number,
  gap: number,
): { stage: number; tile: number } {
  const fit = (high: number) => Math.max(1, Math.floor(Math.min(width, high * ASPECT)));
  if (others === 0) return { stage: fit(height), tile: 0 };
  const across = Math.floor((width - gap * (others - 1)) / others);
  const tile = Math.min(width, Math.max(MIN_WIDTH, Math.min(across, fit(height / 5))));
  return { stage: fit(Math.max(height / 2, height - gap - tile / ASPECT)), tile };
}

/**
 * The number of columns that makes 16:9 tiles largest in an area.
 * @param count tiles
 * @param width,height,gap in pixels
 */
export function bestGrid(count: number, width: number, height: number, gap: number): Grid {
  let best: Grid = { columns: 1, width: 0 };
  for (let columns = 1; columns <= Math.max(1, count); columns++) {
    const rows = Math.ceil(count / columns);
    const byWidth = (width - gap * (columns - 1)) / columns;
    const byHeight = ((height - gap * (rows - 1)) / rows) * ASPECT;
    const tile = Math.floor(Math.min(byWidth, byHeight));
    if (tile > best.width) best = { columns, width: tile };
  }
  if (best.width >= MIN_WIDTH) return best;
  const columns = Math.max(1, Math.min(count, Math.floor((width + gap) / (MIN_WIDTH + gap))));
  return { columns, width: Math.max(1, Math.floor((width - gap * (columns - 1)) / columns)) };
}
