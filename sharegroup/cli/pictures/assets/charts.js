"use strict";
// Colours of charts follow the scheme of the reader's system, also when it changes.
const darkScheme = window.matchMedia("(prefers-color-scheme: dark)");

function schemeLayout(layout) {
  const dark = darkScheme.matches;
  const text = dark ? "#e6edf3" : "#1b1f24";
  const line = dark ? "#30363d" : "#d0d7de";
  const background = dark ? "#0d1117" : "#ffffff";
  const axis = (own) => ({
    ...own, gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line,
  });
  const result = {
    ...layout,
    autosize: true,
    dragmode: "zoom",
    paper_bgcolor: background,
    plot_bgcolor: background,
    font: { color: text, size: 13 },
    hoverlabel: { bgcolor: dark ? "#161b22" : "#ffffff", bordercolor: line, font: { color: text } },
    xaxis: axis(layout.xaxis),
    yaxis: axis(layout.yaxis),
  };
  if (layout.coloraxis) {
    result.coloraxis = {
      ...layout.coloraxis,
      // The first delivery is close to the background, many deliveries are far from it, in both schemes.
      colorscale: dark
        ? [[0, "#2a5f93"], [0.34, "#e0c04a"], [0.67, "#ff8c42"], [1, "#ffd9d2"]]
        : [[0, "#a9cdf0"], [0.34, "#d9a400"], [0.67, "#d9480f"], [1, "#6a0d0d"]],
    };
  }
  return result;
}

const chartConfig = { displayModeBar: false, responsive: true, doubleClick: false };
