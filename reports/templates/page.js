"use strict";
// Draws the charts one after the other, with a pause in which the browser shows what is there. Options: no menus, SVG (sharp in print), Vega's interpreter (no code from strings).
(function () {
  var root = document.documentElement;
  document.querySelectorAll("details.twin").forEach(function (twin) { twin.open = false; });
  var options = { actions: false, renderer: "svg", ast: true, hover: false, tooltip: { theme: "page" } };
  var failed = 0;
  function pause() { return new Promise(function (go) { setTimeout(go, 0); }); }
  function draw(box) {
    var holder = document.getElementById("spec-" + box.dataset.chart);
    return Promise.resolve()
      .then(function () { return vegaEmbed(box, JSON.parse(holder.textContent), options); })
      .catch(function (error) {
        failed += 1;
        box.textContent = box.dataset.failed;
        console.error(error);
      });
  }
  var done = Array.prototype.reduce.call(
    document.querySelectorAll("[data-chart]"),
    function (before, box) { return before.then(pause).then(function () { return draw(box); }); },
    Promise.resolve()
  );
  done.then(function () {
    root.dataset.charts = "done";
    root.dataset.failed = String(failed);
  });
})();
