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

export async function getJson(path, query, signal) {
  let answered;
  try {
    answered = await fetch(urlOf(path, query), { signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "the server does not answer: is `agym view` still running?");
  }
  const value = await answered.json().catch(() => null);
  if (!answered.ok) throw new ApiError(answered.status, value?.error ?? `status ${answered.status}`);
  return value;
}
