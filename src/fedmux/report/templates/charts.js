// Draws each chart when it comes near the view, in the page's colours, and again when those change.
"use strict";
const fedmuxCharts = (() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const views = new Map(); // element -> vega view
  let themes = { light: {}, dark: {} };
  const specs = new Map(); // element -> spec

  async function draw(element) {
    const spec = specs.get(element);
    if (!spec) return;
    const config = dark.matches ? themes.dark : themes.light;
    const actions = { export: true, source: false, compiled: false, editor: false };
    try {
      const result = await vegaEmbed(element, spec, { config, actions, renderer: "canvas" });
      views.get(element)?.finalize();
      views.set(element, result.view);
      element.dataset.drawn = String(Number(element.dataset.drawn || 0) + 1);
    } catch (error) {
      element.textContent = "This chart cannot be drawn: " + error.message;
    }
  }

  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      entry.target.dataset.near = entry.isIntersecting ? "1" : "";
      if (entry.isIntersecting && !views.has(entry.target)) draw(entry.target);
    }
  }, { rootMargin: "400px" });

  function show(element, spec) {
    specs.set(element, spec);
    if (element.dataset.near === "1") draw(element);
    else { views.get(element)?.finalize(); views.delete(element); near.observe(element); }
  }

  dark.addEventListener("change", () => { for (const element of views.keys()) draw(element); });
  addEventListener("beforeprint", () => { for (const element of specs.keys()) if (!views.has(element)) draw(element); });

  return { show, themes: (both) => { themes = both; } };
})();
