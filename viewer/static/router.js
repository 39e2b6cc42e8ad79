// Every view is an address: `#/runs/ID/episodes?words=door`.
export const routes = [];

// A part of a pattern that begins with `:` is a parameter.
export function addRoute(pattern, show) {
  routes.push({ parts: partsOf(pattern), show });
}

export function hrefOf(path, query) {
  const written = [].concat(path).map(encodeURIComponent).join("/");
  const text = new URLSearchParams(pairsOf(query)).toString();
  return `#/${written}${text ? `?${text}` : ""}`;
}

// The view of an address; null if there is none.
export function findRoute(hash) {
  const [path, text] = splitHash(hash);
  const given = partsOf(path);
  for (const { parts, show } of routes) {
    if (parts.length !== given.length) continue;
    const parameters = {};
    const fits = parts.every((part, at) => {
      if (!part.startsWith(":")) return part === given[at];
      parameters[part.slice(1)] = given[at];
      return true;
    });
    if (fits) return { show, parameters, query: new URLSearchParams(text) };
  }
  return null;
}

// Changes the query of the address and shows nothing anew; a value of null or "" is taken out, a list is repeated.
export function setQuery(changes) {
  const [path, text] = splitHash(location.hash);
  const query = new URLSearchParams(text);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const [, each] of pairsOf({ [name]: value })) query.append(name, each);
  }
  const written = query.toString();
  history.replaceState(null, "", `#${path}${written ? `?${written}` : ""}`);
}

function splitHash(hash) {
  const whole = hash.replace(/^#/, "") || "/";
  const at = whole.indexOf("?");
  return at < 0 ? [whole, ""] : [whole.slice(0, at), whole.slice(at + 1)];
}

function partsOf(path) {
  return path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
}

function pairsOf(query) {
  if (query instanceof URLSearchParams) return [...query];
  return Object.entries(query ?? {}).flatMap(([name, value]) =>
    [].concat(value).filter((each) => each !== null && each !== undefined && each !== "").map((each) => [name, String(each)]),
  );
}
