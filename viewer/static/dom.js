// Makes elements. Text that comes in is text that is shown, with what cannot be seen written as escapes.
import { textOf } from "./text.js";

const SVG_SPACE = "http://www.w3.org/2000/svg";
const DIRECT = new Set(["value", "checked", "disabled", "selected", "hidden", "open", "tabIndex", "className", "type", "max", "min"]);

// A property is a listener if it begins with `on`, else a property of the element or an attribute; null leaves it out.
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  setProperties(element, properties ?? {});
  addChildren(element, children);
  return element;
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG_SPACE, tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined) element.setAttribute(name, textOf(value));
  }
  addChildren(element, children);
  return element;
}

export function addChildren(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(textOf(child)));
  }
}

function setProperties(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (DIRECT.has(name)) element[name] = value;
    else if (name === "href" || name === "src") element.setAttribute(name, value);
    else element.setAttribute(name, value === true ? "" : textOf(value));
  }
}
