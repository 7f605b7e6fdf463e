// Numbers, money, times and durations in words for people.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const dash = "–";

/** 1234567 as 1,234,567; a dash where the number is unknown. */
export function number(value) {
  return Number.isFinite(value) ? whole.format(value) : dash;
}

/** 1234567 as 1.2M. */
export function compact(value) {
  return Number.isFinite(value) ? short.format(value) : dash;
}

/** Dollars, with more digits where the sum is small. */
export function dollars(value) {
  if (!Number.isFinite(value)) return dash;
  const digits = value !== 0 && Math.abs(value) < 1 ? 4 : 2;
  return (value < 0 ? "-$" : "$") + Math.abs(value).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** 0.25 as 25%. */
export function percent(share) {
  if (!Number.isFinite(share)) return dash;
  const percentage = share * 100;
  return `${percentage.toLocaleString("en", { maximumFractionDigits: percentage < 10 ? 1 : 0 })}%`;
}

/** A part of a whole, 0 where there is no whole. */
export function share(part, all) {
  return all > 0 ? part / all : 0;
}

/** Milliseconds with their unit. */
export function milliseconds(value) {
  if (!Number.isFinite(value)) return dash;
  if (value < 1) return `${(value * 1000).toFixed(0)} µs`;
  return value < 100 ? `${value.toFixed(1)} ms` : `${whole.format(value)} ms`;
}

/** Seconds of a tool's work. */
export function seconds(value) {
  if (!Number.isFinite(value)) return dash;
  return value < 1 ? `${(value * 1000).toFixed(0)} ms` : `${value.toFixed(value < 10 ? 1 : 0)} s`;
}

/** Bytes with their unit. */
export function bytes(value) {
  if (!Number.isFinite(value)) return dash;
  if (value < 1024) return `${whole.format(value)} B`;
  return value < 1024 * 1024 ? `${(value / 1024).toFixed(1)} KB` : `${(value / 1024 / 1024).toFixed(1)} MB`;
}

/** The time of day, with the date where it is another day. */
export function time(ms) {
  if (!Number.isFinite(ms) || ms <= 0) return dash;
  const at = new Date(ms);
  const clock = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? clock : `${at.toLocaleDateString("en-CA")} ${clock}`;
}

/** How long something takes or is ago: 41 s, 3 min, 2 h. */
export function duration(ms) {
  const total = Math.max(0, Math.round(ms / 1000));
  if (total < 90) return `${total} s`;
  if (total < 5400) return `${Math.round(total / 60)} min`;
  return total < 172800 ? `${Math.round(total / 3600)} h` : `${Math.round(total / 86400)} days`;
}

/** A clock that counts down: 4:09. */
export function countdown(ms) {
  const total = Math.max(0, Math.ceil(ms / 1000));
  return `${Math.floor(total / 60)}:${String(total % 60).padStart(2, "0")}`;
}

/** One noun with its number. */
export function count(value, one, many = `${one}s`) {
  return `${number(value)} ${value === 1 ? one : many}`;
}

/** JSON arguments indented, and unchanged where they are no JSON. */
export function readableArguments(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return JSON.stringify(value, null, 2);
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}
