// The plan of a stage as a graph: what each op takes from which, and its share of the time.
import { svg } from "./dom.js";
import { shareOf } from "./text.js";

const BOX_WIDTH = 132;
const BOX_HEIGHT = 40;
const GAP_X = 48;
const GAP_Y = 14;

// `ops` have `id`, `kind`, `inputs`; `shareOfOp(id)` may be null.
export function planGraph(stage, ops, shareOfOp) {
  const places = placeOps(ops);
  const columns = Math.max(...[...places.values()].map(({ column }) => column), 0) + 1;
  const rows = Math.max(...[...places.values()].map(({ row }) => row), 0) + 1;
  const width = columns * (BOX_WIDTH + GAP_X) - GAP_X + 4;
  const height = rows * (BOX_HEIGHT + GAP_Y) - GAP_Y + 4;
  return svg(
    "svg",
    { class: "plan", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `plan of ${stage}: ${describe(ops)}` },
    ops.flatMap((op) => op.inputs.filter((wire) => places.has(wire.op)).map((wire) => drawWire(places, wire, op))),
    ops.map((op) => drawOp(places.get(op.id), op, shareOfOp(op.id))),
  );
}

// An op stands right of all that it takes something from in the same step.
function placeOps(ops) {
  const places = new Map();
  const used = [];
  for (const op of ops) {
    const from = op.inputs.filter((wire) => !wire.previous && places.has(wire.op)).map((wire) => places.get(wire.op).column + 1);
    const column = Math.max(0, ...from);
    used[column] = (used[column] ?? -1) + 1;
    places.set(op.id, { column, row: used[column] });
  }
  return places;
}

function cornerOf({ column, row }) {
  return { x: 2 + column * (BOX_WIDTH + GAP_X), y: 2 + row * (BOX_HEIGHT + GAP_Y) };
}

function drawWire(places, wire, op) {
  const from = cornerOf(places.get(wire.op));
  const to = cornerOf(places.get(op.id));
  const [x1, y1, x2, y2] = [from.x + BOX_WIDTH, from.y + BOX_HEIGHT / 2, to.x, to.y + BOX_HEIGHT / 2];
  const bend = Math.max(24, Math.abs(x2 - x1) / 2);
  const path = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  return svg("path", { class: wire.previous ? "wire previous" : "wire", d: path }, svg("title", {}, `${wire.op}: ${wire.type}${wire.previous ? " of the step before" : ""}`));
}

function drawOp(place, op, share) {
  const { x, y } = cornerOf(place);
  const every = op.every ? `, every ${op.every}` : "";
  return svg(
    "g",
    {},
    svg("rect", { class: "op", x, y, width: BOX_WIDTH, height: BOX_HEIGHT, rx: 5 }),
    share ? svg("rect", { class: "share", x, y: y + BOX_HEIGHT - 5, width: Math.max(2, BOX_WIDTH * share), height: 5 }) : null,
    svg("text", { x: x + 8, y: y + 16 }, `${op.id}${every}`),
    svg("text", { class: "small", x: x + 8, y: y + 31 }, share === null ? op.kind : `${op.kind}, ${shareOf(share)}`),
  );
}

function describe(ops) {
  return ops.map((op) => (op.inputs.length ? `${op.id} from ${op.inputs.map((wire) => wire.op).join(" and ")}` : op.id)).join("; ");
}
