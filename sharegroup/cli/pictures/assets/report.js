const figures = JSON.parse(document.getElementById("figures").textContent);
const charts = figures.map((_, index) => document.getElementById(`chart-${index}`));
const whole = figures[0].layout.xaxis.range.map(Number);
const output = document.getElementById("range");
const drawnCharts = () => charts.filter((chart, index) => figures[index].data.length);
let shown = whole;

const stamp = (ms) => new Date(ms).toISOString().replace("T", " ").replace("Z", "");
const milliseconds = (value) => (typeof value === "number" ? value : Date.parse(`${String(value).replace(" ", "T")}Z`));

function show(from, to) {
  // All charts have one time range, whichever of them it was chosen in.
  shown = [from, to];
  output.textContent = `${stamp(Math.round(from))} to ${stamp(Math.round(to))} UTC`;
  return Promise.all(drawnCharts().map((chart) => Plotly.relayout(chart, { "xaxis.range": [from, to] })));
}

function zoom(kind) {
  const [from, to] = shown;
  const width = to - from;
  const steps = {
    in: () => [from + width / 4, to - width / 4],
    out: () => [from - width / 2, to + width / 2],
    earlier: () => [from - width / 4, to - width / 4],
    later: () => [from + width / 4, to + width / 4],
    all: () => whole,
  };
  return show(...steps[kind]());
}

async function draw() {
  for (const [index, chart] of charts.entries()) {
    const { data, layout } = figures[index];
    if (!data.length) continue;
    await Plotly.newPlot(chart, data, schemeLayout(layout), chartConfig);
    chart.on("plotly_relayout", (change) => {
      if ("xaxis.range[0]" in change) show(milliseconds(change["xaxis.range[0]"]), milliseconds(change["xaxis.range[1]"]));
    });
  }
  output.textContent = `${stamp(whole[0])} to ${stamp(whole[1])} UTC`;
  document.body.dataset.drawn = String(drawnCharts().length);
}

for (const button of document.querySelectorAll("[data-zoom]")) {
  button.addEventListener("click", () => zoom(button.dataset.zoom));
}
darkScheme.addEventListener("change", () => {
  for (const [index, chart] of charts.entries()) {
    const { data, layout } = figures[index];
    if (data.length) Plotly.react(chart, data, schemeLayout({ ...layout, xaxis: { ...layout.xaxis, range: shown } }), chartConfig);
  }
});
draw().catch((error) => {
  document.body.dataset.error = String(error);
  output.textContent = `The charts cannot be drawn: ${error}. The tables have the same numbers.`;
});
window.addEventListener("error", (event) => { document.body.dataset.error = event.message; });
