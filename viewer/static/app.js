// Lists the names of the runs.
"use strict";

fetch("api/runs").then((answer) => answer.json()).then(({ runs }) => {
  for (const run of runs) {
    const line = document.createElement("li");
    line.textContent = run.name;
    document.getElementById("runs").append(line);
  }
});
