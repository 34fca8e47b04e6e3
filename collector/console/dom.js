// Elements, made from words. Text is always text: nothing here takes markup.

const SVG = "http://www.w3.org/2000/svg";

export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function s(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

// What would turn a line around or hide in it is shown as a mark, as the commands do; lines may still end.
const UNSEEN = /(?!\n)\p{C}/gu;

export const visible = (text) => text.replace(UNSEEN, "\ufffd");

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) element.append(typeof child === "string" ? visible(child) : child);
  }
  return element;
}

// Written only when it differs: most of what is shown stays as it is.
export function setText(element, text) {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

export function setClass(element, name) {
  if (element.getAttribute("class") !== name) element.setAttribute("class", name);
}

export function setVariable(element, name, value) {
  if (element.style.getPropertyValue(name) !== value) element.style.setProperty(name, value);
}

let numbered = 0;

export function uniqueId(prefix) {
  numbered += 1;
  return `${prefix}-${numbered}`;
}
