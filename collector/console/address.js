// Where the page is: the view and its choices stand in the URL, so that a link shows the same.

export function read() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(query);
}

// `null` or "" takes a choice out of the URL.
export function write(choices, { push = false } = {}) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(choices)) {
    if (value === null || value === "" || value === undefined) query.delete(name);
    else query.set(name, value);
  }
  const url = query.size ? `/?${query}` : "/";
  if (url === location.pathname + location.search) return;
  history[push ? "pushState" : "replaceState"](null, "", url);
}

export function go(choices) {
  history.pushState(null, "", href(choices));
  dispatchEvent(new Event("navigate"));
}

export function href(choices) {
  const query = new URLSearchParams(Object.entries(choices).filter(([, value]) => value));
  return query.size ? `/?${query}` : "/";
}

// A link of this page: a click stays in it, a click with a modifier opens another tab.
export function follow(event) {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const link = event.target.closest("a[data-in]");
  if (!link) return;
  event.preventDefault();
  history.pushState(null, "", link.getAttribute("href"));
  dispatchEvent(new Event("navigate"));
}
