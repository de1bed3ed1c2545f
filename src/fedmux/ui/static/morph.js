// Brings what is shown to a new state and leaves alone what is the same, so that focus and scrolling stay.

export function parse(html) {
  const template = document.createElement("template");
  template.innerHTML = html; // from our own server, which escapes every name
  return template.content;
}

export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  morphChildren(old, fresh);
}

export function morphChildren(old, fresh) {
  const before = [...old.childNodes];
  const after = [...fresh.childNodes];
  after.forEach((node, place) => (place < before.length ? morph(before[place], node) : old.append(node)));
  for (const node of before.slice(after.length)) node.remove();
}

const STEPS = [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"], [Infinity, 86400, "d"]];

// "12 s ago" instead of a date; the date is there when the mouse rests on it.
export function tellTimes(root) {
  for (const element of root.querySelectorAll("time")) {
    const moment = new Date(element.dateTime);
    const seconds = Math.max(0, (Date.now() - moment) / 1000);
    const [, unit, name] = STEPS.find(([limit]) => seconds < limit);
    const text = `${Math.floor(seconds / unit)} ${name} ago`;
    if (element.textContent !== text) element.textContent = text;
    element.title = moment.toLocaleString();
  }
}
