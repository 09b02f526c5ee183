/**
 * A small runtime validator: a shape checks an unknown value and returns it typed, without keys that it does
 * not know. Messages may grow, so unknown keys are dropped and are no error.
 */
export type Shape<T> = (value: unknown, path: string) => T;

/** The type that a shape yields. */
export type Infer<S> = S extends Shape<infer T> ? T : never;

/** A message that is not what the contract says. */
export class ShapeError extends Error {
  override name = "ShapeError";
  constructor(path: string, expected: string, value: unknown) {
    super(`${path}: expected ${expected}, got ${JSON.stringify(value)?.slice(0, 80) ?? "nothing"}`);
  }
}

/** Any string. */
export const text: Shape<string> = (value, path) => {
  if (typeof value !== "string") throw new ShapeError(path, "a string", value);
  return value;
};

/** A finite number. */
export const number: Shape<number> = (value, path) => {
  if (typeof value !== "number" || !Number.isFinite(value)) throw new ShapeError(path, "a number", value);
  return value;
};

/** A whole number from 0. */
export const count: Shape<number> = (value, path) => {
  if (!Number.isSafeInteger(value) || (value as number) < 0)
    throw new ShapeError(path, "a whole number", value);
  return value as number;
};

/** True or false. */
export const bool: Shape<boolean> = (value, path) => {
  if (typeof value !== "boolean") throw new ShapeError(path, "true or false", value);
  return value;
};

/** One of the given words. */
export function oneOf<const T extends readonly string[]>(...words: T): Shape<T[number]> {
  return (value, path) => {
    if (!words.includes(value as string)) throw new ShapeError(path, words.join(" or "), value);
    return value as T[number];
  };
}

/** A list of equal shapes. */
export function list<T>(item: Shape<T>): Shape<T[]> {
  return (value, path) => {
    if (!Array.isArray(value)) throw new ShapeError(path, "a list", value);
    return value.map((entry, index) => item(entry, `${path}[${index}]`));
  };
}

/** A value or null; a missing one is null too. */
export function nullable<T>(inner: Shape<T>): Shape<T | null> {
  return (value, path) => (value === null || value === undefined ? null : inner(value, path));
}

const OPTIONAL = Symbol("optional");
type Optional<T> = Shape<T | undefined> & { [OPTIONAL]: true };

/** A key that may be missing; null counts as missing. */
export function optional<T>(inner: Shape<T>): Optional<T> {
  const shape: Shape<T | undefined> = (value, path) =>
    value === undefined || value === null ? undefined : inner(value, path);
  return Object.assign(shape, { [OPTIONAL]: true as const });
}

type Fields = Record<string, Shape<unknown>>;
type OptionalKeys<F extends Fields> = {
  [K in keyof F]: F[K] extends { [OPTIONAL]: true } ? K : never;
}[keyof F];
type Simplify<T> = { [K in keyof T]: T[K] } & {};
type ObjectOf<F extends Fields> = Simplify<
  { [K in Exclude<keyof F, OptionalKeys<F>>]: Infer<F[K]> } & {
    [K in OptionalKeys<F>]?: Exclude<Infer<F[K]>, undefined>;
  }
>;

/** An object with these keys. */
export function object<F extends Fields>(fields: F): Shape<ObjectOf<F>> {
  return (value, path) => {
    if (typeof value !== "object" || value === null || Array.isArray(value))
      throw new ShapeError(path, "an object", value);
    const result: Record<string, unknown> = {};
    for (const [key, shape] of Object.entries(fields)) {
      const field = shape((value as Record<string, unknown>)[key], `${path}.${key}`);
      if (field !== undefined) result[key] = field;
    }
    return result as ObjectOf<F>;
  };
}
