// Draws every chart of the page in the colours of its style sheet, and again when the theme changes between light and dark.
(() => {
  "use strict";
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const touch = matchMedia("(pointer: coarse)").matches;

  // "--name" or "--name@opacity", where a colour is expected, is a variable of the style sheet.
  const colour = (value, style) => {
    const found = /^(--[a-z0-9-]+)(?:@([0-9.]+))?$/.exec(value);
    if (!found) return value;
    const hex = style.getPropertyValue(found[1]).trim();
    if (!found[2]) return hex;
    const part = (at) => parseInt(hex.slice(at, at + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${found[2]})`;
  };
  const resolve = (value, style, paints) => {
    if (typeof value === "string") return paints ? colour(value, style) : value;
    if (Array.isArray(value)) return value.map((each) => resolve(each, style, paints));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, each]) => [key, resolve(each, style, /color(scale)?$/.test(key))])
    );
  };

  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    for (const [id, chart] of Object.entries(charts)) {
      const { data, layout } = resolve(chart, style, false);
      // On narrow screens, the page's own key above the chart replaces the legend.
      if (layout.meta?.keyed && innerWidth <= 480) layout.showlegend = false;
      // A finger that moves across a chart scrolls the page.
      if (touch) for (const axis of ["xaxis", "yaxis"]) layout[axis].fixedrange = true;
      if (touch) layout.dragmode = false;
      Plotly.react(id, data, layout, {
        responsive: true,
        displaylogo: false,
        displayModeBar: !touch,
        modeBarButtons: [["toImage", "resetScale2d"]],
        toImageButtonOptions: { format: "svg", filename: id },
      });
    }
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
