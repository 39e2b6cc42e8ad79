// A curve as small as a word.
import { svg } from "./dom.js";

const SPARK_WIDTH = 120;
const SPARK_HEIGHT = 24;

export function spark(values, label) {
  const low = Math.min(...values, 0);
  const high = Math.max(...values, 1);
  const step = values.length > 1 ? (SPARK_WIDTH - 4) / (values.length - 1) : 0;
  const points = values.map((value, at) => {
    const y = SPARK_HEIGHT - 3 - ((value - low) / (high - low || 1)) * (SPARK_HEIGHT - 6);
    return `${(2 + at * step).toFixed(1)},${y.toFixed(1)}`;
  });
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`, width: SPARK_WIDTH, height: SPARK_HEIGHT, role: "img", "aria-label": label },
    points.length > 1 ? svg("polyline", { points: points.join(" ") }) : points.map((point) => drawPoint(point.split(","))),
  );
}

function drawPoint([x, y]) {
  return svg("circle", { cx: x, cy: y, r: 2.5 });
}
