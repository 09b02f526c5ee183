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
