// Elements of the page. Text is only ever inserted as text nodes: nothing from outside is parsed as HTML.

/** An element with attributes (`onclick` and the like are listeners) and children. Missing children are left out. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Changes the text of an element only where it differs, so that selections and screen readers are left alone. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Replaces the children unless `signature` is the one of the last time. Keeps the focus on the same place. */
export function replace(element, signature, make) {
  if (element.signature === signature) return;
  element.signature = signature;
  const kept = focusIn(element);
  element.replaceChildren(...[make()].flat(Infinity).filter(Boolean));
  if (kept >= 0) focusables(element)[kept]?.focus();
}

function focusables(element) {
  return [...element.querySelectorAll("a[href], button, input, select, textarea, summary")];
}

function focusIn(element) {
  return element.contains(document.activeElement) ? focusables(element).indexOf(document.activeElement) : -1;
}

/** Shows `items` as children of `parent`, one for each key: known ones are updated in place, so that typed text stays. */
export function keyed(parent, items, { key, create, update }) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let position = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = old.get(name);
    old.delete(name);
    if (!child) {
      child = create(item);
      child.dataset.key = name;
    }
    if (child === position) position = position.nextElementSibling;
    else parent.insertBefore(child, position);
    update?.(child, item);
  }
  for (const child of old.values()) child.remove();
}
