// Asks the server that gave the page; nothing else is asked.
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// The parts of a path are ids, in which anything may stand.
export function urlOf(path, query) {
  const written = [].concat(path).map(encodeURIComponent).join("/");
  const text = new URLSearchParams(query ?? []).toString();
  return `api/${written}${text ? `?${text}` : ""}`;
}

export function getJson(path, query, signal) {
  return askJson(urlOf(path, query), { signal });
}

export function postJson(path, body, signal) {
  return askJson(urlOf(path), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
}

async function askJson(address, options) {
  const { signal } = options;
  let answered;
  try {
    answered = await fetch(address, options);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "the server does not answer: is `agym view` still running?");
  }
  const value = await answered.json().catch((error) => {
    // a page that was left meanwhile
    if (signal?.aborted) throw error;
    return null;
  });
  if (!answered.ok || value === null) throw new ApiError(answered.status, value?.error ?? `status ${answered.status}`);
  return value;
}
