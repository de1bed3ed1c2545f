// A run, or several: figures come as events, charts are fetched again while they are in view.
import { morphChildren, parse, tellTimes } from "./morph.js";

const PAUSE = 1000; // milliseconds between two rounds of redrawing
const RETRY = 10000; // after which a chart that had no data is asked for again
const SAY = 10000; // news are read out at most so often
const figures = document.getElementById("figures");
const connection = document.getElementById("connection");
const said = document.getElementById("said");

// Charts: each knows for which state of the run it was last asked for.
const charts = [...document.querySelectorAll("figure[data-url]")].map((figure) => ({
  figure,
  box: figure.querySelector(".chart"),
  entry: document.querySelector(`nav.contents a[href="#${figure.id}"]`).parentElement,
  asked: -1,
  when: 0,
  missing: false,
  near: false,
}));
let version = 0;
let drawn = ""; // what the charts show
let finished = false;

async function fetchChart(chart) {
  const asked = version;
  const answer = await fetch(chart.figure.dataset.url);
  if (!answer.ok) throw new Error(`${answer.status}`);
  chart.missing = answer.status === 204;
  if (!chart.missing) {
    const spec = await answer.json();
    chart.figure.hidden = chart.entry.hidden = false;
    chart.box.style.minHeight = `${chart.box.offsetHeight}px`; // the page must not jump while it is drawn
    fedmuxCharts.show(chart.box, spec);
  }
  chart.asked = asked;
  chart.failed = 0;
  chart.when = performance.now();
}

function due(chart) {
  if (chart.failed && performance.now() - chart.failed < RETRY) return false;
  if (chart.asked < 0) return true;
  if (chart.asked === version) return false;
  return chart.missing ? finished || performance.now() - chart.when > RETRY : chart.near;
}

async function draw() {
  const [themes] = await Promise.all([
    fetch("/themes.json").then((answer) => answer.json()),
    import(document.getElementById("live").dataset.vega),
  ]);
  fedmuxCharts.themes(themes);
  const drawing = document.getElementById("drawing");
  for (;;) {
    for (const chart of charts.filter(due)) {
      try {
        await fetchChart(chart);
      } catch {
        chart.failed = performance.now(); // the server is gone or busy, or this chart fails: later again
      }
    }
    const none = charts.every((chart) => chart.missing);
    drawing.textContent = none ? "There is nothing to draw yet." : "";
    drawing.hidden = !none;
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

const view = new IntersectionObserver((entries) => {
  for (const entry of entries) charts.find((chart) => chart.figure === entry.target).near = entry.isIntersecting;
}, { rootMargin: "200px" });
for (const chart of charts) view.observe(chart.figure);

// Events. A page that nobody sees holds no connection: a browser has few for one server.
let source = null;
let spoken = 0;

function update(event) {
  const news = JSON.parse(event.data);
  morphChildren(figures, parse(news.figures));
  tellTimes(figures);
  if (drawn !== String(news.drawn)) version += 1; // more than a sign of life
  drawn = String(news.drawn);
  connection.textContent = "";
  if (news.finished || performance.now() - spoken > SAY) {
    said.textContent = news.said;
    spoken = performance.now();
  }
  if (news.finished) {
    finished = true;
    close();
  }
}

function open() {
  if (source || finished || document.hidden) return;
  source = new EventSource(figures.dataset.events);
  source.addEventListener("update", update);
  source.addEventListener("error", () => {
    connection.textContent = "fedmux ui does not answer any more; start it again and this page goes on.";
    if (source?.readyState === EventSource.CLOSED) {
      close();
      setTimeout(open, 5000);
    }
  });
}

function close() {
  source?.close();
  source = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
setInterval(() => tellTimes(figures), 1000);
tellTimes(figures);
open();
draw().catch(() => {
  document.getElementById("drawing").textContent = "Charts cannot be drawn: Vega did not come. Reload the page.";
});
