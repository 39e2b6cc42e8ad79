// Where other modules add to the toolbars of pages.
export const slots = { run: [], episodes: [], episode: [] };

export function fillSlot(name, element, context) {
  for (const add of slots[name]) add(element, context);
}
